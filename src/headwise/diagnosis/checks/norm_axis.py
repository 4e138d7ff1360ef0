"""Norm axis: whether queries and keys are given unit length along their features, and not along tokens or heads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from headwise.dataflow import MarkedOp, Run, attentions, chain_of, is_constant
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["norm_suspects"]

# what says that a norm goes over tokens
MEANT = re.compile(r"whiten|(over|along|across) (the |all )?(tokens|time|sequence|positions|places)", re.IGNORECASE)
# what F.normalize takes where it is told no axis
DEFAULT_AXIS = 1


def norm_suspects(run: Run) -> list[Suspect]:
    """Queries or keys that are divided by a norm over tokens, each of which then depends on all others, or over heads,
    where nothing says that this is meant.
    """
    try:
        if MEANT.search(inspect.getsource(type(run.target))):
            return []
    except (OSError, TypeError):
        pass
    for attention in attentions(run):
        found = dict(pair for side in sides(attention) if side.name != "v" for pair in _elsewhere(run, side))
        for kind in dict.fromkeys(found.values()):
            entries = [entry for at, entry in enumerate(run.seen) if found.get(at) == kind]
            stand_ins: dict[Site, Callable[..., Any]] = {entry.site: _along_features(entry) for entry in entries}
            return [Suspect(kind, entries[0].span, Repair(stand_ins))]
    return []


def _elsewhere(run: Run, side: Any) -> Iterator[tuple[int, str]]:
    """The norms of an operand that go over another axis than that of its features, and what that is called."""
    for entry in chain_of(run, side.entry, side.operand):
        marks = entry.given[0] if entry.given else None
        if entry.last != "normalize" or marks is None or marks.kind != "token":
            continue
        t, f = marks.arrays["t"], marks.arrays["f"]
        axis, last = _axis_of(entry, t.ndim), t.ndim - 1
        if axis is None or axis == last or not is_constant(t, last):
            continue
        if not is_constant(t, axis):
            yield entry.at, "norm-over-tokens"
        elif not is_constant(f, axis) and _along(f, last) == set(side.f[0, 0].tolist()) != _along(f, axis):
            # the product sums the features, and these lie along the last axis
            yield entry.at, "norm-over-heads"


def _along(marks: Tensor, axis: int) -> set[int]:
    """The marks along an axis, at the beginning of all others."""
    return set(marks.movedim(axis, 0).flatten(1)[:, 0].tolist())


def _axis_of(entry: MarkedOp, count: int) -> int | None:
    """The axis along which a norm goes; None: it is of several, or p=1: a sum that shares keys out."""
    args, options = entry.rules
    axis = options.get("dim", args[2] if len(args) > 2 else DEFAULT_AXIS)
    p = options.get("p", args[1] if len(args) > 1 else 2.0)
    return int(axis) % count if isinstance(axis, int) and p != 1 else None


def _along_features(entry: MarkedOp) -> Callable[..., Any]:
    args, options = entry.rules
    p = options.get("p", args[1] if len(args) > 1 else 2.0)

    def right(x: Tensor, *_: Any, **__: Any) -> Tensor:
        return F.normalize(x, p=p, dim=-1)

    return right
