"""Every axis of every step is called what it is, by where it comes from and by its size in all runs."""

import functools
import importlib

import pytest

import headwise as hw
from headwise.calls import Named, Plan
from headwise.tracing.probe_runs import probed
from tests.tracing import code

B, L, S = Named("B", "batch"), Named("L", "queries"), Named("S", "keys")
H, d, D = Named("H", "heads"), Named("d", "head_width"), Named("D", "width", equals="H*d")


def plan(target, init, call, *symbols):
    return Plan(target, "cross" if S in symbols else "self", init, call, symbols)


def listed(found):
    """Each step as "op shape": its first output, with how often it ran."""
    return [
        f"{step.op} {step.outputs[0] if step.outputs else '-'}{f' x{step.times}' if step.times else ''}"
        for step in found.steps
    ]


CROSS = (B, L, S, H, d, D)
TWO = {"query": ["B", "L", "D"], "key": ["B", "S", "D"]}
PLAIN = {"d_model": "D", "h": "H"}


def test_cross_attention_keeps_keys_and_queries_apart():
    assert listed(probed(plan(code.Plain, PLAIN, TWO, *CROSS))) == [
        "linear [B, L, H*d]", "view [B, L, H, d]", "transpose [B, H, L, d]",
        "linear [B, S, H*d]", "view [B, S, H, d]", "transpose [B, H, S, d]",
        "linear [B, S, H*d]", "view [B, S, H, d]", "transpose [B, H, S, d]",
        "transpose [B, H, d, S]", "@ [B, H, L, S]", "/ [B, H, L, S]", "softmax [B, H, L, S]",
        "@ [B, H, L, d]", "transpose [B, L, H, d]", "flatten [B, L, H*d]", "linear [B, L, D]",
    ]  # fmt: skip


def test_a_helper_is_told_apart_by_where_it_was_called_from():
    found = probed(plan(code.Plain, PLAIN, TWO, *CROSS))
    views = [step for step in found.steps if step.op == "view"]
    assert len({step.place for step in views}) == 1
    assert [step.chain[-1].source for step in views] == [
        "self.split(self.q(query))", "self.split(self.k(key))", "self.split(self.v(key))",
    ]  # fmt: skip


def test_what_fails_with_longer_keys_is_said_in_symbols_and_at_its_place():
    found = probed(plan(code.QueryLength, PLAIN, TWO, *CROSS))
    (problem,) = found.problems
    assert (problem.op, problem.setting) == ("view", "cross")
    assert problem.place.source == "self.k(key).view(B, L, self.h, self.d_k)"
    assert problem.reason == "view on [B, S, D] asked for [B, L, H, d]: L is the query length, S was needed"
    assert problem.error.startswith("RuntimeError: shape '[")
    assert listed(found)[-1] == "linear [B, S, D]"


def test_keys_keep_their_name_where_they_are_made_as_long_as_queries():
    found = probed(plan(code.QueryLength, PLAIN, TWO, *CROSS), equal={"S": "L"})
    assert not found.problems
    assert listed(found)[-3:] == ["mT [B, H, d, S]", "@ [B, H, L, S]", "softmax [B, H, L, S]"]


def test_a_merge_without_the_transpose_is_scrambled_although_its_sizes_are_legal():
    found = probed(plan(code.MergedWithoutTranspose, PLAIN, TWO, *CROSS))
    merge = next(step for step in found.steps if step.op == "reshape")
    assert str(merge.outputs[0]) == "[B, (H L), (H L)*d]"
    assert [axis.scrambled for axis in merge.outputs[0].axes] == [False, True, True]
    assert [step.op for step in found.steps if any(shape.is_scrambled for shape in step.outputs)] == [
        "reshape",
        "linear",
    ]


def test_packed_projections_are_three_widths():
    assert listed(probed(plan(code.Packed, {"width": "D", "heads": "H"}, {"x": ["B", "L", "D"]}, B, L, H, d, D))) == [
        "linear [B, L, 3*D]", "reshape [B, L, 3, H, d]", "permute [3, B, H, L, d]", "unbind [B, H, L, d]",
        "einsum [B, H, L, L]", "ones [L, L]", "triu [L, L]", "bool [L, L]", "masked_fill [B, H, L, L]",
        "softmax [B, H, L, L]", "einsum [B, L, H, d]", "reshape [B, L, H*d]", "linear [B, L, D]",
    ]  # fmt: skip


def test_a_loop_over_heads_is_one_step_as_often_as_there_are_heads():
    found = probed(plan(code.PerHead, {"width": "D", "heads": "H"}, {"x": ["B", "L", "D"]}, B, L, H, d, D))
    assert listed(found) == ["linear [B, L, d] xH", "cat [B, L, H*d]"]


W = Named("w", "parameter")
EVEN = Named("d", "head_width", even=True)


@pytest.mark.parametrize(
    ("target", "call", "symbols", "wanted"),
    [
        (code.rotated, {"x": ["B", "H", "L", "d"]}, (B, H, L, EVEN),
         "chunk [B, H, L, d//2]|- [B, H, L, d//2]|cat [B, H, L, d]"),
        (code.interleaved, {"x": ["B", "L", "d"]}, (B, L, EVEN),
         "index [B, L, d//2]|- [B, L, d//2]|index [B, L, d//2]|stack [B, L, d//2, 2]|flatten [B, L, d]"),
        (code.relative, {"q": ["B", "L"], "table": ["2*L-1", "H"]}, (B, L, H),
         "arange [L]|index [L, 1]|index [1, L]|- [L, L]|+ [L, L]|- [L, L]|index [L, L, H]"),
        (code.windows, {"x": ["B", "L", "D"], "w": "w"},
         (B, Named("n", "parameter"), W, Named("D", "width"), Named("L", "queries", equals="n*w")),
         "view [B, n, w, D]|flatten [B*n, w, D]|mT [B*n, D, w]|@ [B*n, w, w]"),
        (code.grouped, {"k": ["B", "Hkv", "S", "d"], "g": "g"},
         (B, S, Named("Hkv", "key_heads"), Named("g", "groups"), d, Named("H", "heads", equals="g*Hkv")),
         "repeat_interleave [B, H, S, d]|index [B, Hkv, 1, S, d]|expand [B, Hkv, g, S, d]|flatten [B, H, S, d]|"
         "+ [B, H, S, d]"),
        (code.chosen, {"x": ["B", "L"]}, (B, L), "> [B, L]|index [?]"),
    ],
)  # fmt: skip
def test_what_a_function_makes_is_called_what_it_is(target, call, symbols, wanted):
    assert listed(probed(plan(target, {}, call, *symbols))) == wanted.split("|")


def test_what_torch_really_ran_answers_whether_tokens_are_taken_apart():
    found = probed(plan(code.Packed, {"width": "D", "heads": "H"}, {"x": ["B", "L", "D"]}, B, L, H, d, D), kernels=True)
    assert found.steps[0].kernels == (
        "view [B, L, D] → [B*L, D]", "t [3*D, D] → [D, 3*D]", "addmm [3*D], [B*L, D], [D, 3*D] → [B*L, 3*D]",
        "view [B*L, 3*D] → [B, L, 3*D]",
    )  # fmt: skip


def test_the_sizes_that_are_told_are_the_persons_own_and_name_nothing():
    given = {"d_model": 16, "h": 4}
    found = hw.trace(code.Plain, init=given, call={"query": [2, 5, 16], "key": [2, 4, 16]})
    assert {each.name: each.size for each in found.symbols} == {"B": 2, "L": 5, "S": 4, "H": 4, "d": 4, "D": 16}
    scores = next(step for step in found.steps if step.op == "@").outputs[0]
    assert (str(scores), scores.said(real=True)) == ("[B, H, L, S]", "[2, 4, 5, 4]")


def test_two_files_of_one_name_are_told_apart(tmp_path, monkeypatch):
    parent = "from torch import nn\nclass Parent(nn.Module):\n    def merged(self, x):\n        return x.flatten(1)\n"
    child = (
        "from one.model import Parent\nclass Child(Parent):\n    def forward(self, x):\n        return self.merged(x)\n"
    )
    for folder, text in (("one", parent), ("two", child)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = hw.trace(importlib.import_module("two.model").Child, call={"x": ["B", "L", "D"]})
    assert dict(found.sources) == {"one/model.py": parent, "two/model.py": child}
    (step,) = found.steps
    assert (step.place.file, step.chain[0].file, str(step.outputs[0])) == ("one/model.py", "two/model.py", "[B, L*D]")


def test_a_partial_of_a_class_is_traced_as_its_class():
    made = hw.trace(functools.partial(code.Plain, d_model=12, h=3), call=TWO)
    whole = hw.trace(code.Plain, init={"d_model": 12, "h": 3}, call=TWO)
    assert (made.target, list(made.sources)) == ("Plain", ["code.py"])
    assert (made.target, made.sources, made.steps) == (whole.target, whole.sources, whole.steps)
