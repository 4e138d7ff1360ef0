"""A whole model whose parts before a detach never learn is told; parts that are not to learn are left."""

import pytest

from tests.diagnosis.written import faults_in_file, line_of

MODEL = """import torch
from torch import nn


class Pooled(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        if width % heads:
            raise ValueError("heads must divide width")
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Documents(nn.Module):
    def __init__(self, vocab_size=60, n_classes=5, width=24, heads=3):
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        self.lower, self.upper = Pooled(width, heads), Pooled(width, heads)
        self.classes = nn.Linear(width, n_classes)

    def forward(self, ids):
        h = self.lower(self.words(ids))
        h = self.upper(h.detach())
        return self.classes(h.mean(dim=1))
"""
CUT = "h.detach()"
MADE = "        self.words = nn.Embedding(vocab_size, width)\n"
LAST = "        return self.classes(h.mean(dim=1))\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        (
            "        h = self.upper(h.detach())\n",
            "        tokens = [h[:, at].detach() for at in range(h.shape[1])]\n"
            "        h = self.upper(torch.stack(tokens, dim=1))\n",
        ),
    ],
    ids=["all at once", "one by one"],
)
def test_parts_that_never_learn_are_a_fault(tmp_path, before, after):
    source = MODEL.replace(before, after) if before else MODEL
    assert faults_in_file(tmp_path, "Documents", source) == [("gradient-cut", line_of(source, "detach()"))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CUT, "h"),
        ("h = self.upper(h.detach())", "h = self.upper(h.detach() + self.words(ids))"),
        ("h.detach())", "h.detach())  # the encoder is frozen"),
        ("h.detach())", "h.detach())  # 主干冻结"),
        ("        h = self.upper", "        # only the upper half is trained\n        h = self.upper"),
        (
            "        h = self.upper(h.detach())\n",
            "        if self.cuts:\n            h = h.detach()\n        h = self.upper(h)\n",
        ),
        (
            LAST,
            f"{LAST}\n    def telling(self, ids):\n        return self.lower(self.words(ids)) @ self.words.weight.T\n",
        ),
        (LAST, "        return self.classes(h.mean(dim=1)), self.lower(self.words(ids)).mean(dim=1)\n"),
        (MADE, f"{MADE}        self.words.weight.requires_grad = False\n"),
    ],
    ids=[
        "none",
        "another way",
        "frozen",
        "frozen, in Chinese",
        "said",
        "an option",
        "another method",
        "two results",
        "no parameters",
    ],
)
def test_parts_that_are_not_to_learn_are_left(tmp_path, before, after):
    source = MODEL.replace(before, after)
    assert source != MODEL
    if "self.cuts" in after:
        source = source.replace("heads=3):", "heads=3, cuts=True):").replace(MADE, f"{MADE}        self.cuts = cuts\n")
    assert faults_in_file(tmp_path, "Documents", source) == []


def test_an_encoder_that_others_have_trained_is_left(tmp_path):
    source = MODEL.replace("self.lower(self.words(ids))", "self.lower(ids)")
    source = source.replace(MADE, "").replace("        self.lower, self.upper = Pooled", "        self.upper = Pooled")
    source = source.replace(
        "(width, heads), Pooled(width, heads)", "(width, heads)\n        self.lower = Lower(width, heads)"
    )
    lower = MADE.replace("vocab_size", "60") + "        self.mixed = Pooled(width, heads)\n"
    lower = f"class Lower(nn.Module):\n    def __init__(self, width, heads):\n        super().__init__()\n{lower}"
    lower += "\n    def forward(self, ids):\n        return self.mixed(self.words(ids))\n\n\n"
    assert faults_in_file(tmp_path, "Documents", source.replace("class Documents", f"{lower}class Documents")) == []
