"""In which order the axes of queries, keys and values are tried, where the code takes them as heads."""

import pytest
import torch

from headwise.calls.finder import find
from headwise.dataflow import attentions, run
from headwise.diagnosis.checks.head_layout import layout_problems


def transposed(q, k, v):
    """q (B, H, L, d), k (B, H, d, S), v (B, H, S, d)."""
    return (q @ k / q.shape[-1] ** 0.5).softmax(-1) @ v


def named(q, k, v):
    b, h, d, s = k.shape
    return (q @ k / d**0.5).view(b, h, -1, s).softmax(-1) @ v


def unsaid(q, k, v):
    return (q @ k / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("function", [transposed, named])
def test_keys_come_transposed_where_words_say_so(function):
    assert find(function, namespace={}).plans[0].call["k"] == ["B", "H", "d", "S"]
    assert not find(unsaid, namespace={}).plans


@pytest.mark.parametrize(
    "call",
    [
        {"q": ["B", "H", "L", "d"], "k": ["B", "H", "d", "S"], "v": ["B", "H", "S", "d"]},
        {"q": [2, 4, 5, 8], "k": [2, 4, 8, 7], "v": [2, 4, 7, 8]},
    ],
)
def test_keys_come_transposed_where_the_user_says_so(call):
    assert find(unsaid, namespace={}, call=call).plans[0].call["k"] == ["B", "H", "d", "S"]


def causal(q, k, v, pad_mask=None):
    s = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
    s = s.masked_fill(torch.ones(q.size(-2), q.size(-2), dtype=torch.bool).triu(1), float("-inf"))
    if pad_mask is not None:
        s = s.masked_fill(pad_mask[:, None, None], float("-inf"))
    return s.softmax(-1) @ v


def test_a_triangle_is_of_many_queries():
    plan = find(causal, namespace={}).plans[0]
    assert (plan.setting, plan.call["q"], plan.mask) == ("self", ["B", "H", "L", "d"], "pad_mask")


def shared(x, memory):
    return (x @ memory.t() / x.shape[-1] ** 0.5).softmax(-1) @ memory


@pytest.mark.parametrize("call", [{"x": ["B", "L", "D"], "memory": ["S", "D"]}, {"x": [2, 5, 16], "memory": [7, 16]}])
def test_keys_without_a_batch_are_of_each_sample(call):
    plan = find(shared, namespace={}, call=call).plans[0]
    assert plan.call == {"x": ["B", "L", "D"], "memory": ["S", "D"]}
    assert [layout_problems(each) for each in attentions(run(plan))] == [[]]
