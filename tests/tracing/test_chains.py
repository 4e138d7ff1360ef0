"""Chains: which steps are joined, and how they are said."""

import pytest

from headwise.tracing.chains import chains
from tests.tracing.made import shape, step


def said(source, *steps):
    return [f"{each.text()} {each.times}".strip() for each in chains([step(source, *one) for one in steps])]


def test_steps_of_one_expression_are_one_chain():
    source = "self.q(x).view(B, L, H, d).transpose(1, 2)"
    assert said(
        source,
        ("self.q(x)", "linear", "B L D", "B L H*d"),
        ("self.q(x).view(B, L, H, d)", "view", "B L H*d", "B L H d"),
        (source, "transpose", "B L H d", "B H L d"),
    ) == ["[B, L, D] → linear → [B, L, H*d] → view → [B, L, H, d] → transpose → [B, H, L, d]"]


def test_steps_side_by_side_are_chains_of_their_own_though_their_shapes_fit():
    source = "f(x), g(y)"
    assert said(source, ("f(x)", "relu", "B L D", "B L D"), ("g(y)", "tanh", "B L D", "B L D")) == [
        "[B, L, D] → relu → [B, L, D]",
        "[B, L, D] → tanh → [B, L, D]",
    ]


def test_what_stands_behind_another_is_no_part_of_it_whichever_runs_first():
    source = "f(x), g(y)"
    assert len(said(source, ("g(y)", "tanh", "B L D", "B L D"), ("f(x)", "relu", "B L D", "B L D"))) == 2


@pytest.mark.parametrize(
    "source",
    [
        "q @ k.transpose(-2, -1)",
        "torch.matmul(q, k.transpose(-2, -1))",
        "torch.matmul(\n    q,\n    k.transpose(-2, -1),\n)",
    ],
)
def test_the_right_hand_of_a_product_is_a_chain_of_its_own(source):
    op = "@" if "@" in source else "matmul"
    assert said(
        source,
        ("k.transpose(-2, -1)", "transpose", "B H S d", "B H d S"),
        (source, op, "B H L d;B H d S", "B H L S"),
    ) == ["[B, H, S, d] → transpose → [B, H, d, S]", "[B, H, L, d] @ [B, H, d, S] → [B, H, L, S]"]


def test_the_left_hand_of_a_product_leads_into_it_though_both_have_one_shape():
    source = "f(q) @ g(k)"
    assert said(
        source,
        ("f(q)", "relu", "B L L", "B L L"),
        ("g(k)", "tanh", "B L L", "B L L"),
        (source, "@", "B L L;B L L", "B L L"),
    ) == ["[B, L, L] → relu → [B, L, L] @ [B, L, L] → [B, L, L]", "[B, L, L] → tanh → [B, L, L]"]


def test_an_argument_of_a_method_does_not_lead_the_chain():
    source = "scores.masked_fill(mask == 0, -1e9)"
    assert said(
        source,
        ("mask == 0", "==", "B H L S", "B H L S"),
        (source, "masked_fill", "B H L S;B H L S", "B H L S"),
    ) == [
        "[B, H, L, S] → == → [B, H, L, S]",
        "[B, H, L, S] → masked_fill(·, [B, H, L, S]) → [B, H, L, S]",
    ]


def test_the_first_argument_of_a_function_leads_the_chain():
    source = "F.scaled_dot_product_attention(q.mT, k, v)"
    assert said(
        source,
        ("q.mT", "mT", "B H d L", "B H L d"),
        (source, "scaled_dot_product_attention", "B H L d;B H S d;B H S d", "B H L d"),
    ) == [
        "[B, H, d, L] → mT → [B, H, L, d] → scaled_dot_product_attention(·, [B, H, S, d], [B, H, S, d]) → [B, H, L, d]"
    ]


def test_results_that_are_alike_are_counted_and_others_are_listed():
    assert said("x.chunk(3)", ("x.chunk(3)", "chunk", "B L 3*D", "B L D;B L D;B L D")) == [
        "[B, L, 3*D] → chunk → 3 × [B, L, D]"
    ]
    assert said("x.max(1)", ("x.max(1)", "max", "B L", "B;1")) == ["[B, L] → max → [B], [1]"]


def test_what_makes_a_tensor_of_none_begins_with_its_name_and_what_ends_one_has_no_result():
    assert said("torch.ones(L)", ("torch.ones(L)", "ones", "", "L")) == ["ones → [L]"]
    assert said("x.item()", ("x.item()", "item", "1", "")) == ["[1] → item"]


def test_many_tensors_of_one_shape_are_not_counted_since_another_run_has_another_number():
    source = "torch.cat(heads)"
    (found,) = said(source, (source, "cat", "B L d;B L d;B L d;B L d;B L d", "B L H*d"))
    assert found == "[B, L, d] → cat(·, …, [B, L, d]) → [B, L, H*d]"


def test_a_loop_is_told_once_with_how_often_it_ran():
    one = step("f(x)", "f(x)", "linear", "B L D", "B L d", times="H")
    assert [each.times for each in chains([one])] == ["× H"]
    assert said("f(x), f(x)", *[("f(x)", "linear", "B L D", "B L d")] * 2) == ["[B, L, D] → linear → [B, L, d] ×2"]


def test_where_columns_are_not_known_steps_of_one_line_are_joined_by_their_shapes():
    source = "x.view(1).mT"
    unknown = []
    for one in (
        step(source, "x.view(1)", "view", "B L D", "B L H d"),
        step(source, source, "mT", "B L H d", "B L d H"),
    ):
        where = type(one.place)(one.place.file, one.place.line, source=source)
        unknown.append(type(one)(one.op, where, one.inputs, one.outputs))
    assert [each.text() for each in chains(unknown)] == ["[B, L, D] → view → [B, L, H, d] → mT → [B, L, d, H]"]


def test_only_the_step_that_mixes_axes_up_is_told_as_such():
    source = "x.view(1).tanh()"
    first = step(source, "x.view(1)", "view", "B H L d", "B L (H_L)")
    then = step(source, source, "tanh", "B L (H_L)", "B L (H_L)")
    assert chains([first, then])[0].scrambled == ("(H L)",)
    assert chains([then])[0].scrambled == ()
    assert shape("B (H_L)").is_scrambled
