"""Attention functions: those that attention written by hand may begin with, and the arguments with which they may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.watching.contraction import OTHERS, PRODUCTS

__all__ = ["FOLDS", "MEETINGS", "NO_WEIGHTS", "SOFTMAXES", "beginning", "may_meet", "never"]

aten = torch.ops.aten

# whose results are no weights
NO_WEIGHTS: frozenset[Any] = frozenset(
    {
        F.softmin, F.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax,
        aten.log_softmax.int, aten._log_softmax.default,
    }
)  # fmt: skip
SOFTMAXES: frozenset[Any] = NO_WEIGHTS | {
    F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, aten.softmax.int, aten._softmax.default,
    aten._safe_softmax.default,
}  # fmt: skip
# by which queries and keys meet, beside products
MEETINGS = frozenset({"add", "sub", "subtract", "cdist"})
FOLDS = frozenset({"reshape", "view", "flatten"})
# what scores and weights come of; other products only end their way
BEGINNINGS = SOFTMAXES | (PRODUCTS - OTHERS)


def beginning(function: Any) -> Callable[[Sequence[Any]], bool]:
    """Whether a function may begin what is followed, by its arguments."""
    name = str(getattr(function, "__name__", "")).rstrip("_")
    if function in BEGINNINGS or name == "cdist":
        return lambda args: True
    if name in MEETINGS:
        return may_meet
    return may_fold if name in FOLDS else never


def never(_: Sequence[Any]) -> bool:
    """That no arguments begin anything."""
    return False


def may_meet(args: Sequence[Any]) -> bool:
    """Whether a sum may be of queries and keys, each with an axis that the other has not."""
    return len(args) == 2 and all(isinstance(t, Tensor) for t in args) and args[0].shape != args[1].shape


def may_fold(args: Sequence[Any]) -> bool:
    """Whether batch and heads may become one axis, (B, H, L, D) -> (B·H, L, D)."""
    return bool(args) and isinstance(args[0], Tensor) and args[0].ndim == 4
