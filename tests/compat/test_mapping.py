"""A table accounts for every key, reads both ways, and fills a layer wholly or not at all."""

import re

import pytest
import torch
from torch import nn

from headwise.compat.mapping import Account, Ignored, Row, Table, fill
from headwise.errors import ConversionError

TABLE = Table(
    "demo",
    rows=(Row("query.weight", "q_proj.weight"), Row("query.bias", "q_proj.bias")),
    ignored=(Ignored("norm.weight", "not attention"),),
)


def theirs() -> dict[str, torch.Tensor]:
    return {"query.weight": torch.randn(5, 3), "query.bias": torch.randn(5), "norm.weight": torch.randn(7)}


def test_there_and_back_gives_the_same_tensors():
    weights = theirs()
    back = TABLE.from_headwise(TABLE.to_headwise(weights))
    assert back.keys() == weights.keys() - {"norm.weight"}
    assert all(back[name] is weights[name] for name in back)


def test_every_key_is_accounted_for():
    weights = {**theirs(), "extra": torch.zeros(2)}
    del weights["query.bias"]
    assert TABLE.account(weights) == Account(
        used=(TABLE.rows[0],), ignored=TABLE.ignored, missing=("query.bias",), unexpected=("extra",)
    )


def test_missing_and_unexpected_keys_are_refused_by_name_and_shape():
    weights = {**theirs(), "extra": torch.zeros(2, 9)}
    del weights["query.bias"]
    with pytest.raises(ConversionError, match=r"1 are missing \(query\.bias\) and 1 are unexpected \(extra \(2, 9\)\)"):
        TABLE.to_headwise(weights)


def test_a_key_of_ours_that_is_missing_is_refused_by_our_name():
    with pytest.raises(ConversionError, match=r"missing \(q_proj\.bias\) and 1 are unexpected \(query\.bias \(4,\)\)"):
        TABLE.from_headwise({"q_proj.weight": torch.zeros(5, 3), "query.bias": torch.zeros(4)})


def test_an_ignored_key_need_not_be_there():
    weights = theirs()
    del weights["norm.weight"]
    assert set(TABLE.to_headwise(weights)) == {"q_proj.weight", "q_proj.bias"}


def test_a_layer_is_filled_with_every_weight():
    layer = nn.ModuleDict({"q_proj": nn.Linear(3, 5)})
    weights = TABLE.to_headwise(theirs())
    fill(layer, weights)
    assert all(torch.equal(layer.state_dict()[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"q_proj.bias": torch.zeros(4)}, "q_proj.bias (4,), the layer has (5,)"),
        ({"k_proj.bias": torch.zeros(4)}, "k_proj.bias (4,), the layer has no such weight"),
        ({"q_proj.weight": None}, "q_proj.weight is missing, the layer has (5, 3)"),
    ],
    ids=["shape", "extra", "missing"],
)
def test_a_layer_is_not_filled_in_part(change, wrong):
    layer = nn.ModuleDict({"q_proj": nn.Linear(3, 5)})
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    weights = {**TABLE.to_headwise(theirs()), **change}
    with pytest.raises(ConversionError, match=re.escape(wrong)):
        fill(layer, {name: tensor for name, tensor in weights.items() if tensor is not None})
    assert all(torch.equal(layer.state_dict()[name], before[name]) for name in before)
