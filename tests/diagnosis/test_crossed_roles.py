"""Crossed roles: where as many keys as queries are taken, the names of the arguments tell rows from columns."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, marked

THREE = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query, key, value):
        n, long, width = query.shape
        shape = n, long, self.num_heads, self.part
        q, k, v = (each(given).view(shape).transpose(1, 2) for each, given in
                   ((self.ask, query), (self.match, key), (self.hold, value)))
        s = {scores} / math.sqrt(self.part)  # <-
        y = s.softmax(-1) @ v
        return self.join({out})
"""
MERGED = "y.transpose(1, 2).reshape(n, long, width)"


@pytest.mark.parametrize(("scores", "is_crossed"), [("q @ k.mT", False), ("k @ q.mT", True)])
def test_scores_of_keys_by_queries_are_told_with_as_many_of_both(scores, is_crossed):
    source = HEAD + THREE.format(scores=scores, out=MERGED)
    found = blamed_in(source)
    assert (marked(source, "scores-transposed")[0] in found) is is_crossed


TWO = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, latents, context):
        q, k, v = (each(given).unflatten(-1, (self.num_heads, self.part)).transpose(1, 2) for each, given in
                   ((self.ask, context), (self.match, latents), (self.hold, latents)))
        s = q @ k.mT / math.sqrt(self.part)
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_a_context_that_asks_latents_is_no_fault():
    assert blamed_in(HEAD + TWO) == []


JOINED = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.ask, self.far, self.match, self.place, self.hold, self.join = (nn.Linear(width, width) for _ in range(6))

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, tgt, memory, pos, query_pos):
        q = torch.cat([self.cut(self.ask(tgt)), self.cut(self.far(query_pos))], -1)
        k = torch.cat([self.cut(self.match(memory)), self.cut(self.place(pos))], -1)
        y = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ self.cut(self.hold(memory))
        return self.join(y.transpose(1, 2).flatten(2))
"""


def test_queries_and_keys_that_are_each_joined_of_two_inputs_are_no_mistaken_ones():
    assert blamed_in(HEAD + JOINED) == []
