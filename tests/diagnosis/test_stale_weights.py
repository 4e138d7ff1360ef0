"""Stale weights: what eval() or a call in it keeps of the weights is used after they have changed."""

import pytest

from tests.diagnosis.written import blamed_in, line_of

SOURCE = '''import torch
from torch import nn


class Attention(nn.Module):
    """Attention over a grid, with a learned bias for each distance along it."""

    def __init__(self, d_model, n_heads, n_patches):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.qkv_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.bias = nn.Parameter(torch.zeros(n_heads, n_patches))
        places = torch.arange(n_patches)
        self.register_buffer("distance", (places[:, None] - places).abs(), persistent=False)
        self.looked_up = None

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if not mode and self.looked_up is None:
            self.looked_up = self.bias[:, self.distance]
        return self

    def forward(self, x):
        """x: (batch, n_patches, d_model)."""
        q, k, v = (t.unflatten(2, (self.n_heads, -1)).transpose(1, 2) for t in self.qkv_proj(x).chunk(3, dim=-1))
        bias = self.bias[:, self.distance] if self.training else self.looked_up
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + bias).softmax(dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
'''
KEPT = "            self.looked_up = self.bias[:, self.distance]\n"
WHEN = "        if not mode and self.looked_up is None:\n"
SWITCH = SOURCE[SOURCE.index("    @torch.no_grad()") : SOURCE.index("    def forward")]
CHOICE = "        bias = self.bias[:, self.distance] if self.training else self.looked_up\n"
CALLED = """        if self.looked_up is None or self.training:
            self.looked_up = self.bias[:, self.distance]
        bias = self.looked_up
"""
LAZY = """        if not self.training and self.looked_up is None:
            self.looked_up = self.bias[:, self.distance]
        bias = self.bias[:, self.distance] if self.training else self.looked_up
"""
STORED = """        if not self.training and len(x) not in self.bias_cache:
            self.bias_cache[len(x)] = self.bias[:, self.distance]
        bias = self.bias[:, self.distance] if self.training else self.bias_cache[len(x)]
"""


def changed(*changes: tuple[str, str]) -> str:
    source = SOURCE
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ([], "self.looked_up = self.bias[:, self.distance]"),
        # a call in eval mode keeps it
        ([(SWITCH, ""), (CHOICE, LAZY)], "self.looked_up = self.bias[:, self.distance]"),
        # whatever it is called, and in whatever it is kept
        ([(SWITCH, ""), ("        self.looked_up = None\n", "        self.bias_cache = {}\n"), (CHOICE, STORED)],
         "self.bias_cache[len(x)] = "),
    ],
    ids=["of a switch", "of a call", "in a dictionary"],
)  # fmt: skip
def test_what_is_kept_of_weights_that_have_changed_is_told_where_it_is_kept(changes, part) -> None:
    source = changed(*changes)
    assert blamed_in(source, "Attention") == [("stale-weights", line_of(source, part))]


@pytest.mark.parametrize(
    "changes",
    [
        # made anew at each switch, or dropped by train()
        [(WHEN, "        if not mode:\n")],
        [(WHEN, "        self.looked_up = None\n        if not mode:\n")],
        # training looks it up again, and the next evaluation after it
        [(SWITCH, "    def train(self, mode=True):\n        self.looked_up = None\n"
                  "        return super().train(mode)\n\n"),
         (CHOICE, CALLED)],
        # a call in training drops it
        [(SWITCH, ""), (CHOICE, "        if self.training:\n            self.looked_up = None\n" + LAZY)],
        # eval() alone makes it anew
        [(SWITCH, "    def eval(self):\n        super().eval()\n"
                  "        self.looked_up = self.bias[:, self.distance].detach()\n        return self\n\n")],
        # a first call sets a weight, which is learned then
        [(SWITCH, ""),
         ("        self.looked_up = None\n",
          "        self.looked_up = None\n        self.step = nn.Parameter(torch.zeros(1))\n"),
         (CHOICE, "        if self.looked_up is None:\n            self.looked_up = True\n"
                  "            with torch.no_grad():\n"
                  "                self.step.copy_(self.qkv_proj.weight.abs().mean())\n"
                  "        bias = self.bias[:, self.distance] * self.step\n")],
        # nothing of it follows the weights
        [(SWITCH, ""), (CHOICE, "        if self.looked_up is None:\n            self.looked_up = self.distance.cos()\n"
                                "        bias = self.bias[:, self.distance] + self.looked_up\n")],
        # what each turn of a training changes, whatever the weights are
        [(SWITCH, "    def train(self, mode=True):\n        self.turns = getattr(self, 'turns', 0) + mode\n"
                  "        return super().train(mode)\n\n"),
         (CHOICE, "        bias = self.bias[:, self.distance] * self.turns\n")],
    ],
    ids=["anew", "dropped", "dropped for a call", "dropped by a call", "eval alone", "a weight", "of no weight",
         "a schedule"],
)  # fmt: skip
def test_what_is_made_anew_from_the_weights_is_right(changes) -> None:
    assert blamed_in(changed(*changes), "Attention") == []
