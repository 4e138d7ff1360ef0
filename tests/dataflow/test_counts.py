"""Counts: a sum of what is true is of no token; one of features, complex ones too, is of its own."""

import pytest
import torch

from headwise.calls import find
from headwise.dataflow import run


def features(x):
    return (2 * x).sum(-1)


def turned(x):
    return torch.complex(x, x).sum(-1)


def truths(x):
    return x * (x > 0).sum(-1, keepdim=True)


@pytest.mark.parametrize(("target", "is_of_tokens"), [(features, True), (turned, True), (truths, False)])
def test_a_sum_keeps_its_tokens_unless_it_counts(target, is_of_tokens):
    plan = find(target, namespace={}, call={"x": ["B", "L", "D"]}).plans[0]
    (entry,) = [op for op in run(plan, own=(__file__,)).seen if op.last == "sum"]
    assert (entry.output_marks[0] is not None) == is_of_tokens
