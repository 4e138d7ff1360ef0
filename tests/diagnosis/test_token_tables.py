"""The number that is masked as padding is the padding_idx of the table in which the same tokens are looked up."""

import pytest

from tests.diagnosis.written import HEAD, found_in, line_of

MODEL = (
    HEAD
    + """
class Reader(nn.Module):
    def __init__(self, vocab_size, dim, heads, {given}):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=pad)
        self.places = nn.Embedding(50, dim, padding_idx=2)
        self.attend = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Linear(dim, 7)

    def forward(self, ids):
        places = torch.arange(ids.shape[1]) + 3
        h = self.embed(ids) + self.places(places)
        {mask}
        out, _ = self.attend(h, h, h, key_padding_mask=hidden)
        return self.head(out[:, 0])
"""
)
FAULTY = {
    "first": ("pad=1", "padding = ids.eq(0); hidden = padding"),
    "second": ("pad=0", "hidden = (ids == 1)  # True at padding"),
}
SOUND = {
    "the same number": ("pad=1", "padding = ids.eq(1); hidden = padding"),
    "a special token beside padding": ("pad=1", "hidden = (ids == 0) | (ids == 1)  # special tokens and padding"),
    "a special token": ("pad=1", "hidden = ids == 3  # [MASK] is not attended to"),
    "a number that has a name": ("pad=1, end=0", "padding = ids == self.end; hidden = padding"),
    "a table without padding": ("pad=None", "padding = ids.eq(0); hidden = padding"),
    "a number that the caller chooses": ("pad", "padding = ids.eq(0); hidden = padding"),
}


def source_of(given, mask):
    """A model of tokens with its padding and its mask."""
    source = MODEL.format(given=given, mask=mask)
    return (
        source.replace("        self.embed =", "        self.end = end\n        self.embed =")
        if "end" in given
        else source
    )


@pytest.mark.parametrize("name", FAULTY)
def test_a_number_that_is_not_padding_in_the_table_is_told_where_it_is_compared(name):
    source = source_of(*FAULTY[name])
    faults = found_in(source, "Reader").faults
    assert [(each.kind, each.line, each.proved) for each in faults] == [
        ("padding-of-table", line_of(source, "hidden = "), True)
    ]
    assert faults[0].evidence


@pytest.mark.parametrize("name", SOUND)
def test_a_number_that_may_be_masked_is_sound(name):
    found = found_in(source_of(*SOUND[name]), "Reader")
    assert [each.kind for each in found.faults] == []
    assert found.verdict != "faulty"


def test_tokens_that_are_shifted_before_they_are_looked_up_have_other_numbers():
    source = source_of("pad=1", "padding = ids.eq(0); hidden = padding").replace(
        "self.embed(ids)", "self.embed(ids + 1)"
    )
    source = source.replace("nn.Embedding(vocab_size, dim", "nn.Embedding(vocab_size + 1, dim")
    assert found_in(source, "Reader").faults == ()
