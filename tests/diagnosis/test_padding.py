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


GRAPH = (
    HEAD
    + """
class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.pack = heads, nn.Linear(dim, dim)
        self.of_query, self.of_key = (nn.Parameter(torch.randn(heads, dim // heads)) for _ in range(2))

    def forward(self, x, adj):
        h = self.pack(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        asked, offered = ((h * each[:, None]).sum(-1) for each in (self.of_query, self.of_key))
        s = F.leaky_relu(asked[..., None] + offered[:, :, None])
        w = s.masked_fill(~adj[:, None], float("-inf")).softmax(-1)
        return (w @ h).transpose(1, 2).flatten(2)


class Graph(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.layer, self.gate = Layer(dim, heads), nn.Linear(dim, 1)

    def forward(self, x, adj, num_nodes):
        # x: (B, N, dim), adj: (B, N, N), num_nodes: (B,)
        there = torch.arange(x.shape[1])[None] < num_nodes[:, None]
        adj = (adj != 0) & {there} | torch.eye(x.shape[1], dtype=torch.bool)
        x = self.layer(x, adj)
        s = self.gate(x).masked_fill(~there[..., None], float("-inf"))
        return (s.softmax(1) * x).sum(1)
"""
)


def test_additive_scores_of_padded_nodes_that_see_themselves_alone_are_nobodys():
    found = found_in(GRAPH.replace("{there}", "there[:, None] & there[..., None]"), "Graph")
    assert (found.verdict, found.faults) == ("sound", ())
