"""A table accounts for every key, reads both ways, and fills a layer wholly or not at all."""

import re

import pytest
import torch
from torch import nn

from headwise.compat.conversion.weight_tables import (
    Account,
    Ignored,
    WeightLayout,
    WeightRow,
    WeightStep,
    WeightTable,
    fill,
)
from headwise.errors import ConversionError
from headwise.layer.sizes import make_widths

TABLE = WeightTable(
    "demo",
    rows=(WeightRow("query.weight", "q_proj.weight"), WeightRow("query.bias", "q_proj.bias")),
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


HALVES = WeightStep("cut in two", lambda parts, _: parts[0].chunk(2), lambda parts, _: (torch.cat(parts),))
MORE = WeightStep("add one", lambda parts, _: (parts[0] + 1,), lambda parts, _: (parts[0] - 1,), shifts=True)
STEPPED = WeightTable(
    "stepped",
    rows=(
        WeightRow("pair.weight", ("k_proj.weight", "v_proj.weight"), (MORE, HALVES)),
        WeightRow("pair.bias", ("k_proj.bias", "v_proj.bias"), (HALVES,), group="bias"),
        WeightRow("more.bias", "out_proj.bias", group="bias"),
    ),
    refused=(Ignored("memory", "the layer has none"),),
)
SIX = {"num_kv_heads": None, "head_dim": None, "v_head_dim": None, "kdim": None, "vdim": None, "out_dim": None}
LAYOUT = WeightLayout(make_widths(6, 3, **SIX))


def stepped() -> dict[str, torch.Tensor]:
    return {"pair.weight": torch.randn(4, 3), "pair.bias": torch.randn(4), "more.bias": torch.randn(5)}


def test_steps_are_taken_in_order_and_undone_in_reverse():
    weights = stepped()
    ours = STEPPED.to_headwise(weights, LAYOUT)
    assert torch.equal(ours["v_proj.weight"], weights["pair.weight"][2:] + 1)
    back = STEPPED.from_headwise(ours, LAYOUT)
    assert back.keys() == weights.keys()
    assert all(torch.allclose(back[name], weights[name]) for name in weights)


def test_gradients_go_the_same_way_but_for_what_is_added():
    gradients = stepped()
    ours = STEPPED.to_headwise(gradients, LAYOUT, gradients=True)
    assert torch.equal(ours["v_proj.weight"], gradients["pair.weight"][2:])


def test_a_group_is_there_wholly_or_not_at_all():
    weights = stepped()
    alone = {"pair.weight": weights["pair.weight"]}
    assert STEPPED.to_headwise(alone, LAYOUT).keys() == {"k_proj.weight", "v_proj.weight"}
    assert STEPPED.from_headwise(STEPPED.to_headwise(alone, LAYOUT), LAYOUT).keys() == alone.keys()
    with pytest.raises(ConversionError, match=r"1 are missing \(more\.bias\) and 0 are unexpected \(none\)"):
        STEPPED.to_headwise({**alone, "pair.bias": weights["pair.bias"]}, LAYOUT)


def test_a_weight_that_means_what_the_layer_cannot_do_is_refused_with_the_reason():
    with pytest.raises(ConversionError, match=r"'stepped' has memory \(1, 2\), but the layer has none"):
        STEPPED.to_headwise({**stepped(), "memory": torch.zeros(1, 2)}, LAYOUT)


def test_a_step_that_does_not_fit_is_refused_by_the_row_and_its_shape():
    uneven = WeightStep("reshape", lambda parts, _: (parts[0].reshape(5, 3),), lambda parts, _: parts)
    table = WeightTable("uneven", rows=(WeightRow("weight", "q_proj.weight", (uneven,)),))
    with pytest.raises(ConversionError, match=r"weight of 'uneven' must have the shape .* came as \(4, 3\) where"):
        table.to_headwise({"weight": torch.zeros(4, 3)}, LAYOUT)


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
