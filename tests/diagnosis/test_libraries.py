"""What libraries of models do: optional imports, names bound in one branch, lengths beside an open number of heads."""

from tests.diagnosis.written import found_in

HEAD = """
import torch
import torch.nn as nn

"""
BODY = """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, context=None, mask=None):
        seen = x if context is None else context
        shape = (*x.shape[:-1], -1, x.shape[-1] // self.heads)
        own = (*seen.shape[:-1], -1, x.shape[-1] // self.heads)
        q = self.q(x).view(shape).transpose(1, 2)
        k, v = self.k(seen).view(own).transpose(1, 2), self.v(seen).view(own).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -1e4)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def told(source):
    """The diagnosis of a source's class, and the source's lines."""
    return found_in(HEAD + source), (HEAD + source).splitlines()


def changed(old, new):
    assert old in BODY
    return BODY.replace(old, new)


def test_keys_of_the_queries_length_beside_an_open_number_of_heads_are_all_that_is_wrong():
    found, lines = told(changed(" k, v = self.k(seen).view(own)", " k, v = self.k(seen).view(shape)"))
    assert [each.kind for each in found.faults] == ["key-uses-query-length"]
    assert "view(shape)" in lines[found.faults[0].line - 1]
    assert found.faults[0].proved


def test_a_name_that_one_branch_binds_is_told_by_its_name():
    bound = "if self.training:\n            seen = x"
    found, lines = told(changed("seen = x if context is None else context", bound))
    assert [each.kind for each in found.faults] == ["undefined-name"]
    assert "seen" in found.faults[0].what
    assert "seen.shape" in lines[found.faults[0].line - 1]


def test_a_name_that_a_missing_library_would_bring_is_no_fault():
    source = "try:\n    from not_here import scale\nexcept ImportError:\n    pass\n"
    found, _ = told(source + changed("/ q.shape[-1] ** 0.5", "* scale(q)"))
    assert (found.verdict, found.faults) == ("not examined", ())
    assert "scale" in found.reason
