"""The laws of calls, instances and training: a class that breaks one is told which and where, and no other class is."""

from types import SimpleNamespace

import pytest
import torch

from headwise.calls import Plan
from headwise.diagnosis.checks.side_effects import left_over
from tests.diagnosis.mutants import diagnosis
from tests.diagnosis.operators import Host
from tests.diagnosis.written import line_of

SOURCE = """import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, dropout=0.1):
        super().__init__()
        if width % heads:
            raise ValueError("heads must divide width")
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), -1, self.heads, self.size).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q = self.split(self.query(query))
        k = self.split(self.key(key))
        v = self.split(self.value(value))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.size)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = self.drop(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(query.size(0), -1, self.heads * self.size)
        return self.out(mixed)
"""
HOST = Host("Attention", "laws.py", {}, None)


def changed(*pairs):
    source = SOURCE
    for old, new in pairs:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def told(source, *, severity="fault"):
    found = diagnosis(HOST, source)
    return found, [each for each in found.findings if each.severity == severity]


def test_a_class_that_keeps_the_laws_has_no_fault_and_every_law_was_tried():
    found, faults = told(SOURCE)
    assert (found.verdict, faults) == ("sound", [])
    laws = ("arguments kept", "second call", "state_dict", "step of training", "order of keys", "divisibility", "half")
    assert {name: found.examined[name] for name in laws} == dict.fromkeys(laws, True)


# the law, what is changed, the kind, and a piece of the line that is to be told
BROKEN = {
    "an argument changed by +=": (
        [("        q = self.split", "        query += 1.0\n        q = self.split")], "input-modified", "query += 1.0"),
    "an argument changed through a view": (
        [("        q = self.split", "        key[:, 0].mul_(2.0)\n        q = self.split")],
        "input-modified", "key[:, 0]"),
    "an output that piles up": (
        [("return self.out(mixed)", "self.last = 0.5 * getattr(self, 'last', 0.0) + self.out(mixed)\n"
          "        return self.last")], "stateful-forward", "self.last = "),
    "a weight that is a plain tensor": (
        [("self.drop = nn", "self.gain = torch.randn(width)\n        self.drop = nn"),
         ("self.out(mixed)", "self.out(mixed * self.gain)")], "parameters-unregistered", "self.gain = "),
    "a list of plain tensors": (
        [("self.drop = nn", "self.gains = [torch.randn(width), torch.randn(width)]\n        self.drop = nn"),
         ("self.out(mixed)", "self.out(mixed * self.gains[0] + self.gains[1])")],
        "parameters-unregistered", "self.gains = "),
    "a random buffer that is not saved": (
        [("self.drop = nn", "self.register_buffer('gain', torch.randn(width), persistent=False)\n"
          "        self.drop = nn"), ("self.out(mixed)", "self.out(mixed * self.gain)")],
        "buffer-unsaved", "self.gain)"),
    "a projection made in the call": (
        [("return self.out(mixed)", "if not hasattr(self, 'late'):\n"
          "            self.late = nn.Linear(mixed.size(-1), mixed.size(-1)).to(mixed.dtype)\n"
          "        return self.out(self.late(mixed))")], "parameter-created-in-forward", "self.late = "),
    "a name that is missing in training": (
        [("        weights = self.drop(", "        if self.training:\n"
          "            scores = scores + self.quary.bias[0]\n        weights = self.drop(")],
        "wrong-attribute", "self.quary"),
    "a product of weights made once": (
        [("self.drop = nn", "self.both = self.query.weight.exp()\n        self.drop = nn"),
         ("self.out(mixed)", "self.out(mixed * self.both.mean())")], "parameters-unregistered", "self.both = "),
    "weights kept with their graph": (
        [("return self.out(mixed)", "kept, self.kept = getattr(self, 'kept', 0.0), mixed.mean()\n"
          "        return self.out(mixed) + 0.0 * kept")], "second-step-raises", "self.kept ="),
    "keys that are rounded": (
        [("k = self.split(self.key(key))", "k = self.split(torch.round(self.key(key) * 8) / 8)")],
        "gradient-zero", "torch.round"),
    "dropout of dropout on the output": (
        [("return self.out(mixed)", "return self.drop(self.drop(self.out(mixed)))")],
        "dropout-twice", "self.drop(self.drop("),
    "heads that are never split": (
        [("x.view(x.size(0), -1, self.heads, self.size).transpose(1, 2)", "x.unsqueeze(1)")],
        "heads-not-split", "x.unsqueeze(1)"),
    "heads that are split and put together again": (
        [("self.size).transpose(1, 2)", "self.size).flatten(2).unsqueeze(1)")], "heads-not-split", "flatten(2)"),
    "samples that change each other": (
        [("k = self.split(self.key(key))", "k = self.key(key)\n        k = self.split(k + k.mean(0, keepdim=True))")],
        "sample-leak", "k.mean(0"),
}  # fmt: skip


@pytest.mark.parametrize("law", BROKEN)
def test_a_broken_law_is_told_with_its_line(law):
    pairs, kind, part = BROKEN[law]
    source = changed(*pairs)
    found, faults = told(source)
    assert [(each.kind, each.line) for each in faults] == [(kind, line_of(source, part))], str(found)
    # the others have no repair that a run could be repeated with
    assert not (law in MENDED and not faults[0].proved), str(found)


MENDED = (
    "an argument changed by +=", "an argument changed through a view", "a weight that is a plain tensor",
    "a random buffer that is not saved", "keys that are rounded", "a name that is missing in training",
    "an output that piles up",
)  # fmt: skip

# what looks like a broken law and is none
KEPT = {
    "an argument is copied before it is changed": [("        q = self.split", "        query = query.clone()\n"
                                                    "        query += 1.0\n        q = self.split")],
    "weights are kept to be looked at": [("return self.out(mixed)", "self.weights = weights\n"
                                          "        return self.out(mixed)")],
    "a table is a plain tensor, the same in each instance": [
        ("self.drop = nn", "self.gain = torch.arange(1, width + 1) / width\n        self.drop = nn"),
        ("self.out(mixed)", "self.out(mixed * self.gain)")],
    "a random buffer is saved": [
        ("self.drop = nn", "self.register_buffer('gain', torch.randn(width))\n        self.drop = nn"),
        ("self.out(mixed)", "self.out(mixed * self.gain)")],
    "a memory is kept on purpose": [
        ("return self.out(mixed)", "past, self.memory = getattr(self, 'memory', 0.0), mixed.detach().mean()\n"
         "        return self.out(mixed) + 0.1 * past")],
    "Python's own random numbers choose": [
        ("return self.out(mixed)", "import random\n"
         "        return self.out(mixed if random.random() < 0.5 else -mixed)")],
    "dropout of the weights and of the output": [("return self.out(mixed)", "return self.drop(self.out(mixed))")],
    "rounding lets the gradient pass": [
        ("k = self.split(self.key(key))", "k = self.key(key)\n"
         "        k = self.split(k + (torch.round(k * 8) / 8 - k).detach())")],
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_what_only_looks_like_a_broken_law_is_no_fault(case):
    found, faults = told(changed(*KEPT[case]))
    assert (found.verdict, faults) == ("sound", []), str(found)


@pytest.mark.parametrize(
    ("first", "second", "kinds"), [(1.0, float("nan"), ["stateful-forward"]), (float("nan"), float("nan"), [])]
)
def test_a_second_call_that_gives_no_number_where_the_first_did_gives_another_output(first, second, kinds):
    def given(value):
        record, plan = SimpleNamespace(failure=None), Plan(None, "self", {}, {}, ())
        return SimpleNamespace(
            output=torch.tensor([0.5, value]), record=record, failure=None, seen=(), target=None, plan=plan, sizes={}
        )

    found, _ = left_over(given(first), lambda **_: given(second))
    assert [each.kind for each in found] == kinds
