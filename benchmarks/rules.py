"""Who may attend to whom, said for both sides, and the definition that both are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import headwise as hw
from benchmarks.harness import Tensors
from headwise.testing import plain_attention

# the definition is computed by as many rows at once, and of long inputs for about as many rows in all
ROWS = 256


@dataclass(frozen=True)
class Rule:
    """Who may attend to whom: ours as a mask, and as a function of query i, key j and L for everyone else."""

    name: str
    mask: Callable[[int], hw.Mask]
    holds: Callable[[Tensor, Tensor, int], Tensor]
    # torch has an argument of its own for this rule
    is_causal: bool = False

    def allowed(self, rows: Tensor, L: int) -> Tensor:
        """Bool (rows, L), or (1, L) where all rows are alike."""
        return self.holds(rows[:, None], torch.arange(L)[None], L)


CAUSAL = Rule("causal", lambda L: hw.causal(), lambda i, j, L: j <= i, is_causal=True)
PADDED = Rule("half padded", lambda L: hw.keys(torch.arange(L)[None] < L // 2), lambda i, j, L: j < L // 2)


def window(keys: int) -> Rule:
    """The most recent keys."""
    return Rule(f"window({keys})", lambda L: hw.window(keys=keys), lambda i, j, L: (j <= i) & (j > i - keys))


def documents(count: int) -> Rule:
    """As many documents of one length in a row."""
    return Rule(
        f"{count} documents",
        lambda L: hw.documents(torch.arange(L)[None] * count // L),
        lambda i, j, L: i * count // L == j * count // L,
    )


def definition(
    qkv: Tensors, rule: Rule | None, rows: Tensor, dtype: torch.dtype, weight_of_out: Tensor | None = None
) -> Tensors:
    """Attention in dtype: these rows of the output; given its weight in a loss, also the gradients of q, k and v.

    By some rows of one head at a time, so that no more of a map is held.
    """
    leaves = [t.detach().to(dtype).requires_grad_(weight_of_out is not None) for t in qkv]
    q, k, v = leaves
    whole = q.detach().new_zeros(*q.shape[:2], len(rows), v.shape[3])
    for h in range(q.shape[1]):
        head = slice(h, h + 1)
        for start in range(0, len(rows), ROWS):
            some = rows[start : start + ROWS]
            allowed = None if rule is None else rule.allowed(some, k.shape[2])
            out = plain_attention(q[:, head, some], k[:, head], v[:, head], allowed=allowed)
            if weight_of_out is not None:
                out.backward(weight_of_out[:, head, some].to(dtype))
            whole[:, head, start : start + ROWS] = out.detach()
    return whole, *(t.grad for t in leaves if t.grad is not None)


def sampled_rows(L: int) -> Tensor:
    """All rows of a short input, and about ROWS of a long one, by an odd step, so that they fall anywhere in a tile."""
    return torch.arange(0, L, L // ROWS | 1)
