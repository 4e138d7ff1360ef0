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


@pytest.mark.parametrize("name", ["new_memory", "memory_after"])
def test_a_state_of_as_many_tokens_whatever_came_is_no_cache(name):
    found = found_in(HEAD + STATES.replace("new_memory", name))
    assert (found.verdict, found.examined["cache"] is True) == ("sound", False)
