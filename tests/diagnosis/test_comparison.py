"""Nothing is said to be sound whose weights were not compared with softmax(q·kᵀ/√d), or with a design of the table."""

import linecache

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from headwise.calls import find
from headwise.cli import main
from headwise.diagnosis.comparison import COMPARISON, compare
from headwise.diagnosis.designs import DESIGNS
from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.examination import Examination
from headwise.testing import SoundnessError, assert_sound
from tests.diagnosis.written import found_in, line_of

TEXTBOOK = """
import math
import torch
from torch import nn
import torch.nn.functional as F


class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(q.shape[-1])

    def weights(self, s):
        return s.softmax(-1)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        context = self.weights(self.scores(q, k)) @ v
        return self.o(context.transpose(1, 2).flatten(2))
"""
WEIGHTS, SCORES, CONTEXT = "return s.softmax(-1)", "return q @ k.mT / math.sqrt(q.shape[-1])", "context = self.weights"


def changed(old, new):
    """The textbook class with one piece of it written otherwise."""
    assert TEXTBOOK.count(old) == 1
    return TEXTBOOK.replace(old, new)


HELPER = "    def scores(self, q, k):"
PROJECTED = "        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))\n"
INFERRED = """
        with torch.inference_mode():
            q, k = self.split(self.q(x)), self.split(self.k(x))
        q, k, v = q.clone(), k.clone(), self.split(self.v(x))
"""
NO_GRAD = "with torch.no_grad():\n            s = q @ k.mT / math.sqrt(q.shape[-1])\n        return s"
BY_HAND = "e = (s - s.amax(-1, keepdim=True)).exp()\n        return e / e.sum(-1, keepdim=True)"
FAULTS = {
    "scores under no_grad": (changed(SCORES, NO_GRAD), "gradient-cut", "with torch.no_grad()"),
    "a helper under no_grad": (changed(HELPER, f"    @torch.no_grad()\n{HELPER}"), "gradient-cut", "@torch.no_grad()"),
    "projections in inference mode": (changed(PROJECTED, INFERRED[1:]), "gradient-cut", "with torch.inference_mode()"),
    "log_softmax": (changed(WEIGHTS, "return F.log_softmax(s, dim=-1)"), "softmax-log", "log_softmax"),
    "softmax twice": (changed(WEIGHTS, "return s.softmax(-1).softmax(-1)"), "softmax-twice", "return s.softmax"),
    "exp alone": (changed(WEIGHTS, "return s.exp()"), "softmax-unnormalised", "s.exp()"),
    "gumbel_softmax": (changed(WEIGHTS, "return F.gumbel_softmax(s, dim=-1)"), "random-in-eval", "gumbel_softmax"),
    "noise": (changed(WEIGHTS, "return (s + torch.randn_like(s)).softmax(-1)"), "random-in-eval", "randn_like"),
    "by hand without a scale": (
        changed(SCORES, "return q @ k.mT").replace(WEIGHTS, BY_HAND),
        "scale-missing",
        "return q @ k.mT",
    ),
    "scores times 0": (changed(WEIGHTS, "return (s * 0).softmax(-1)"), "scale-zero", "s * 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_said_to_be_sound_is_a_fault_at_its_line(name):
    source, kind, text = FAULTS[name]
    found = found_in(source)
    (fault,) = found.faults
    assert (found.verdict, fault.kind, fault.line, fault.proved) == ("faulty", kind, line_of(source, text), True)


UNKNOWN = {
    "shares times what scores say": "return s.softmax(-1) * s.sigmoid()",
    "shares over their length": "w = s.softmax(-1)\n        return w / w.norm(dim=-1, keepdim=True)",
    "shares below a number left out": "w = s.softmax(-1)\n        return w.masked_fill(w < 0.2, 0.0)",
    "half of the shares": "return s.softmax(-1) * 0.5",
    "shares over their number": "return s.softmax(-1) / s.shape[-1]",
    "scores above 0": "return s.relu().softmax(-1)",
    "scores above 0, and little of the others": "return F.leaky_relu(s).softmax(-1)",
    "scores to a power": "return (s**3).softmax(-1)",
    "scores over their length": "return F.normalize(s, dim=-1)",
    "scores over their mean size": "return s / s.abs().mean(-1, keepdim=True)",
    "the smallest first": "return F.softmin(s, dim=-1)",
    "powers of 2": "e = torch.exp2(s)\n        return e / e.sum(-1, keepdim=True)",
    "softplus": "w = F.softplus(s)\n        return w / w.sum(-1, keepdim=True)",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_weights_that_follow_no_formula_are_not_examined(name):
    source = changed(WEIGHTS, UNKNOWN[name])
    found = found_in(source)
    assert (found.verdict, found.faults) == ("not examined", ())
    assert f"line {line_of(source, CONTEXT)} " in found.reason
    assert found.examined[COMPARISON].startswith("no: ")


def test_an_output_that_does_not_follow_from_the_context_is_not_examined():
    source = changed("self.o(context.transpose(1, 2)", "self.o((v + 0 * context).transpose(1, 2)")
    found = found_in(source)
    assert found.verdict == "not examined"
    assert f"weighted sum of line {line_of(source, CONTEXT)}" in found.reason


def test_what_was_not_compared_has_status_3_and_fails_assert_sound(tmp_path):
    file = tmp_path / "softened.py"
    file.write_text(changed(WEIGHTS, UNKNOWN["softplus"]), encoding="utf-8")
    told = CliRunner().invoke(main, ["doctor", f"{file}:Attend"])
    assert told.exit_code == 3
    assert "Its weights could not be compared with softmax(q·kᵀ/√d)" in told.output
    with pytest.raises(SoundnessError, match="could not be compared"):
        assert_sound(f"{file}:Attend")


def test_the_textbook_class_is_told_with_what_its_weights_are():
    found = found_in(TEXTBOOK)
    assert (found.verdict, found.examined[COMPARISON]) == ("sound", "softmax(q·kᵀ/√d)")


class Example(nn.Module):
    """Attention whose context is made by the example of a design."""

    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.weight = nn.Parameter(torch.randn(dim // heads))
        self.temperature, self.sink = nn.Parameter(torch.tensor(0.4)), nn.Parameter(torch.randn(heads, 1, 1))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        far = (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])).abs()
        context = eval(self.code, {
            "torch": torch, "q": q, "k": k, "v": v, "scores": q @ k.mT, "scale": q.shape[-1] ** -0.5, "sink": self.sink,
            "weight": self.weight, "temperature": self.temperature, "bias": -0.3 * far.to(x), "decay": 0.8**far,
            "relative": far[:, :1].to(x).cos() * self.weight,
        })  # fmt: skip
        return self.o(context.transpose(1, 2).flatten(2))


def example_of(design):
    """A class whose code of one line stands where the doctor finds it."""
    file = f"/designs/{design.name}.py"
    linecache.cache[file] = (len(design.example), None, [design.example], file)
    return type("Designed", (Example,), {"code": compile(design.example, file, "eval"), "__module__": __name__})


@pytest.mark.parametrize("design", DESIGNS, ids=lambda each: each.name)
def test_the_example_of_each_design_is_told_by_its_name(design):
    exam = Examination(find(example_of(design), namespace=globals()).plans[0])
    compare(exam)
    assert exam.examined == {COMPARISON: str(design)}


BLOCK = '''
from torch import nn


class Block(nn.Module):
    """WORDS"""

    def __init__(self, dim, heads):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.look = nn.MultiheadAttention(dim, heads)
        self.grow = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.look(y, y, y, need_weights=False)[0]
        return x + self.grow(self.last(x))
'''


def test_a_block_that_documents_the_batch_first_and_hands_it_to_a_layer_that_takes_it_second():
    source = BLOCK.replace("WORDS", "x: (batch, seq, dim) -> (batch, seq, dim)")
    (fault,) = found_in(source, "Block").faults
    assert (fault.kind, fault.line, fault.proved) == ("batch-length-confused", line_of(source, "self.look ="), True)


@pytest.mark.parametrize("words", ["x: (seq, batch, dim) -> (seq, batch, dim)", "A block."])
def test_a_block_that_documents_the_batch_second_or_nothing_is_sound(words):
    found = found_in(BLOCK.replace("WORDS", words), "Block")
    assert (found.verdict, found.examined[COMPARISON]) == ("sound", "torch nn.MultiheadAttention")


IDS = BLOCK.replace("(self, dim, heads):", "(self, vocabulary, dim, heads):").replace(
    "        self.grow", "        self.table = nn.Embedding(vocabulary, dim)\n        self.grow"
).replace("(self, x):", "(self, ids):\n        x = self.table(ids)")  # fmt: skip


def test_a_model_of_token_ids_that_documents_the_batch_first_is_examined_for_it():
    source = IDS.replace("WORDS", "ids: (batch, seq)")
    (fault,) = found_in(source, "Block").faults
    assert (fault.kind, fault.line, fault.proved) == ("batch-length-confused", line_of(source, "self.look ="), True)


@pytest.mark.parametrize("words", ["ids: (seq, batch)", "key_padding_mask: (batch, seq)", "A model."])
def test_a_model_of_token_ids_that_documents_the_batch_second_or_nothing_is_sound(words):
    found = found_in(IDS.replace("WORDS", words), "Block")
    assert (found.verdict, found.examined["samples"]) == ("sound", True)


@pytest.mark.parametrize("words", ["", '"""ids: (batch, seq)."""'])
def test_token_ids_whose_batch_is_second_are_a_fault_only_where_words_say_that_it_is_first(words):
    source = f"""
import math
from torch import nn


class Attend(nn.Module):
    {words}

    def __init__(self, vocabulary, dim):
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, ids):
        x = self.table(ids).transpose(0, 1)
        s = self.q(x) @ self.k(x).mT / math.sqrt(x.shape[-1])
        return self.o(s.softmax(-1) @ self.v(x)).transpose(0, 1)
"""
    found = found_in(source)
    assert {each.kind for each in found.faults} == ({"batch-length-confused"} if words else set())
    assert found.verdict == ("faulty" if words else "sound")


def test_samples_that_cannot_be_told_apart_are_not_said_to_be_kept_apart():
    source = changed(
        "        return self.o(",
        "        return (lambda each: each.sum())(self.o(",
    )
    found = found_in(source.replace("flatten(2))", "flatten(2)))"))
    assert found.examined["samples"] == (
        "no: which sample an entry of its inputs or its output belongs to is not known"
    )


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, nn.TransformerEncoderLayer])
def test_torchs_own_layer_is_not_examined_and_it_is_said_why_and_what_to_name_in_its_stead(kind):
    found = doctor(kind)
    assert found.verdict == "not examined"
    assert found.reason.startswith("This is torch's own code, which runs as one step and is not examined. Name a class")
    assert not any("was found in it" in str(each) for each in found.examined.values())


def test_a_function_of_torch_that_says_nothing_of_its_call_is_not_known_how_to_call():
    found = doctor(nn.functional.scaled_dot_product_attention)
    assert (found.verdict, found.reason[:44]) == ("not examined", "It is not known how to build or call it (Typ")


SHARED_QUERIES = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Pool(nn.Module):
    '''Learned queries, shared by all samples.'''

    def __init__(self, width, heads, count=3):
        super().__init__()
        self.heads = heads
        self.queries = nn.Parameter(torch.randn(1, heads, count, width // heads))
        self.k, self.v, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.k(x), self.v(x)))
        y = F.scaled_dot_product_attention(self.queries, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
"""


def test_queries_that_all_samples_share_are_compared_as_torch_broadcasts_them():
    assert found_in(SHARED_QUERIES, "Pool").verdict == "sound"
