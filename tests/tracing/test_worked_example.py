"""One run with small sizes: its numbers are those of the code, its axes those of the trace, its kinds by what flows."""

import math
from pathlib import Path

import pytest
import torch

from headwise.tracing.entry_point import as_trace, planned
from headwise.tracing.small_run import run_small
from headwise.tracing.worked_example import MOST_NUMBERS, worked
from tests.tracing import code, worked_code

FILES = {str(Path(module.__file__)): Path(module.__file__).name for module in (code, worked_code)}
TEXTS = {name: Path(file).read_text(encoding="utf-8") for file, name in FILES.items()}


def told(target, **options):
    """The plan and the run of a class or a function."""
    given = {"init": None, "call": None, "cross": None} | options
    plan, seen = planned(target, namespace=vars(worked_code), files=FILES, options=given)
    trace = as_trace(plan, seen, title=target.__name__, texts=TEXTS)
    return plan, worked(plan, trace, files=FILES)


@pytest.fixture(scope="module")
def masked():
    return told(worked_code.Masked)


@pytest.fixture(scope="module")
def scrambled():
    return told(worked_code.Scrambled)


def values(made, name):
    tensor = made["tensors"][name]
    return torch.tensor([float(each) for each in tensor["values"]], dtype=torch.float64).view(tensor["sizes"])


def of_kind(made, kind):
    return [step for step in made["steps"] if step["kind"] == kind]


def test_the_sizes_are_small_and_keys_are_longer(masked):
    assert masked[1]["sizes"] == {"B": 1, "L": 3, "S": 4, "H": 2, "d": 2, "D": 4}
    assert (masked[1]["error"], masked[1]["more"]) == (None, 0)


def test_each_operation_is_what_it_is_in_attention(masked):
    project = ["project", "split", "turn"]
    assert [step["kind"] for step in masked[1]["steps"]] == [
        *project, *project, *project, "turn", "scores", "scale", "", "mask", "softmax", "dropout", "mix", "turn",
        "merge", "project_out",
    ]  # fmt: skip


def test_a_mask_after_the_softmax_is_none_of_scores():
    made = told(worked_code.Late)[1]
    kinds = [step["kind"] for step in made["steps"]]
    assert "mask" not in kinds
    assert kinds.index("softmax") < kinds.index("mask_weights") < kinds.index("mix")


def test_the_numbers_are_those_of_the_code(masked):
    plan, made = masked
    q, k, v = (values(made, name) for name in "qkv")
    hidden = values(made, of_kind(made, "mask")[0]["inputs"][1]).bool()
    weights = (q @ k.mT / math.sqrt(2)).masked_fill(hidden, -math.inf).softmax(-1)
    torch.testing.assert_close(values(made, of_kind(made, "dropout")[0]["outputs"][0]), weights, rtol=1e-4, atol=1e-5)
    merged = (weights @ v).transpose(1, 2).reshape(1, 3, 4)
    torch.testing.assert_close(values(made, of_kind(made, "merge")[0]["outputs"][0]), merged, rtol=1e-4, atol=1e-5)
    done = plan.build(made["sizes"])
    with torch.no_grad():
        torch.testing.assert_close(values(made, "output"), done.W_o(merged.float()).double(), rtol=1e-4, atol=1e-5)


def test_no_token_looks_ahead_and_what_is_hidden_is_minus_infinity(masked):
    made = masked[1]
    (step,) = of_kind(made, "mask")
    assert made["tensors"][step["outputs"][0]]["values"].count("-inf") == 2 * (2 + 1 + 0)
    assert values(made, step["outputs"][0])[0, 0].isinf().tolist() == [
        [False, False, True, True], [False, False, False, True], [False, False, False, False],
    ]  # fmt: skip


def test_axes_have_the_names_of_the_trace_and_results_those_of_the_code(masked):
    made = masked[1]
    assert made["tensors"]["q"]["axes"] == ["B", "H", "L", "d"]
    assert made["tensors"]["k"]["axes"] == ["B", "H", "S", "d"]
    assert [step["outputs"][0] for step in of_kind(made, "split")] == ["q · view", "k · view", "v · view"]
    assert of_kind(made, "mix")[0]["outputs"] == ["x"]
    assert made["steps"][-1]["outputs"] == ["output"]
    (scores,) = of_kind(made, "scores")
    assert (scores["inputs"][0], scores["outputs"][0]) == ("q", "scores · @")
    assert "scores = q @ k" in TEXTS[scores["file"]].split("\n")[scores["line"] - 1]


def test_every_name_is_told_and_every_value_fits_its_sizes(masked, scrambled):
    for made in (masked[1], scrambled[1]):
        known = set(made["tensors"])
        assert all({*step["inputs"], *step["outputs"]} <= known for step in made["steps"])
        assert all(len(each["values"]) == math.prod(each["sizes"]) for each in made["tensors"].values())


def test_heads_are_followed_through_a_right_merge(masked):
    made = masked[1]
    assert made["tensors"]["q · linear"]["heads"] == {"axis": 2, "each": 2}
    assert made["tensors"]["q · view"]["heads"] == {"axis": 2, "each": 1}
    assert made["tensors"]["x"]["heads"] == {"axis": 1, "each": 1}
    assert made["tensors"][of_kind(made, "merge")[0]["outputs"][0]]["heads"] == {"axis": 2, "each": 2}
    assert made["tensors"]["output"]["heads"] is None


def test_a_scrambled_merge_shows_wrong_numbers_and_whose_they_are(scrambled):
    made = scrambled[1]
    (step,) = of_kind(made, "mixed")
    merged = made["tensors"][step["outputs"][0]]
    assert merged["axes"] == ["B", "(H L)", "(H L)*d"]
    assert merged["heads"] == {"of": [0] * 6 + [1] * 6}
    x = values(made, "x")
    assert torch.equal(values(made, step["outputs"][0]), x.reshape(1, 3, 4))
    assert not torch.equal(values(made, step["outputs"][0]), x.transpose(1, 2).reshape(1, 3, 4))
    assert made["steps"][-1]["kind"] == "project_out"


def test_sizes_that_the_class_refuses_give_way_to_larger_ones():
    made = told(worked_code.WideHeads)[1]
    assert (made["sizes"]["d"], made["sizes"]["D"], made["error"]) == (4, 8, None)


def test_what_is_changed_in_place_is_told_anew():
    made = told(worked_code.InPlace)[1]
    write = next(step for step in made["steps"] if step["op"] == "write")
    assert write["outputs"] == ["s (3)"]
    assert values(made, "s (3)")[..., 0].eq(1.5).all()
    torch.testing.assert_close(values(made, "s (2)"), values(made, "s") / 2, rtol=1e-4, atol=1e-5)
    assert [step["kind"] for step in made["steps"]] == [
        "project",
        "turn",
        "scores",
        "scale",
        "",
        "",
        "",
        "softmax",
        "mix",
    ]


def test_what_is_changed_by_way_of_a_view_is_told_anew():
    made = told(worked_code.through_a_view, call={"x": ["B", "L", "d"]})[1]
    assert made["steps"][-1]["inputs"] == ["x (2)"]
    change = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 3, 2)
    torch.testing.assert_close(values(made, "x (2)") - values(made, "x"), change, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values(made, "output"), 2 * values(made, "x (2)"), rtol=1e-4, atol=1e-5)


def test_many_numbers_are_told_by_their_shape_alone():
    def doubled(x):
        return x * 2

    made = told(doubled, call={"x": ["B", "L", MOST_NUMBERS // 3 + 1]})[1]
    assert [each["values"] for each in made["tensors"].values()] == [None, None]
    made = told(doubled, call={"x": ["B", "L", MOST_NUMBERS // 3]})[1]
    assert all(len(each["values"]) <= MOST_NUMBERS for each in made["tensors"].values())


def test_code_that_fails_is_told_up_to_where_it_does():
    made = told(worked_code.Breaks)[1]
    assert made["error"].startswith("RuntimeError: shape '[1, -1, 5]' is invalid")
    assert made["steps"][-1]["op"] == "transpose"


def test_a_run_leaves_the_random_numbers_as_they_were(masked):
    before = torch.random.get_rng_state()
    run_small(masked[0], user_files=tuple(FILES), equal={})
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("target", "kinds"), [
    (code.Packed, {"project", "part", "scores", "softmax", "mix", "project_out", "mask"}),
    (code.MergedWithoutTranspose, {"project", "split", "attention", "mixed", "project_out"}),
    (code.PerHead, {"project", "join"}),
    (code.Plain, {"project", "split", "scores", "scale", "softmax", "mix", "merge", "project_out"}),
])  # fmt: skip
def test_kinds_of_other_styles(target, kinds):
    assert kinds <= {step["kind"] for step in told(target)[1]["steps"]}
