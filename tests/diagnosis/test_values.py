"""Steps that change scores, weights or values though no attention has them; and calls that images and groups need."""

import pytest

from headwise.calls import Plan, is_of_code
from tests.diagnosis.written import found_in

TOKENS = """import torch
import torch.nn as nn


class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, x, memory):
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(memory)), self.cut(self.hold(memory))
        s = torch.einsum("bhid,bhjd->bhij", q, k) * self.part ** -0.5
        w = s.softmax(-1)
        y = torch.einsum("bhij,bhjd->bhid", w, v)
        return self.join(y.transpose(1, 2).reshape(x.shape))
"""
PICTURE = """import torch
import torch.nn as nn


class Look(nn.Module):
    def __init__(self, channels, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, channels // num_heads
        self.scale = self.part ** -0.5
        self.calm = nn.GroupNorm(8, channels)
        self.three = nn.Conv2d(channels, 3 * channels, 1)
        self.join = nn.Conv2d(channels, channels, 1)

    def forward(self, image):
        n, channels, height, width = image.shape
        q, k, v = self.three(self.calm(image)).view(n, 3, self.num_heads, self.part, height * width).unbind(1)
        w = (q.transpose(-1, -2) @ k * self.scale).softmax(-1)
        y = w @ v.transpose(-1, -2)
        y = y.transpose(-1, -2).reshape(n, channels, height, width)
        return image + self.join(y)
"""
# by what is done: the source, what is written in it, what instead, and the kind
FAULTS = {
    "the sign of scores is lost": (TOKENS, "w = s.softmax(-1)", "w = s.abs().softmax(-1)", "value-changed"),
    "weights are added up": (TOKENS, "w = s.softmax(-1)", "w = s.softmax(-1).cumsum(-1)", "value-changed"),
    "weights are what is left of 1": (
        TOKENS,
        '"bhij,bhjd->bhid", w, v',
        '"bhij,bhjd->bhid", 1 - w, v',
        "value-changed",
    ),
    "values are added up": (TOKENS, "w, v)", "w, v.cumsum(2))", "value-changed"),
    "features are sorted": (TOKENS, "self.join(y.", "self.join(y.sort(dim=-1).values.", "value-changed"),
    "heads are added up": (TOKENS, '"bhid,bhjd->bhij"', '"bhid,bgjd->bhij"', "contraction-extra-axis"),
    "no value meets its weight": (TOKENS, '"bhij,bhjd->bhid"', '"bhij,bhid->bhid"', None),
    "heads in the places of an image": (PICTURE, "y.transpose(-1, -2).reshape", "y.reshape", "merge-without-transpose"),
    "a scale that is kept and not used": (PICTURE, " * self.scale)", ")", "scale-missing"),
}
SOUND = {
    "tokens": (TOKENS, "", ""),
    "an image": (PICTURE, "", ""),
    "scores under a cap": (TOKENS, "w = s.softmax(-1)", "w = (5 * (s / 5).tanh()).softmax(-1)"),
    "weights sharpened and shared again": (TOKENS, "w = s.softmax(-1)", "w = s.softmax(-1)**2; w /= w.sum(-1, True)"),
    "values beside their sum": (TOKENS, "w, v)", "w, v + 0.1 * v.cumsum(2))"),
    "a gate that is learned": (
        PICTURE, "self.scale = self.part ** -0.5",
        "self.gate = nn.Parameter(torch.zeros(1)); self.scale = self.part ** -0.5",
    ),
}  # fmt: skip


def diagnosis(source):
    name = next(line for line in source.splitlines() if line.startswith("class ")).split()[1].partition("(")[0]
    return found_in(source, name)


def changed(source, old, new):
    assert not old or source.count(old) == 1, old
    return source.replace(old, new) if old else source


@pytest.mark.parametrize("case", FAULTS)
def test_a_step_that_no_attention_has_is_told_with_its_line(case):
    source, old, new, kind = FAULTS[case]
    line = 1 + source[: source.index(old)].count("\n")
    found = [each for each in diagnosis(changed(source, old, new)).findings if each.severity == "fault"]
    assert [each.line for each in found] == [line]
    assert kind in (found[0].kind, None)


@pytest.mark.parametrize("case", SOUND)
def test_what_is_done_to_scores_and_values_on_purpose_is_no_fault(case):
    source = changed(*SOUND[case])
    if "self.gate" in source:
        source = source.replace("self.join(y)", "self.gate * self.join(y)")
    found = diagnosis(source)
    assert (found.verdict, [each.kind for each in found.findings if each.severity == "fault"]) == ("sound", [])


CRASHES = {
    "parts before it is a module": ("        super().__init__()\n", "", "super-init-missing"),
    "a fraction of a width": ("width // num_heads", "width / num_heads", "raises"),
    "a view of what was turned": (".reshape(x.shape)", ".view(x.shape)", "view-noncontiguous"),
    "as many keys as queries": ("self.cut(self.match(memory))", "self.match(memory).view(x.shape[0], x.shape[1], "
                                "self.num_heads, self.part).transpose(1, 2)", "key-uses-query-length"),
}  # fmt: skip


@pytest.mark.parametrize("case", CRASHES)
def test_what_raises_however_it_is_called_is_a_fault(case):
    old, new, kind = CRASHES[case]
    found = diagnosis(changed(TOKENS, old, new))
    assert [each.kind for each in found.findings if each.severity == "fault"] == [kind]


TORCH = """import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads)

    def forward(self, x):
        # x: (batch, length, width)
        return x + self.attend(x, x, x)[0]
"""


@pytest.mark.parametrize(
    ("said", "verdict"), [("(batch, length, width)", "faulty"), ("(length, batch, width)", "sound")]
)
def test_samples_meet_where_the_words_say_that_the_batch_comes_first(said, verdict):
    found = diagnosis(TORCH.replace("(batch, length, width)", said))
    assert found.verdict == verdict
    assert {each.kind for each in found.findings if each.severity == "fault"} <= {"batch-length-confused"}


def test_what_is_returned_without_its_projection_is_told_where_it_is_returned():
    old = "return self.join(y.transpose(1, 2).reshape(x.shape))"
    source = changed(TOKENS, old, "y = y.transpose(1, 2).reshape(x.shape)\n        return y")
    line = 1 + source.splitlines().index("        return y")
    found = [each for each in diagnosis(source).findings if each.severity == "fault"]
    assert [(each.kind, each.line) for each in found] == [("projection-unused", line)]


@pytest.mark.parametrize(("value", "is_certain"), [("H", False), (["B", "L", "D"], True)])
def test_a_number_that_an_argument_was_given_by_guess_is_no_fault_of_the_code(value, is_certain):
    plan = Plan(None, "self", {}, {"x": ["B", "L", "D"], "h": value}, ())
    error = TypeError("linear(): argument 'input' (position 1) must be Tensor, not int")
    assert is_of_code(error, plan) is is_certain


UNWRITTEN = """import time

import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        before = [torch.full((heads,), time.perf_counter() % 1.0) for _ in range(20)]
        del before
        # set by a checkpoint
        self.sinks = nn.Parameter(torch.empty(heads))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        sinks = self.sinks.view(1, -1, 1, 1).expand(batch, -1, length, 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
        return self.join((weights @ v).transpose(1, 2).reshape(x.shape))
"""


def test_what_lay_in_the_memory_of_a_parameter_is_no_fault():
    found = diagnosis(UNWRITTEN)
    assert (found.verdict, found.faults) == ("sound", ()), str(found)
