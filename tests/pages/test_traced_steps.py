"""The steps of a trace in the form that docs/steps.md gives: own lines, both languages, every name there."""

import math

import pytest

from headwise.pages.traced_steps import KINDS, LONGEST, traced_steps
from headwise.tracing import Symbol
from headwise.tracing.steps import Problem
from headwise.wording import LANGUAGES
from tests.tracing.made import PLAIN, SYMBOLS, plain, trace


def tensor(axes, sizes, **more):
    return {"axes": axes.split(";"), "sizes": sizes, "values": None, "heads": None, **more}


def step(line, column, end_column, *, end_line=None, file="code.py", **more):
    made = {"op": "view", "kind": "split", "file": file, "line": line, "column": column, "inputs": ["q"]}
    return {**made, "end_line": end_line or line, "end_column": end_column, "outputs": ["heads"], **more}


TENSORS = {
    "q": tensor("B;L;H*d", [1, 3, 4]),
    "heads": tensor("B;(H L);L;S;7", [1, 2, 3, 4, 7]),
    "other": tensor("d", [2]),
}


def shown(*steps, made=None, **more):
    worked = {"sizes": {"B": 1, "H": 2}, "tensors": TENSORS, "steps": list(steps), "more": 0, "error": None, **more}
    return traced_steps(made or plain(), worked)


def marked(told, at=0):
    """The text that a step marks in the lines that are shown."""
    one = told["steps"][at]
    line = told["source"]["lines"][one["line"] - told["source"]["first"]]
    return line[slice(*one["span"])] if one["span"] else None


def test_functions_that_lie_near_one_another_keep_the_numbers_of_their_lines():
    told = shown(step(7, 12, 35), step(3, 12, 44))
    lines = PLAIN.split("\n")
    assert (told["source"]["name"], told["source"]["first"]) == ("code.py", 2)
    assert told["source"]["lines"] == lines[1:9]
    assert [one["line"] for one in told["steps"]] == [7, 3]
    assert marked(told) == "self.split(self.to_q(q)"
    assert marked(told, 1) == lines[2][12:44]


def test_functions_far_apart_stand_one_after_another_under_their_places():
    gap = "\n" * LONGEST
    source = f"def a(x):\n    return x + 1\n{gap}\ndef b(x):\n    return x * 2\n"
    far = LONGEST + 5
    told = shown(step(2, 11, 16), step(far, 11, 16), made=trace(source))
    assert told["source"]["first"] == 1
    assert told["source"]["lines"] == [
        "# code.py, 1–2", "def a(x):", "    return x + 1", "", f"# code.py, {far - 1}–{far}", "def b(x):",
        "    return x * 2",
    ]  # fmt: skip
    assert [marked(told, at) for at in range(2)] == ["x + 1", "x * 2"]


def test_of_an_expression_of_several_lines_the_one_with_the_operation_is_marked():
    source = (
        "def a(x):\n    y = (\n        x.flatten(1)\n        .view(2, 3)\n    )\n    return one(\n        y,\n    )\n"
    )
    told = shown(step(3, 8, 19, end_line=4), step(6, 11, 5, end_line=8, op="linear"), made=trace(source))
    assert [marked(told, at) for at in range(2)] == [".view(2, 3)", "one("]
    assert [one["line"] for one in told["steps"]] == [4, 6]


def test_a_line_that_is_not_at_hand_is_not_marked():
    told = shown(step(2, 0, 5, file="<string>"), step(3, None, None))
    assert told["steps"][0]["span"] is None
    assert (told["steps"][1]["line"], told["steps"][1]["span"]) == (3, None)


def test_every_name_is_there_and_nothing_else():
    told = shown(step(3, 12, 20))
    assert set(told["tensors"]) == {"q", "heads"}
    for name, each in told["tensors"].items():
        assert set(each) == {"letters", "sizes", "values", "heads", "axes"}, name
        assert each["values"] is None or len(each["values"]) == math.prod(each["sizes"])


def test_tokens_are_named_along_lengths_and_each_axis_says_what_it_means():
    told = shown(step(3, 12, 20))
    assert told["tensors"]["heads"]["axes"] == {"2": ["t0", "t1", "t2"], "3": ["s0", "s1", "s2", "s3"]}
    assert told["letters"]["B"] == {"en": "batch", "zh": "批大小"}
    assert told["letters"]["H*d"]["en"] == "H: heads (num_heads), d: head width (head_dim)"
    assert told["letters"]["(H L)"]["en"] == "H, L mixed up"
    assert "7" not in told["letters"]
    symbols = (*SYMBOLS, Symbol("N", "parameter", 5, "rows"))
    tensors = {**TENSORS, "q": tensor("N", [3])}
    assert shown(step(3, 12, 20), made=plain(), tensors=tensors)["letters"].get("N") is None
    assert shown(step(3, 12, 20), made=trace(PLAIN, symbols=symbols), tensors=tensors)["letters"]["N"]["zh"] == "rows"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_heading_and_a_sentence_in_both_languages(kind):
    (one,) = shown(step(3, 12, 20, kind=kind))["steps"]
    assert set(one["name"]) == set(one["says"]) == set(LANGUAGES)
    assert one["name"]["en"] != one["name"]["zh"]


def test_what_has_no_part_of_its_own_is_called_as_torch_does():
    (one,) = shown(step(3, 12, 20, kind="", op="cos"))["steps"]
    assert (one["name"], one["says"]) == ("cos", None)


def test_each_result_is_a_step():
    told = shown(step(3, 12, 20, outputs=["q", "heads", "other"]))
    assert [one["output"] for one in told["steps"]] == ["q", "heads", "other"]


def test_the_title_says_sizes_failures_and_what_is_left_out():
    problem = Problem(None, "view", "", "RuntimeError: no", "cross")
    assert "with B = 1, H = 2." in shown(step(3, 12, 20))["title"]["en"]
    assert "both are of one length here" in shown(step(3, 12, 20), made=plain(problems=(problem,)))["title"]["en"]
    told = shown(step(3, 12, 20), turns=15)["title"]
    assert told["en"].endswith("A loop ran 15 times: its first 12 turns are shown, and 3 are left out.")
    assert "15 次，这里显示前 12 次，省略 3 次" in told["zh"]
    told = shown(step(3, 12, 20), error="RuntimeError: no", more=7)["title"]
    assert told["en"].endswith("After the last step it fails: RuntimeError: no 7 more steps are left out.")
    assert "还有 7 步" in told["zh"]
