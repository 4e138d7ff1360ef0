"""What a person says with --init and --call stands, its numbers are sizes of a plan, and what cannot be is refused."""

import pytest
import torch
from torch import nn

from headwise.calls.finder import find
from headwise.errors import InputError
from tests.calls.styles import language, odd, textbook, vision

HEADS = {"embed_size": 48, "heads": 3}


def found(target, file, **given):
    return find(target, namespace=vars(file), **given)


def test_numbers_of_heads_and_widths_vary_and_are_kept_as_the_real_sizes():
    plan = found(textbook.AladdinPersson, textbook, init=HEADS).plans[0]
    assert plan.init == {"embed_size": "H*d", "heads": "H"}
    assert plan.real == {"H": 3, "d": 16, "D": 48}


def test_numbers_of_shapes_are_the_real_sizes_too():
    call = {"query": [2, 10, 48], "keys": [2, 12, 48], "values": [2, 12, 48]}
    plan = found(textbook.AladdinPersson, textbook, init=HEADS, call=call).plans[0]
    assert plan.call["keys"] == ["B", "S", "D"]
    assert plan.real == {"B": 2, "L": 10, "S": 12, "H": 3, "d": 16, "D": 48}


def test_numbers_that_do_not_fit_fail_as_the_person_gave_them():
    result = found(textbook.AladdinPersson, textbook, init={"embed_size": 512, "heads": 7})
    assert result.plans == ()
    assert result.failures[0].plan.init == {"embed_size": 512, "heads": 7}
    assert "divisible by heads" in str(result.failures[0].error)
    assert "embed_size" in result.failures[0].span.source


def test_defaults_of_a_constructor_are_the_real_sizes():
    assert found(vision.LucidAttention, vision).plans[0].real == {"H": 8, "d": 64}


def test_plans_can_be_given_back():
    for target, file in [
        (textbook.D2lMultiHead, textbook),
        (textbook.AladdinPersson, textbook),
        (language.CausalSelfAttention, language),
        (vision.SwinWindow, vision),
        (vision.LinearConv, vision),
        (odd.attention, odd),
    ]:
        first = found(target, file).plans[0]
        init = first.init if isinstance(target, type) else None
        again = found(target, file, init=init, call=first.call).plans[0]
        assert (again.init, again.call, again.mask) == (first.init, first.call, first.mask)


def test_a_config_may_be_written_with_symbols():
    init = {"config": {"_expr": "GPTConfig(n_embd=H*d, n_head=H, block_size=99)"}}
    plan = found(language.CausalSelfAttention, language, init=init).plans[0]
    assert plan.call["x"] == ["B", "L", "D"]
    assert {each.name: each.equals for each in plan.symbols}["D"] == "H*d"


def test_an_argument_that_is_given_stands():
    plan = found(odd.attention, odd, call={"query": ["B", "L", "D"]}).plans[0]
    assert plan.call["query"] == ["B", "L", "D"]
    assert plan.call["key"] == ["B", "S", "D"]


@pytest.mark.parametrize("cross", [True, False])
def test_only_the_setting_that_is_asked_for_is_found(cross):
    plans = found(odd.attention, odd, cross=cross).plans
    assert {each.setting for each in plans} == {"cross" if cross else "self"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"init": {"embd_size": 8}}, "--init names embd_size, which is no parameter: choose among embed_size, heads"),
        ({"init": [8]}, r"--init must be an object of names and values, but \[8\] came"),
        ({"init": {"heads": {"expr": "3"}}}, "--init gives heads the object {'expr': '3'}"),
        ({"call": {"quary": ["B"]}}, "--call names quary, .* choose among values, keys, query, mask"),
        ({"call": {"query": ["B", 1.5]}}, r"--call gives query \['B', 1.5\]: a shape must be a list of symbols"),
        ({"call": {"_causal": True}}, "--call names _causal, which is no parameter: choose among values, keys"),
        ({"call": {"_layout": 3}}, "_layout in --call must be text, but 3 came"),
        (
            {"call": {"_mask": {"argument": "mask", "means": "keep", "shape": ["B"]}}},
            "means .one of attend, blocked, additive, lengths.*'keep'",
        ),
        ({"call": {"query": ["B", "L", "E*3"]}}, "--call speaks of E, which is bound nowhere"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        found(textbook.AladdinPersson, textbook, **given)


def test_a_target_that_takes_nothing_is_refused():
    with pytest.raises(InputError, match="No call could be thought of for nothing"):
        find(lambda_named_nothing(), namespace={})


def lambda_named_nothing():
    def nothing():
        return None

    return nothing


def test_a_module_at_hand_keeps_its_sizes_and_is_left_as_it_was():
    module = textbook.AladdinPersson(48, 3).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    plan = found(module, textbook).plans[0]
    assert plan.target is module
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert {each.name: each.fixed for each in plan.symbols if each.fixed} == {"H": 3, "d": 16, "D": 48}
    assert plan.call["query"] == ["B", "L", "D"]


def test_a_module_at_hand_whose_windows_fix_the_length_is_given_that_length():
    plan = found(vision.SwinWindow(24, (3, 4), 2), vision).plans[0]
    assert {each.name: each.fixed for each in plan.symbols}["L"] == 12


def test_layers_of_torch_are_found_with_the_meaning_of_their_masks():
    plan = find(nn.MultiheadAttention, namespace={}).plans[0]
    assert plan.call["query"] == ["L", "B", "D"]
    assert plan.call["_mask"] == {"argument": "attn_mask", "means": "blocked", "shape": ["L", "S"]}
    plan = find(nn.MultiheadAttention(24, 4, batch_first=True), namespace={}).plans[0]
    assert plan.call["query"] == ["B", "L", "D"]
