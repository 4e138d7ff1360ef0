"""Masks that a model makes of its own tokens: the padding among these is hidden from the others, and nothing else."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

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


CLICKS = (
    HEAD
    + """
class Clicks(nn.Module):
    '''The last click comes last: sessions are padded in front.'''

    def __init__(self, items=40, dim=24, heads=3):
        super().__init__()
        self.heads, self.items = heads, nn.Embedding(items, dim, padding_idx=0)
        self.pack, self.join = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, seq):
        q, k, v = self.pack(self.items(seq)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        past = torch.ones(seq.shape[1], seq.shape[1], dtype=torch.bool).tril()
        seen = (seq > 0).unsqueeze(1).unsqueeze({axis}) & past
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -1e9)
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
FRAMES = (
    HEAD
    + """
def padding_of(lengths, longest):
    return torch.arange(longest)[None] >= lengths[:, None]


class Frames(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.pack, self.join = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, signal, lengths):
        # signal (B, T, dim), lengths (B,): of recorded frames
        padding = padding_of(lengths, signal.shape[1])
        q, k, v = self.pack(signal).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask={mask}[:, None, None])
        y = self.join(y.transpose(1, 2).flatten(2)).masked_fill(padding[..., None], 0.0)
        return y.sum(1) / lengths[:, None]
"""
)


def test_padding_in_front_shows_what_no_padding_behind_shows_where_each_sees_what_came_before():
    assert blamed_in(CLICKS.format(axis=2), "Clicks") == []
    wrong = CLICKS.format(axis=3)
    assert blamed_in(wrong, "Clicks") == [("mask-axis", line_of(wrong, "unsqueeze(3)"))]


def test_a_mask_of_padding_that_is_taken_for_one_of_real_frames_is_named_where_it_is_taken():
    assert blamed_in(FRAMES.format(mask="(~padding)"), "Frames") == []
    wrong = FRAMES.format(mask="padding")
    assert blamed_in(wrong, "Frames") == [("mask-inverted", line_of(wrong, "attn_mask=padding"))]
