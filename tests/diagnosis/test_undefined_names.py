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
        ("name-misspelt", line["(num_heads, -1)"], True), ("name-misspelt", line["scroes"], True),
        ("name-misspelt", line["softmaxx"], True), ("softmax-axis", line["scroes"], True),
    }  # fmt: skip
    said = " ".join(each.fix for each in found.faults if each.kind == "name-misspelt")
    assert [each for each in ("self.num_heads", "scores", "torch.softmax") if each not in said] == []


def test_a_name_that_is_like_no_other_stays_undefined():
    (finding,) = diagnosis(HOST, SOURCE.replace("softmaxx", "zzzz").replace("scroes", "scores")).faults[1:]
    assert (finding.kind, finding.proved) == ("undefined-name", False)


def written(*changes):
    """The class with no name that is not defined, and changes."""
    source = SOURCE.replace("(num_heads,", "(self.num_heads,").replace("scroes, dim=-2", "scores, dim=-1")
    source = source.partition(" + softmaxx")[0]
    for here, there in changes:
        source = source.replace(here, there)
    return source


def test_an_attribute_is_read_as_one_somewhat_like_it_only_if_that_has_no_use_of_its_own():
    changes = [("self.ask", "self.wq"), ("self.match", "self.wk"), ("self.hold", "self.wv")]
    made = diagnosis(HOST, written(*changes, (", self.join =", ", self.wj ="), ("return self.join", "return self.wo")))
    unmade = diagnosis(HOST, written(*changes, (", self.join =", ", _ ="), ("return self.join", "return self.wo")))
    assert [[each.kind for each in found.faults] for found in (made, unmade)] == [
        ["wrong-attribute"],
        ["attribute-undefined"],
    ]
    assert "Write wj." in made.faults[0].fix
    assert "Define wo before it is read" in unmade.faults[0].fix


def test_keys_that_were_turned_along_other_axes_are_not_transposed():
    cut = ("t.unflatten(-1, (self.num_heads, -1))", "t.view(t.shape[0], -1, self.num_heads, self.part)")
    found = diagnosis(HOST, written(cut, ("k.mT", "k.transpose(1, 2)"))).faults
    assert [(each.kind, each.proved, "k.transpose(1, 2)" in each.source) for each in found] == [
        ("key-not-transposed", True, True)
    ]
