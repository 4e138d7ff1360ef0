"""Where dropout acts is told as examined of classes that have dropout, and not named of others."""

import pytest
from torch import nn

import headwise as hw


class Plain(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def drop_out(self, weights):
        return weights

    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (each(x).view(B, L, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v))
        weights = self.drop_out((q @ k.mT / (D // self.heads) ** 0.5).softmax(-1))
        return self.o((weights @ v).transpose(1, 2).reshape(B, L, D))


class Dropping(Plain):
    def drop_out(self, weights):
        return nn.functional.dropout(weights, 0.1, self.training)


class Idle(Plain):
    """A module of dropout that is never called."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.drop = nn.Dropout(0.1)


@pytest.mark.parametrize(("target", "has_any"), [(Plain, False), (Dropping, True), (Idle, False)])
def test_dropout_is_examined_where_there_is_some(target, has_any):
    diagnosis = hw.doctor(target, init={"dim": "H*d", "heads": "H"}, call={"x": ["B", "L", "H*d"]})
    assert (diagnosis.verdict, "dropout" in diagnosis.examined) == ("sound", has_any)
