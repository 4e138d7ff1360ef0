"""Normalising: scores filled with -inf for a softmax, which something else than a softmax normalises."""

from __future__ import annotations

from typing import Any

import torch

from headwise.diagnosis.checks.coming import uses
from headwise.diagnosis.checks.sharing import DIVISIONS, OTHERS, key_axis
from headwise.diagnosis.following.anatomy import Attention
from headwise.diagnosis.following.replacing import site_of
from headwise.diagnosis.following.shadow import Seen
from headwise.diagnosis.suspects import Suspect

__all__ = ["normalised"]


def normalised(attention: Attention, reached: set[int]) -> Suspect | None:
    """That weights are normalised by what makes NaN of masked scores, where a softmax would make 0; None: they are not.

    reached: the numbers of the tensors that the mask led to.
    """
    if attention.softmax is not None or attention.fused:
        return None
    maker = next((each for each in attention.path if _makes_nan(each)), None)
    if maker is None or uses(maker, reached) or maker.last not in OTHERS | DIVISIONS:
        return None
    marks = maker.made[0] if maker.made else None
    axis = None if marks is None or marks.kind != "pair" else key_axis(marks, attention)
    if marks is None or axis is None:
        return None
    place = axis - len(marks.shape)

    def right(*args: Any, **options: Any) -> Any:
        return torch.softmax(args[0] if args else options["input"], dim=place)

    said = {"axis": place, "name": maker.last.rstrip("_")}
    return Suspect("softmax-missing", maker.operation.span, {site_of(maker.operation): right}, said=said,
                   words="softmax_replaced")  # fmt: skip


def _makes_nan(entry: Seen) -> bool:
    """Whether an operation is the first that leaves NaN."""
    before, after = ([each.value for each in some if each.value is not None]
                     for some in (entry.operation.inputs, entry.operation.outputs))  # fmt: skip
    return any(bool(each.isnan().any()) for each in after) and not any(bool(each.isnan().any()) for each in before)
