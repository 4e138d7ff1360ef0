"""Axes that meet in the wrong order: heads attended over, letters of an einsum, three projections in one view."""

import pytest

import headwise as hw
from headwise.diagnosis.child import answer
from headwise.diagnosis.patches.fixed_source import fixed
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.target_diagnosis import diagnosed
from tests.diagnosis.correct.chosen import Distances
from tests.diagnosis.correct.sequences import PlacesFirst, PlacesOfAllKeys
from tests.diagnosis.written import found_in, line_of, loaded_from

HEAD = """
import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self, d_model=32, n_heads=4):
        super().__init__()
        assert d_model % n_heads == 0
        self.h, self.d = n_heads, d_model // n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.qkv = {packed}

    def forward(self, x):
        b, n, c = x.shape
"""
FUSED = """
        q, k, v = (f(x).unflatten(-1, (self.h, -1)) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.o(y.flatten(-2))
"""
PACKED = """
        q, k, v = self.qkv(x).view(b, n, 3, self.h, self.d).unbind(2)
        w = (q @ k.transpose(-2, -1) / self.d**0.5).softmax(-1)
        return self.o((w @ v).reshape(b, n, c))
"""
# the merge is right, and only the split is not
MERGED = """
        q, k, v = (f(x).view(b, n, self.h, self.d) for f in (self.q, self.k, self.v))
        y = (q @ k.mT / self.d**0.5).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, n, c))
"""
EINSUM = """
        q, k, v = self.qkv(x).view(b, n, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
        w = (torch.einsum("bhid,bhjd->bhij", q, k) / self.d**0.5).softmax(-1)
        return self.o(torch.einsum("{letters}", w, v).transpose(1, 2).reshape(b, n, c))
"""
VIEWED = """
        q, k, v = self.qkv(x).view(3, b, self.h, n, self.d)
        w = (torch.einsum("bhid,bhjd->bhij", q, k) / self.d**0.5).softmax(-1)
        return self.o(torch.einsum("bhij,bhjd->bihd", w, v).reshape(b, n, c))
"""


def written(body):
    """The source of a class with a body, and the projections that it uses."""
    source = HEAD.replace("{packed}", "nn.Linear(d_model, 3 * d_model)" if "qkv" in body else "None") + body
    # projections that no line uses are a fault of their own
    every = "self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))"
    return source.replace(every, "self.o = nn.Linear(d_model, d_model)") if "qkv" in body else source


def examined(folder, body, lang="en"):
    """The diagnosis of a class with a body, and that of its mended source."""
    source = written(body)
    (folder / "own.py").write_text(source, encoding="utf-8")
    asked = {"target": f"{folder / 'own.py'}:Attend", "lang": lang}
    found = Diagnosis.from_dict(answer(asked)["diagnosis"], lang=lang)
    (folder / "own.py").write_text(fixed(source, found.findings), encoding="utf-8")
    return found, Diagnosis.from_dict(answer(asked)["diagnosis"])


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        (FUSED, ["q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))",
                 "return self.o(y.transpose(1, 2).flatten(-2))"]),
        (PACKED, ["q, k, v = self.qkv(x).view(b, n, 3, self.h, self.d).transpose(1, 3).unbind(2)",
                  "return self.o((w @ v).transpose(1, 2).reshape(b, n, c))"]),
        (MERGED, ["q, k, v = (f(x).view(b, n, self.h, self.d).transpose(1, 2) for f in (self.q, self.k, self.v))"]),
    ],
    ids=["in one step", "packed, by hand", "with a merge that fits"],
)  # fmt: skip
def test_heads_that_are_attended_over_are_one_fault_with_one_patch(tmp_path, body, patch):
    found, after = examined(tmp_path, body)
    (fault,) = found.faults
    assert (fault.kind, fault.proved, fault.patch.split("\n")) == ("attention-over-heads", True, patch)
    assert fault.source.strip().startswith("q, k, v =")
    assert "over the heads of one token instead of over the tokens" in fault.what
    assert "mixes" not in fault.what
    assert after.verdict == "sound"


@pytest.mark.parametrize("letters", ["bhij,bhid->bhid", "bhij,bhjd->bhjd"])
def test_an_einsum_that_sums_the_weights_alone_gets_the_letter_of_the_keys(tmp_path, letters):
    found, after = examined(tmp_path, EINSUM.replace("{letters}", letters), lang="zh")
    (fault,) = found.faults
    assert (fault.kind, fault.proved) == ("einsum-weights-summed", True)
    assert f'einsum "{letters}" 单独对权重求和' in fault.what
    assert '"bhij,bhjd->bhid"' in fault.patch
    # one plain softmax is no sum of softmaxes
    assert found.examined["comparison"] == "softmax(q·kᵀ/√d)"
    unmended = found_in(written(EINSUM.replace("{letters}", letters)))
    assert (
        unmended.examined["comparison"]
        == f"no: line {fault.line} sums the weights by themselves, and not with the values"
    )
    assert after.verdict == "sound"


@pytest.mark.parametrize("kind", [PlacesFirst, PlacesOfAllKeys, Distances])
def test_one_softmax_of_several_products_is_named_for_what_it_is(kind):
    found = hw.doctor(kind)
    assert found.examined["comparison"] == "scores with further terms, arXiv:1803.02155, arXiv:1901.02860"


def test_a_packed_view_is_patched_into_projections_then_heads_then_features(tmp_path):
    found, after = examined(tmp_path, VIEWED)
    (fault,) = found.faults
    assert (fault.kind, fault.proved) == ("split-without-transpose", True)
    assert fault.patch == "q, k, v = self.qkv(x).view(b, n, 3, self.h, self.d).permute(2, 0, 3, 1, 4)"
    assert after.verdict == "sound"


HEADS_SUMMED = """
        q, k, v = self.qkv(x).view(b, n, 3, self.h, self.d).unbind(2)
        w = (q @ k.transpose(-2, -1) / self.d**0.5).softmax(-1)
        return self.o((w @ v).sum(2).repeat(1, 1, self.h))
"""


@pytest.mark.parametrize("call", [{"x": ["B", "L", "D"]}, {"x": [2, 5, 12]}], ids=["letters", "numbers"])
def test_a_call_that_was_declared_is_not_suggested_again(call):
    source = written(HEADS_SUMMED)
    target, namespace, file = loaded_from(source)
    line = line_of(source, "w = (q @")
    for declared in (None, call):
        found = diagnosed(target, title="", namespace=namespace, files={file: "own.py"}, call=declared)
        assert found.verdict == "not examined"
        assert ('--call \'{"x": ["B", "L", "D"]}\'' in found.reason) == (declared is None)
    assert f"the heads of one token meet each other at line {line}. What is missing is an order of axes" in found.reason
