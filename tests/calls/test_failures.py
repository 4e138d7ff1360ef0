"""Code that fails is a failure with its place; a setting that fails does not hide one that runs."""

import math

import torch
from torch import nn

from headwise.calls.finder import find


class Plain(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        assert d_model % num_heads == 0
        self.heads, self.d_k = num_heads, d_model // num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x, length):
        return x.view(x.shape[0], length, self.heads, self.d_k).transpose(1, 2)

    def forward(self, query, key, value):
        q = self.split(self.q(query), query.shape[1])
        k, v = self.split(self.k(key), key.shape[1]), self.split(self.v(value), key.shape[1])
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class QueryLength(Plain):
    def forward(self, query, key, value):
        length = query.shape[1]
        q, k = self.split(self.q(query), length), self.split(self.k(key), length)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        return self.o((scores.softmax(-1) @ self.split(self.v(value), length)).transpose(1, 2).flatten(2))


class NeverSet(Plain):
    def forward(self, query, key, value):
        q = self.split(self.q(query), query.shape[1])
        return self.linear(q)


class NeverBuilt(Plain):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.gone = self.nowhere + 1


def test_code_that_runs_has_no_failure():
    found = find(Plain, namespace=globals())
    assert [each.setting for each in found.plans] == ["cross", "self"]
    assert found.failures == ()


def test_a_class_that_needs_equal_lengths_runs_so_and_fails_where_they_differ():
    found = find(QueryLength, namespace=globals())
    assert {each.setting for each in found.plans} == {"self"}
    (failure,) = found.failures
    assert failure.plan.setting == "cross"
    assert failure.plan.call["key"] == ["B", "S", "D"]
    assert failure.span.source == "x.view(x.shape[0], length, self.heads, self.d_k)"


def test_code_that_never_runs_is_the_failure_of_the_likeliest_plan():
    (failure,) = find(NeverSet, namespace=globals()).failures
    assert isinstance(failure.error, AttributeError)
    assert failure.plan.init == {"d_model": "H*d", "num_heads": "H"}
    assert failure.plan.call["query"] == ["B", "L", "D"]
    assert failure.span.function == "NeverSet.forward"


def test_a_constructor_that_fails_is_the_failure():
    (failure,) = find(NeverBuilt, namespace=globals()).failures
    assert isinstance(failure.error, AttributeError)
    assert failure.span.function == "NeverBuilt.__init__"


def test_trying_leaves_random_numbers_and_printed_text_alone(capsys):
    class Talks(Plain):
        def forward(self, query, key, value):
            print("ran")
            return super().forward(query, key, value) + torch.rand(1)

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert find(Talks, namespace=globals()).plans
    assert torch.equal(torch.rand(3), expected)
    assert capsys.readouterr().out == ""


class Picky(Plain):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(p(t), t.shape[1]) for p, t in ((self.q, query), (self.k, key), (self.v, value)))
        scores = q @ k.transpose(-2, -1)
        if mask is not None and mask.dim() == 2:
            scores = scores.masked_fill(mask[:, None, None] == 0, -1e9)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Ignores(Plain):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value)


def test_a_mask_that_changes_what_comes_out_is_better_than_one_that_is_ignored():
    plan = find(Picky, namespace=globals()).plans[0]
    assert plan.call["_mask"] == {"argument": "mask", "means": "attend", "shape": ["B", "S"]}


def test_a_mask_that_is_always_ignored_is_part_of_a_plan_all_the_same():
    assert [each.mask for each in find(Ignores, namespace=globals()).plans] == ["mask", "", "mask", ""]


def test_equal_plans_build_equal_modules_in_eval_mode():
    plan = find(Plain, namespace=globals()).plans[0]
    first, again = plan.build(plan.sizes(0)), plan.build(plan.sizes(0))
    assert not first.training
    assert torch.equal(first.q.weight, again.q.weight)
    assert torch.equal(plan.arguments(plan.sizes(0))[1]["query"], plan.arguments(plan.sizes(0))[1]["query"])
