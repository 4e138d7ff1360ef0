"""A triangle that is joined with padding so that it hides nothing; prefixes and other joins may be so on purpose."""

import pytest

from tests.diagnosis.written import HEAD, found_in, line_of

MODEL = (
    HEAD
    + """
class Decoder(nn.Module):
    def __init__(self, vocab_size, dim, heads, pad_idx=0):
        super().__init__()
        self.heads, self.pad_idx = heads, pad_idx
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=pad_idx)
        self.qkv, self.join = nn.Linear(dim, 3 * dim), nn.Linear(dim, vocab_size)

    def forward(self, ids{more}):
        x = self.embed(ids)
        length = ids.shape[1]
        places = torch.arange(length)
        mask = {mask}
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = s.masked_fill({hidden}, torch.finfo(s.dtype).min)
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
REAL, PAD = "(ids != self.pad_idx)[:, None, None, :]", "ids.eq(self.pad_idx)[:, None, None]"
TRIANGLE = "torch.ones(length, length).tril().bool()"
LATER = "(places[None, :] > places[:, None])"
LOST = {
    "what may be seen, by or": (f"{REAL} | {TRIANGLE}", "~mask"),
    "what is hidden, by and": (f"{PAD} & {LATER}", "mask"),
    "what is hidden, by a product": (f"{PAD} * {LATER}", "mask"),
    "what may be seen, by a sum": (f"{REAL}.int() + torch.ones(length, length).int().tril()", "mask == 0"),
}
KEPT = {
    "what may be seen": (f"{REAL} & {TRIANGLE}", "~mask", ""),
    "what is hidden": (f"{PAD} | {LATER}", "mask", ""),
    "padding alone": (f"{REAL} | torch.eye(length).bool()", "~mask", ""),
    "a prefix that all see": (f"(roles != 0)[:, None, None, :] | {TRIANGLE}", "~mask", ", roles"),
    "a prefix by its length": (f"(places < length)[None, None, None, :] | {TRIANGLE}", "~mask", ""),
}


@pytest.mark.parametrize("name", LOST)
def test_a_triangle_that_hides_nothing_is_told_where_it_is_joined(name):
    mask, hidden = LOST[name]
    source = MODEL.format(mask=mask, hidden=hidden, more="")
    faults = found_in(source, "Decoder").faults
    assert [(each.kind, each.line) for each in faults] == [("causal-missing", line_of(source, "mask = "))]


@pytest.mark.parametrize("name", KEPT)
def test_a_mask_that_hides_what_it_should_is_sound(name):
    mask, hidden, more = KEPT[name]
    source = MODEL.format(mask=mask, hidden=hidden, more=more)
    if more:
        source = source.replace("        self.qkv", "        self.roles = nn.Embedding(4, dim)\n        self.qkv")
        source = source.replace("x = self.embed(ids)", "x = self.embed(ids) + self.roles(roles)")
    found = found_in(source, "Decoder")
    assert (found.verdict, found.faults) == ("sound", ())
