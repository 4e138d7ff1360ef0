"""Masks that a model makes of its own tokens: the padding among these is hidden from the others, and nothing else."""

import pytest

from tests.diagnosis.written import HEAD, found_in, line_of

LAYER = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, vocab_size, dim, heads, pad_idx=0):
        super().__init__()
        self.pad_idx = pad_idx
        self.embed = nn.Embedding(vocab_size, dim)
        self.attend = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        h = self.embed(ids)
        out, _ = self.attend(h, h, h, {given})
        return self.head(out)
"""
)
OWN = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.part = heads, dim // heads
        self.qkv, self.join = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, mask):
        n, long, dim = x.shape
        q, k, v = self.qkv(x).view(n, long, 3, self.heads, self.part).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT / math.sqrt(self.part)).masked_fill(mask, float("-inf"))
        return self.join((s.softmax(-1) @ v).transpose(1, 2).reshape(n, long, dim))

class Model(nn.Module):
    def __init__(self, vocab_size, dim, heads, pad_idx=0):
        super().__init__()
        self.pad_idx = pad_idx
        self.embed, self.attend = nn.Embedding(vocab_size, dim), Attend(dim, heads)

    def forward(self, ids):
        return self.attend(self.embed(ids), {given})
"""
)
BACK = "key_padding_mask=ids == self.pad_idx, attn_mask=torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()"
SOUND = {
    "padding is hidden": LAYER.format(given="key_padding_mask=ids == self.pad_idx"),
    "padding and what comes later are hidden": LAYER.format(given=BACK),
    "tokens are compared for another purpose": LAYER.format(given="need_weights=bool((ids == self.pad_idx).any())"),
    "padding sees nothing either": OWN.format(
        given="""(
            (ids == self.pad_idx)[:, None, None, :] | (ids == self.pad_idx)[:, None, :, None]
            & (torch.arange(ids.shape[1]) > 0))"""
    ),
}
FAULTY = {
    "padding alone is seen": ("mask-inverted", LAYER.format(given="key_padding_mask=ids != self.pad_idx"), "ids !="),
    "padding sees nothing, and is seen": (
        "mask-axis", OWN.format(given="(ids == self.pad_idx)[:, None].unsqueeze(3)"), "unsqueeze(3)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_model_that_hides_padding_is_sound(name):
    found = found_in(SOUND[name], "Model")
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize("name", FAULTY)
def test_a_model_that_hides_the_wrong_tokens_is_told_where_its_mask_was_made(name):
    kind, source, part = FAULTY[name]
    faults = found_in(source, "Model").faults
    assert [(each.kind, each.line, each.proved) for each in faults] == [(kind, line_of(source, part), True)]
    assert faults[0].evidence
