"""A name that is not defined is put right where it is known what was meant; what is wrong behind it is found too."""

from tests.diagnosis.mutants import diagnosis
from tests.diagnosis.operators import Host

HOST = Host("Attention", "names.py", {}, None)
SOURCE = """import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    def forward(self, query, key, value):
        q, k, v = self.cut(self.ask(query)), self.cut(self.match(key)), self.cut(self.hold(value))
        scores = q @ k.mT / math.sqrt(self.part)
        weights = torch.softmax(scroes, dim=-2)
        return self.join((weights @ v).transpose(1, 2).flatten(2)) + softmaxx(scores, -1).mean() * 0
"""


def test_names_that_were_meant_are_told_and_proved_and_so_is_what_is_wrong_behind_them():
    found = diagnosis(HOST, SOURCE)
    line = {part: SOURCE[: SOURCE.index(part)].count("\n") + 1 for part in ("(num_heads, -1)", "scroes", "softmaxx")}
    assert {(each.kind, each.line, each.proved) for each in found.faults} == {
        ("undefined-name", line["(num_heads, -1)"], True), ("undefined-name", line["scroes"], True),
        ("undefined-name", line["softmaxx"], True), ("softmax-axis", line["scroes"], True),
    }  # fmt: skip
    said = " ".join(each.fix for each in found.faults if each.kind == "undefined-name")
    assert [each for each in ("self.num_heads", "scores", "torch.softmax") if each not in said] == []


def test_a_name_that_is_like_no_other_stays_undefined():
    (finding,) = diagnosis(HOST, SOURCE.replace("softmaxx", "zzzz").replace("scroes", "scores")).faults[1:]
    assert (finding.kind, finding.proved) == ("undefined-name", False)
