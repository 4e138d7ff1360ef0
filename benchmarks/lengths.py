"""Time and memory of one call as inputs grow: what the picture is drawn from."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.harness import Absent, Case, Cases, Tensors, same_numbers
from benchmarks.kernels import Shape, inputs
from benchmarks.rules import Rule, definition, sampled_rows, window
from headwise.testing import plain_attention

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# beyond it, scores, wide scores and weights together take more than 6 GB
LONGEST_EAGER = 8192
# from here on a quick look leaves out
LONG = 2048
WINDOW = 128


def lengths() -> Cases:
    """Each length beside SDPA, beside eager code, and with a window beside SDPA with its mask."""
    for L in LENGTHS:
        yield beside(Shape(L), "SDPA")
        yield beside(Shape(L), "SDPA", window(WINDOW))
        if L <= LONGEST_EAGER:
            yield beside(Shape(L), "eager")
        else:
            need = 12 * Shape(L).H * L**2 / 1e9
            yield Absent("forward", "eager", str(Shape(L)), f"not run: it would hold {need:.0f} GB")


def beside(at: Shape, name: str, rule: Rule | None = None) -> Case:
    """One forward in bfloat16 beside SDPA or eager code, timed and weighed."""
    dtype = torch.bfloat16
    q, k, v, _ = inputs(at, dtype)
    mask = None if rule is None else rule.mask(at.L)
    allowed = None if rule is None else rule.allowed(torch.arange(at.L), at.L)
    rows = sampled_rows(at.L)

    def ours() -> Tensors:
        with torch.no_grad():
            return (hw.attention(q, k, v, mask=mask),)

    def theirs() -> Tensors:
        with torch.no_grad():
            if name == "eager":
                return (plain_attention(q, k, v, allowed=allowed),)
            return (F.scaled_dot_product_attention(q, k, v, attn_mask=allowed),)

    def some(run: Callable[[], Tensors]) -> Callable[[], tuple[Tensor]]:
        return lambda: (run()[0][:, :, rows],)

    check = same_numbers(some(ours), some(theirs), lambda dtype: definition((q, k, v), rule, rows, dtype), dtype)
    called = "forward" if rule is None else f"{rule.name}, forward"
    return Case(called, name, str(at), "bfloat16", ours, theirs, check, is_weighed=True, is_long=at.L >= LONG)
