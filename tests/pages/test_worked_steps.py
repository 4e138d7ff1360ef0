"""The worked example: the note's own queries, every later number computed, every step a line of its source."""

import math

import pytest
import torch

import headwise as hw
from headwise.ops.reference import attention
from headwise.pages.steps import QUERIES, tensor, worked_example

EXAMPLE = worked_example()


def values(name):
    made = EXAMPLE["tensors"][name]
    return torch.tensor([float(v) for v in made["values"]]).view(made["sizes"])


def test_the_queries_are_those_of_the_note():
    assert QUERIES[0] == ((1.45, -0.79), (0.62, -0.64), (0.97, -0.21))
    assert QUERIES[1] == ((0.40, 0.53), (0.40, 0.29), (0.48, 0.80))
    assert torch.equal(values("query by head"), torch.tensor([QUERIES]))


def test_the_steps_arrive_where_attention_does():
    q, k, v = (values(f"{name} by head") for name in ("query", "key", "value"))
    torch.testing.assert_close(values("context by head"), attention(q, k, v, mask=hw.causal()))
    torch.testing.assert_close(values("weights").sum(-1), torch.ones(1, 2, 3))
    assert values("masked scores")[0, 1, 0].tolist()[1:] == [-math.inf, -math.inf]


@pytest.mark.parametrize("name", ["query", "key", "value", "context"])
def test_splitting_and_merging_move_each_number_to_its_head(name):
    apart = values(f"{name} by head")
    assert torch.equal(values(name), apart.transpose(1, 2).reshape(1, 3, 4))


def test_every_step_names_a_line_tensors_and_both_languages():
    lines, tensors = EXAMPLE["source"]["lines"], EXAMPLE["tensors"]
    made = {"input"}
    for step in EXAMPLE["steps"]:
        start, end = step["span"]
        assert lines[step["line"] - 1][start:end].strip()
        assert {*step["inputs"], step["output"]} <= set(tensors)
        assert set(step["name"]) == set(step["says"]) == {"en", "zh"}
        made.add(step["output"])
    assert EXAMPLE["schema"] == 1
    for name, each in tensors.items():
        assert each["values"] is None or math.prod(each["sizes"]) == len(each["values"])
        assert set(each["letters"]) <= set(EXAMPLE["letters"]), name


def test_a_tensor_without_numbers_keeps_its_sizes():
    assert tensor(None, "B L D", (1, 3, 4)) == {
        "letters": ["B", "L", "D"],
        "sizes": [1, 3, 4],
        "values": None,
        "heads": None,
        "axes": {},
    }
