"""NaN outputs: a call whose output holds NaN is the one that is meant, where none gives numbers alone."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls import find


class Blind(nn.Module):
    """The first token sees nothing, not even itself."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        mask = torch.ones(T, T).triu().bool()
        att = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.out((att @ v).transpose(1, 2).reshape(B, T, C))


@pytest.mark.parametrize(
    "given",
    [{}, {"init": {"dim": 48, "heads": 4}}, {"init": {"dim": "H*d", "heads": "H"}},
     {"init": {"dim": 48, "heads": 4}, "call": {"x": [2, 5, 48]}}],
    ids=["nothing", "numbers", "symbols", "numbers of both"],
)  # fmt: skip
def test_a_call_that_gives_nan_is_found_as_it_is_said(given) -> None:
    found = find(Blind, namespace=globals(), **given)
    assert (found.plans[0].init, found.failures) == ({"dim": "H*d", "heads": "H"}, ())
    assert found.plans[0].call["x"][2] in ("D", "H*d")


def test_such_a_class_is_traced_to_its_end() -> None:
    trace = hw.trace(Blind)
    assert trace.problems == ()
    assert str(trace.steps[-1].outputs[0]) == "[B, L, D]"


def test_an_error_is_told_where_no_call_runs_at_all() -> None:
    class Broken(Blind):
        def forward(self, x):
            return super().forward(x) + self.nothing

    assert "nothing" in str(find(Broken, namespace=globals()).failures[0].error)
