"""Queries and keys of unit length: along their features, wherever these stand."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in

COSINE = """
q, k = NORMED
w = (q @ k.mT * self.heat).softmax(-1)
y = w @ v
"""
HEAT = "self.heat = nn.Parameter(torch.tensor(3.0))"


def source_of(normed):
    return HEAD + attend(made=HEAT, body=COSINE.replace("NORMED", normed))


@pytest.mark.parametrize(
    ("normed", "kinds"),
    [
        ("F.normalize(q, dim=-1), F.normalize(k, dim=-1)", []),
        ("F.normalize(q), F.normalize(k)", ["norm-over-heads"]),
        ("F.normalize(q, dim=2), F.normalize(k, dim=2)", ["norm-over-tokens"]),
        # shares of a key, and no length
        ("q.exp(), F.normalize(k.exp(), p=1, dim=2)", []),
        # features before tokens
        ("F.normalize(q.mT, dim=2).mT, F.normalize(k.mT, dim=2).mT", []),
        ("F.normalize(q, dim=(-2, -1)), F.normalize(k, dim=(-2, -1))", []),
    ],
    ids=["features", "heads", "tokens", "shares", "features first", "two axes"],
)
def test_a_norm_over_another_axis_than_the_features_is_a_fault(normed, kinds):
    assert [kind for kind, _ in blamed_in(source_of(normed)) if kind.startswith("norm-")] == kinds
