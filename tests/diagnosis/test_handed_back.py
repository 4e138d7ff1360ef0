"""Handed back: what a call returns for the next one, under no name of a cache, is one where it holds the tokens."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

SEGMENTS = """
class Attend(nn.Module):
    def __init__(self, dim=32, heads=4, mem_len=16):
        super().__init__()
        self.heads, self.mem_len = heads, mem_len
        self.q, self.kv, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x, memory=None):
        n, d = x.shape[1:]
        context = x if memory is None else torch.cat([memory, x], 1)
        m = context.size(1)
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.kv(context).chunk(2, -1))
        later = torch.ones(n, m, dtype=torch.bool).triu({first})
        s = (q @ k.mT / (d // self.heads) ** 0.5).masked_fill(later, float("-inf"))
        new_memory = context[:, -self.mem_len :].detach()
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2)), new_memory
"""
# a few tokens carry what was read from one segment to the next
STATES = """
class Attend(nn.Module):
    def __init__(self, dim=32, heads=4, count=3):
        super().__init__()
        self.start = nn.Parameter(torch.randn(count, dim))
        self.heads, self.count, self.qkv = heads, count, nn.Linear(dim, 3 * dim)

    def forward(self, x, memory=None):
        b, n, d = x.shape
        memory = self.start.expand(b, -1, -1) if memory is None else memory
        h = torch.cat([memory, x], dim=1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        w = (q @ k.mT / (d // self.heads) ** 0.5).softmax(-1)
        h = h + (w @ v).transpose(1, 2).flatten(2)
        new_memory = h[:, : self.count]
        return h[:, self.count :], new_memory
"""


def test_a_memory_of_tokens_gives_in_parts_what_all_give_at_once():
    found = found_in(HEAD + SEGMENTS.format(first="m - n + 1"))
    assert (found.verdict, found.examined["cache"]) == ("sound", True)


def test_a_triangle_that_begins_at_the_memory_is_told():
    source = HEAD + SEGMENTS.format(first="1")
    assert blamed_in(source) == [("causal-cache", line_of(source, "triu"))]


def test_what_was_given_out_is_a_recurrence_and_no_cache():
    source = SEGMENTS.format(first="m - n + 1").replace(
        "        new_memory = context[:, -self.mem_len :].detach()\n", ""
    )
    source = source.replace("return self.out(", "y = self.out(").replace(".flatten(2)), new_memory", ".flatten(2))")
    source += "        new_memory = y if memory is None else torch.cat([memory, y], 1)\n        return y, new_memory\n"
    found = found_in(HEAD + source)
    assert (found.verdict, found.examined["cache"] is True) == ("sound", False)


@pytest.mark.parametrize("name", ["new_memory", "memory_after"])
def test_a_state_of_as_many_tokens_whatever_came_is_no_cache(name):
    found = found_in(HEAD + STATES.replace("new_memory", name))
    assert (found.verdict, found.examined["cache"] is True) == ("sound", False)


# keys and values come projected, so that whoever decodes may keep them
PROJECTED = """
class Look(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def projected(self, x):
        return self.split(self.k(x)), self.split(self.v(x))

    def forward(self, x, k, v, mask=None):
        w = self.split(self.q(x)) @ k.mT * (x.shape[-1] // self.heads) ** -0.5
        w = w if mask is None else w.masked_fill(~mask, torch.finfo(w.dtype).min)
        return self.o((w.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Attend(nn.Module):
    '''cache: a dict of the caller's, empty before the first step; None: all tokens at once'''

    def __init__(self, vocab, dim=64, heads=4, layers=2):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.own, self.cross = (nn.ModuleList(Look(dim, heads) for _ in range(layers)) for _ in range(2))

    def kept(self, name, look, x, cache):
        if cache is None:
            return look.projected(x)
        if name not in cache:
            cache[name] = look.projected(x)
        return cache[name]

    def forward(self, ids, memory, cache=None):
        n, past = ids.size(1), cache["own", 0][0].size(2) if cache else 0
        x = self.table(ids)
        seen = torch.ones(n, past + n, dtype=torch.bool).tril(past)
        for at, (own, cross) in enumerate(zip(self.own, self.cross)):
            k, v = own.projected(x)
            if cache is not None and ("own", at) in cache:
                k, v = (torch.cat(pair, 2) for pair in zip(cache["own", at], (k, v)))
            if cache is not None:
                cache["own", at] = k, v
            x = x + own(x, k, v, seen)
            x = x + cross(x, *self.kept({name}, cross, memory, cache))
        return x
"""


def test_projected_keys_and_values_are_given_in_heads():
    assert found_in(HEAD + PROJECTED.format(name='("cross", at)'), "Look").verdict == "sound"


def test_what_a_layer_keeps_for_another_is_told_before_anything_is_handed_on():
    assert found_in(HEAD + PROJECTED.format(name='("cross", at)')).verdict == "sound"
    assert [kind for kind, _ in blamed_in(HEAD + PROJECTED.format(name='"cross"'))] == ["cache-step-differs"]


def test_a_memory_of_as_many_tokens_as_are_small_is_no_cache():
    source = SEGMENTS.format(first="m - n + 1").replace(
        "context[:, -self.mem_len :].detach()", "context[:, (context**2).mean((0, 2)) < 2].detach()"
    )
    found = found_in(HEAD + source)
    assert (found.verdict, found.examined["cache"] is True) == ("sound", False)
