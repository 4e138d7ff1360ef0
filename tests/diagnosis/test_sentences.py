"""What a finding says is what was measured: no slot of a sentence stays empty, and each case has its own words."""

import re

import pytest

from headwise.wording import LANGUAGES
from tests.diagnosis.mutants import diagnosis
from tests.diagnosis.test_laws import HOST, changed, told
from tests.diagnosis.written import line_of

ROTATE = """        angles = torch.arange(v.shape[2])[:, None] * 10.0 ** -torch.arange(v.shape[3] // 2)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def turned(x):
            one, two = x.chunk(2, -1)
            return x * cos[: x.shape[2]] + torch.cat([-two, one], -1) * sin[: x.shape[2]]

"""
SPLIT = "        scores = torch.matmul"
# what is changed, the kind, a piece of its line, and words of what is said of just this case
CASES = {
    "an attribute like no other": (
        [("math.sqrt(self.size)", "self.zzz")],
        "attribute-undefined",
        "self.zzz",
        "Define zzz before it is read",
    ),
    "an attribute like another": (
        [("math.sqrt(self.size)", "math.sqrt(self.sized)")],
        "wrong-attribute",
        "self.sized",
        "Write size.",
    ),
    "weights of no module": (
        [("return self.out(mixed)", "return self.out(mixed) @ nn.Parameter(torch.eye(mixed.shape[-1]))")],
        "weights-outside-module",
        "torch.eye",
        "do not belong to the module",
    ),
    "weights scaled again": (
        [("self.drop(F.softmax(scores, dim=-1))", "self.drop(F.softmax(scores, dim=-1) / math.sqrt(self.size))")],
        "weights-scaled",
        "F.softmax",
        "the scores are scaled before it",
    ),
    "a softmax over queries and keys": (
        [("F.softmax(scores, dim=-1)", "F.softmax(scores.flatten(2), dim=-1).view_as(scores)")],
        "softmax-axis-merged",
        "F.softmax",
        "merged with another axis",
    ),
    "values that are rotated": (
        [(SPLIT, f"{ROTATE}        q, k, v = turned(q), turned(k), turned(v)\n{SPLIT}")],
        "rotary-on-values",
        "turned(v)",
        "values are rotated",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case_has_words_of_its_own_and_no_slot_is_empty(case):
    pairs, kind, piece, words = CASES[case]
    source = changed(*pairs)
    _, (fault,) = told(source)
    assert (fault.kind, fault.line) == (kind, line_of(source, piece))
    sentences = f"{fault.what} {fault.why} {fault.fix}"
    assert words in sentences
    assert not re.search(r"\s[.:,]|=\.|  ", sentences)


def test_code_that_refuses_to_be_trained_is_not_faulty_and_that_is_said():
    refusing = "        if self.training: raise NotImplementedError('for inference')\n        q = self.split"
    found = diagnosis(HOST, changed(("        q = self.split", refusing)))
    assert found.faults == ()
    assert found.examined["step of training"] == f"no: {LANGUAGES['en']['doctor.missed.not_trained']}"


def test_a_warning_that_was_measured_is_proved():
    found = diagnosis(HOST, changed(("        if width % heads:", "        if False:")))
    (warning,) = [each for each in found.findings if each.kind == "heads-not-divisible"]
    assert (warning.severity, warning.proved) == ("warning", True)
    assert "invalid for input of size" in warning.evidence
