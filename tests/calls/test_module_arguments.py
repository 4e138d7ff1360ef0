"""A constructor that asks for more than numbers is given it; what no call lets pass is of the code."""

import pytest

import headwise as hw
from headwise.calls.code_errors import is_of_code
from headwise.calls.finder import find
from headwise.calls.signature import whole
from tests.calls.styles import asking


def best(target, **given):
    return find(target, namespace=vars(asking), **given).plans[0]


def equals(plan):
    return {each.name: each.equals for each in plan.symbols}


def test_what_is_called_is_a_class_of_the_file_or_a_projection():
    plan = best(asking.AsksForInner)
    assert plan.init["engine"] == {"_expr": "Inner(dropout=0.0)"}
    assert plan.init["to_q"] == {"_expr": "torch.nn.Linear(D, H*d)"}
    assert plan.setting == "cross"


def test_one_of_two_flags_is_set_and_what_is_refused_in_a_config_is_turned_off():
    plan = best(asking.EitherOr)
    assert plan.init["to_self"] is True
    assert "to_other" not in plan.init
    assert plan.init["args"]["_expr"] in ("SimpleNamespace(sharded=False)", "dict(sharded=False)")


def test_a_width_that_is_none_is_given_and_is_that_of_pairs():
    plan = best(asking.PairBias)
    assert (plan.init["c_pair"], plan.init["heads"]) == ("c_pair", "H")
    assert plan.call["pair"] == ["B", "L", "L", "c_pair"]


def test_queries_keys_and_values_in_one_tensor_are_three_times_as_wide():
    assert best(asking.Packed).call["qkv"] == ["B", "3*H*d", "L"]


def test_a_table_of_pairs_is_looked_up_with_whole_numbers_for_each_pair():
    plan = best(asking.Looked)
    assert plan.call["rpi"] == {"_ids": ["L", "L"], "below": "2"}
    assert equals(plan)["L"] == "window_size_h*window_size_w"


def test_a_window_that_is_read_as_three_sizes_is_given_three():
    plan = best(asking.Volume)
    sides = plan.init["window_size"]["_tuple"]
    assert len(set(sides)) == 3
    assert equals(plan)["L"] == "*".join(sides)


def test_only_switches_and_rates_that_may_not_be_none_are_turned_off():
    assert best(asking.RequiresBias).init["qkv_bias"] is False
    assert best(asking.RequiresRate).init["attn_drop"] == 0.0


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (asking.Requires, "scale"),
        (asking.RequiresNonzero, "scale"),
        (asking.RequiresWindow, "window"),
        (asking.RequiresWeightedBias, "qkv_bias"),
    ],
)
def test_a_value_that_nobody_gave_is_not_judged(kind, name):
    diagnosis = hw.doctor(kind)
    assert (diagnosis.verdict, diagnosis.findings) == ("not examined", ())
    assert name in diagnosis.reason


def test_where_no_free_size_fits_those_by_default_are_tried():
    plan = best(asking.OwnSizes)
    assert {name: plan.sizes(1)[name] for name in "DHd"} == {"D": 144, "H": 4, "d": 36}
    assert len({plan.sizes(probe)["L"] for probe in range(4)}) > 1


def test_a_module_that_stands_by_default_is_another_one_in_each_that_is_built():
    plan = best(asking.OwnSizes)
    first, again = (plan.build(plan.sizes(0)).timetable.places for _ in range(2))
    first.zero_()
    assert again.abs().sum() > 0


def test_an_example_in_the_words_of_a_class_shows_how_it_is_called():
    plan = best(asking.Shown)
    assert plan.init["b"] == {"_tuple": [3, 7]}
    assert plan.call["c"][0] == "B"
    assert plan.call["c"][-1] == 21


def test_names_in_chinese_say_what_they_are_for():
    plan = best(asking.中文注意力)
    assert plan.init == {"输入维度": "H*d", "头数": "H"}
    assert (plan.setting, plan.mask, plan.call["键"]) == ("cross", "掩码", ["B", "S", "D"])


def test_a_partial_of_a_class_is_the_class_with_what_it_was_given():
    target, init = whole(asking.四头, {"输入维度": 24})
    assert (target, init) == (asking.中文注意力, {"头数": 4, "输入维度": 24})


@pytest.mark.parametrize("target", [asking.OtherCount, asking.WholeWidths])
def test_what_fails_at_one_place_for_a_reason_of_its_own_is_of_the_code(target):
    found = find(target, namespace=vars(asking))
    assert found.plans == ()
    assert is_of_code(found.failures[0].error, found.failures[0].plan)
