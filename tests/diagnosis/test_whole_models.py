"""Whole models: what is wrong between their inputs and their attentions, and beside each the same right."""

import pytest

import headwise as hw
from headwise.diagnosis.comparison import COMPARISON
from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

# a decoder of token numbers with a cache: positions, and which part of a rotation meets which
DECODER = (
    HEAD
    + """
def turned(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Mix(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cos, sin, past):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.packed(x).chunk(3, -1))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        hidden = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).triu(1)[k.shape[2] - x.shape[1] :]
        w = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.join((w @ v).transpose(1, 2).flatten(2)), (k, v)


class Decoder(nn.Module):
    def __init__(self, vocab_size=50, width=32, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList([Mix(width, heads) for _ in range(layers)])
        self.out = nn.Linear(width, vocab_size)
        rates = 1e4 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        angles = torch.outer(torch.arange(128.0), rates)
        angles = {spread}
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, past=None):
        begin = 0 if past is None else past[0][0].shape[2]
        places = torch.arange({begin}, {begin} + ids.shape[1])
        x, kept = self.words(ids), []
        for at, layer in enumerate(self.layers):
            y, each = layer(x, self.cos[places], self.sin[places], None if past is None else past[at])
            x = x + y
            kept.append(each)
        return self.out(x), kept
"""
)
# frames of patches: along time, then along the patches of a frame
VIDEO = (
    HEAD
    + '''
class Mix(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.packed(x).chunk(3, -1))
        return self.join(((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Both(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.time, self.space = Mix(width, heads), Mix(width, heads)

    def forward(self, x):
        # x: (batch, frames, patches, width)
        b, t, n, c = x.shape
        x = x + self.time({along}).{back}
        return x + self.space(x.reshape(b * t, n, c)).reshape(b, t, n, c)


class Video(nn.Module):
    """clip: (batch, 3, frames, height, width)"""

    def __init__(self, image_size=16, patch_size=4, frames=3, width=32, heads=4):
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch_size, patch_size)
        self.places = nn.Parameter(torch.randn(1, frames, 1, width))
        self.both = Both(width, heads)

    def forward(self, clip):
        b, c, t, h, w = clip.shape
        x = self.cut(clip.transpose(1, 2).reshape(b * t, c, h, w)).flatten(2).mT
        return self.both(x.reshape(b, t, *x.shape[1:]) + self.places).mean(dim=(1, 2))
'''
)
# learned queries that read what may be padded
READER = (
    HEAD
    + '''
class Read(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.both, self.join = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, memory, mask=None):
        """mask: (batch, memory), True at what is there"""
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.both(memory).chunk(2, -1))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(~mask[:, None, None], torch.finfo(s.dtype).min)
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Reader(nn.Module):
    def __init__(self, width=32, heads=4, count=3):
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, count, width))
        self.read = Read(width, heads)

    def forward(self, memory, mask=None):
        x = self.start.expand(memory.shape[0], -1, -1)
        return x + self.read({given})
'''
)
# a series whose mean is taken away before its channels attend to each other
SERIES = (
    HEAD
    + """
class Mix(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, z):
        return z + self.attention(z, z, z, need_weights=False)[0]


class Series(nn.Module):
    def __init__(self, lookback, horizon, width=32, heads=4):
        super().__init__()
        self.made, self.mix, self.out = nn.Linear(lookback, width), Mix(width, heads), nn.Linear(width, horizon)

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        {taken}
        return self.out(self.mix(self.made(x.mT))).mT + mean
"""
)
WRONG_AND_RIGHT = {
    "positions after a cache": (
        DECODER, "Decoder", {"spread": "angles.repeat(1, 2)", "begin": "0"},
        {"spread": "angles.repeat(1, 2)", "begin": "begin"}, "position-cache", "places = torch.arange",
    ),
    "angles side by side for features in halves": (
        DECODER, "Decoder", {"spread": "angles.repeat_interleave(2, dim=-1)", "begin": "begin"},
        {"spread": "torch.cat((angles, angles), dim=-1)", "begin": "begin"}, "rotary-wrong", "angles = angles.repeat",
    ),
    "frames that a reshape mixes with patches": (
        VIDEO, "Video", {"along": "x.reshape(b * n, t, c)", "back": "reshape(b, t, n, c)"},
        {"along": "x.transpose(1, 2).reshape(b * n, t, c)", "back": "reshape(b, n, t, c).transpose(1, 2)"},
        "tokens-regrouped", "x = x + self.time",
    ),
    "a mask that is not handed on": (
        READER, "Reader", {"given": "x, memory"}, {"given": "x, memory, mask"}, "input-unused",
        "def forward(self, memory, mask=None)",
    ),
    "a series that is changed": (
        SERIES, "Series", {"taken": "x -= mean"}, {"taken": "x = x - mean"}, "input-modified", "x -= mean",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_AND_RIGHT)
def test_a_fault_of_the_whole_is_found_on_its_line_and_nothing_where_it_is_right(case):
    source, name, wrong, right, kind, line = WRONG_AND_RIGHT[case]
    faulty, sound = (_filled(source, values) for values in (wrong, right))
    assert [(each.kind, each.line) for each in found_in(faulty, name).faults] == [(kind, line_of(faulty, line))]
    found = found_in(sound, name)
    assert (found.verdict, found.faults) == ("sound", ())


def _filled(source, values):
    for name, value in values.items():
        source = source.replace("{" + name + "}", value)
    return source


NULL = (
    HEAD
    + '''
class Attend(nn.Module):
    """One key and value that is learned stands before the others, which a query may always see."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.null = heads, nn.Parameter(torch.randn(2, 1, width))
        self.ask, self.both, self.join = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        """mask: (batch, tokens), True = may be seen"""
        k, v = (torch.cat((e.expand(len(x), 1, -1), t), 1) for e, t in zip(self.null, self.both(x).chunk(2, -1)))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.ask(x), k, v))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(s.shape[-2:], dtype=torch.bool).triu(2)
        if mask is not None:
            hidden = hidden | ~F.pad(mask, (1, 0), value=True)[:, None, None]
        return self.join((s.masked_fill(hidden, -1e9).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, vocab_size=50, width=32, heads=4):
        super().__init__()
        self.words, self.attend = nn.Embedding(vocab_size, width), Attend(width, heads)

    def forward(self, x, mask=None):
        return self.attend(self.words(x), mask)
'''
)
FIRST = (
    HEAD
    + '''
class Attend(nn.Module):
    """The first token attends to nothing, and gets zeros."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.packed(x).chunk(3, -1))
        w = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) * (torch.arange(x.shape[1]) > 0)[:, None]
        return self.join((w @ v).transpose(1, 2).flatten(2))
'''
)
BLOCKED = (
    HEAD
    + '''
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, slopes, blocked):
        """slopes: (batch, heads, 1, tokens); blocked: (batch, 1, tokens, tokens)"""
        n, m, _ = x.shape
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1) for t in self.packed(x).chunk(3, -1))
        s = torch.baddbmm(slopes.expand(-1, -1, m, -1).flatten(0, 1), q, k.mT, alpha=q.shape[-1] ** -0.5)
        w = s.unflatten(0, (n, -1)).masked_fill(blocked, torch.finfo(s.dtype).min).softmax(-1)
        return self.join((w @ v.unflatten(0, (n, -1))).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocab_size=50, width=32, heads=4):
        super().__init__()
        self.heads, self.words, self.attend = heads, nn.Embedding(vocab_size, width), Attend(width, heads)

    def forward(self, ids):
        mask = ids != 0
        slopes = 2.0 ** -torch.arange(1.0, self.heads + 1)[:, None, None] * mask.cumsum(-1)[:, None, None]
        blocked = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1) | ~mask[:, None, None]
        return self.attend(self.words(ids), slopes, blocked)
'''
)
DIVIDED = (
    HEAD
    + '''
class Context(nn.Module):
    """Each head has a state of its own channels, which must be as many for all: (batch, channels, height, width)."""

    def __init__(self, channels, heads):
        super().__init__()
        self.channels, self.heads = channels, heads
        self.ask, self.match, self.hold = (nn.Conv2d(channels, channels, 1) for _ in range(3))
        self.join = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        part, out = self.channels // self.heads, []
        q, k, v = (each(x).flatten(2) for each in (self.ask, self.match, self.hold))
        for at in range(self.heads):
            own = slice(at * part, (at + 1) * part)
            out.append((k[:, own].softmax(2) @ v[:, own].mT).mT @ q[:, own].softmax(1))
        return x + self.join(torch.cat(out, 1).view_as(x))


class Refine(nn.Module):
    def __init__(self, channels=8, inner=16, heads=4):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(channels + 1, inner, 3, padding=1), nn.GroupNorm(8, inner))
        self.context, self.leave = Context(inner, heads), nn.Conv2d(inner, 1, 3, padding=1)

    def forward(self, features, depth):
        return depth + self.leave(self.context(self.enter(torch.cat((features, depth), 1))))
'''
)
MEMORY = (
    HEAD
    + """
class Hops(nn.Module):
    def __init__(self, vocab_size, width, hops=2):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(vocab_size, width) for _ in range(hops + 1)])

    def forward(self, story, question):
        batch, lines, words = story.shape
        u = self.tables[0](question).sum(dim=1)
        for first, second in zip(self.tables, self.tables[1:]):
            m, c = first(story).sum(dim=2), second(story).sum(dim=2)
            u = u + (((m @ u[..., None]).squeeze(-1)).softmax(dim=-1)[:, None] @ c).squeeze(1)
        return u @ self.tables[-1].weight.mT
"""
)


@pytest.mark.parametrize(
    ("source", "name", "verdict"),
    [
        (NULL, "Decoder", "sound"),
        (FIRST, "Attend", "sound"),
        (BLOCKED, "Model", "sound"),
        (BLOCKED, "Attend", "not examined"),
        (DIVIDED, "Refine", "not examined"),
        (MEMORY, "Hops", "sound"),
    ],
    ids=[
        "a learned key",
        "a row of zeros",
        "a model that blocks",
        "what is blocked",
        "a state for each head",
        "rows of tables",
    ],
)
def test_a_right_design_has_no_fault(source, name, verdict):
    found = found_in(source, name)
    assert (found.verdict, found.faults) == (verdict, ())


RETRIEVER = """import torch
import torch.nn.functional as F
from torch import nn


class Attends(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.pack, self.join = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, real):
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention({q}, k, v, attn_mask=real[:, None, None])
        return self.join(y.transpose(1, 2).flatten(2))


class Retriever(nn.Module):
    def __init__(self, vocab=50, dim=24, heads=3):
        super().__init__()
        self.words, self.attention = nn.Embedding(vocab, dim, padding_idx=0), Attends(dim, heads)

    def read(self, ids):
        return F.normalize(self.attention(self.words(ids), ids != 0), dim=-1), ids != 0

    def forward(self, query_ids, passage_ids):
        # the passages of other queries are those that should not be found
        (q, q_real), (p, p_real) = self.read(query_ids), self.read(passage_ids)
        pairs = torch.einsum("qid,pjd->qpij", q, p).masked_fill(~p_real[None, :, None], float("-inf"))
        scores = (pairs.max(-1).values * q_real[:, None]).sum(-1)
        return F.cross_entropy(scores, torch.arange(len(scores))), scores
"""


def test_what_a_class_does_wrong_is_told_where_the_whole_crosses_samples_on_purpose():
    assert blamed_in(RETRIEVER.format(q="q"), "Retriever") == []
    wrong = RETRIEVER.format(q="q * q.shape[-1] ** -0.5")
    assert blamed_in(wrong, "Retriever") == [("scale-twice", line_of(wrong, "q.shape[-1] ** -0.5"))]


WITHIN = """import torch
from torch import nn


class Asks(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.pack, self.join = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        w = ((q[:, :, :1] * k).sum(-1) * q.shape[-1] ** -0.5).softmax(-1)
        return self.join((w.unsqueeze(2) @ v).transpose(1, 2).flatten(2))


class Outer(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.near, self.asks = nn.Conv2d(dim, dim, 3, padding=1), Asks(dim, heads)
        self.first = nn.Parameter(torch.randn(1, 1, dim))

    def forward(self, picture):
        x = self.near(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return self.asks(x)[:, 0]
"""


def test_scores_that_a_whole_does_not_show_are_compared_where_their_class_is_called_by_itself():
    found = found_in(WITHIN, "Outer")
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined[COMPARISON].startswith("softmax")
    wrong = found_in(WITHIN.replace("q.shape[-1] **", "x.shape[-1] **"), "Outer")
    assert [(each.kind, each.line) for each in wrong.faults] == [("scale-wrong", line_of(WITHIN, "q.shape[-1] **"))]


READS = (
    HEAD
    + """
class Pools(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 1, bias=False)

    def forward(self, states, mask):
        # mask (batch, words): 1 for words, 0 for padding
        scores = self.second(self.first(states).tanh()).squeeze(-1)
        scores = {masked}
        return torch.bmm(scores.softmax(1).unsqueeze(1), states).squeeze(1)


class Reads(nn.Module):
    def __init__(self, vocab=50, width=16):
        super().__init__()
        self.words, self.pool = nn.Embedding(vocab, width, padding_idx=0), Pools(width)
        self.reader = nn.GRU(width, width, batch_first=True)

    def forward(self, documents):
        b, s, w = documents.shape
        words = documents.view(b * s, w)
        return self.pool(self.reader(self.words(words))[0], (words != 0).float()).view(b, s, -1).sum(1)
"""
)


def test_a_class_that_pools_tokens_within_a_whole_is_examined_by_itself(tmp_path):
    file, wrong = tmp_path / "model.py", READS.format(masked="scores * mask")
    file.write_text(READS.format(masked="scores.masked_fill(mask == 0, -1e9)"), encoding="utf-8")
    assert hw.doctor(f"{file}:Reads").faults == ()
    file.write_text(wrong, encoding="utf-8")
    found = hw.doctor(f"{file}:Reads").faults
    assert [(each.kind, each.line) for each in found] == [("mask-multiplied", line_of(wrong, "scores * mask"))]
