"""Where dropout acts is told as examined of classes that have dropout, and not named of others."""

import pytest
from torch import nn

import headwise as hw
from tests.diagnosis.written import HEAD, found_in


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


BEFORE = """

class Reads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.first, self.pack, self.join = nn.Linear(dim, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        x = {before}
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        w = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.join({after})
"""
SUM = "(w @ v).transpose(1, 2).flatten(2)"


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        # the pre-net of Tacotron 2
        ("F.dropout(self.first(x).relu(), 0.5, training=True)", SUM, "warning"),
        ("F.dropout(self.first(x).relu(), 0.5)", SUM, "fault"),
        ("self.first(x)", f"F.dropout({SUM}, 0.5, training=True)", "fault"),
        ("self.first(x)", SUM.replace("w @", "F.dropout(w, 0.5, training=True) @"), "fault"),
    ],
)
def test_dropout_in_evaluation_may_be_meant_before_the_attention_where_it_is_written_so(before, after, severity):
    found = found_in(HEAD + BEFORE.format(before=before, after=after), "Reads")
    assert [each.severity for each in found.findings if each.kind == "dropout-in-eval"] == [severity]


GATED = """

class Gate(nn.Module):
    def __init__(self, width, rate):
        super().__init__()
        self.drop, self.make, self.norm = nn.Dropout(rate), nn.Linear(width, 2 * width), nn.LayerNorm(width)

    def forward(self, x, skip):
        return self.norm(F.glu(self.make(self.drop(x)), dim=-1) + skip)


class Reads(nn.Module):
    def __init__(self, dim, heads, rate=0.1):
        super().__init__()
        self.heads = heads
        self.pack, self.join, self.drop = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Dropout(rate)
        self.gate = Gate(dim, rate)

    def forward(self, x):
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        w = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        y = self.drop(self.join((w @ v).transpose(1, 2).flatten(2)))
        return {handed}
"""


@pytest.mark.parametrize(
    ("handed", "kinds"), [("self.gate(y, x)", []), ("self.gate(self.drop(y), x)", ["dropout-twice"])]
)
def test_a_layer_that_drops_what_it_is_handed_has_a_rate_of_its_own(handed, kinds):
    found = found_in(HEAD + GATED.format(handed=handed), "Reads")
    assert [fault.kind for fault in found.faults] == kinds
