"""Attributes of the Attention operator: numbers that no version of it knows are refused."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["DOUBLE", "check_attributes", "check_opset", "check_scores"]

OPSETS = (23, 24, 25)
# the numbers of onnx.TensorProto for the precisions that the operator may take its softmax in
FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16


def check_opset(opset: int, nonpad_kv_seqlen: Tensor | None, left: int, right: int) -> None:
    """Raise unless a version of the operator has what is asked of it."""
    if not _is_among(opset, OPSETS):
        raise ArgumentError(
            f"opset must be one of the versions of the operator, {', '.join(map(str, OPSETS))}; got {opset!r}: a later "
            "opset takes the last version before it"
        )
    if opset < 24 and nonpad_kv_seqlen is not None:
        raise ArgumentError(
            f"nonpad_kv_seqlen came with opset 24, but opset={opset}: give it as a mask, or raise opset"
        )
    if opset < 25 and (left, right) != (-1, -1):
        raise ArgumentError(
            f"windows came with opset 25, but left_window_size={left} and right_window_size={right} with "
            f"opset={opset}: give them as a mask, or raise opset"
        )


def check_attributes(is_causal: int, left: int, right: int, mode: int | None, precision: int | None) -> None:
    """Raise unless flags, windows, mode and precision are numbers of the operator."""
    if is_causal not in (0, 1):
        raise ArgumentError(f"is_causal must be 0 or 1; got {is_causal!r}")
    for name, size in (("left_window_size", left), ("right_window_size", right)):
        if type(size) is not int or size < -1:
            raise ArgumentError(f"{name} counts keys, so it must be 0 or more, or -1 for all; got {size!r}")
    if mode is not None and not _is_among(mode, (0, 1, 2, 3)):
        raise ArgumentError(f"qk_matmul_output_mode must be 0, 1, 2 or 3, or None for no such output; got {mode!r}")
    if precision is not None and not _is_among(precision, (FLOAT, FLOAT16, DOUBLE, BFLOAT16)):
        raise ArgumentError(
            f"softmax_precision must be {FLOAT} (float32), {FLOAT16} (float16), {DOUBLE} (float64) or {BFLOAT16} "
            f"(bfloat16); got {precision!r}"
        )


def check_scores(scale: float | None, softcap: float) -> None:
    """Raise unless scale and softcap are numbers that scores can take."""
    if scale is not None and not (_is_number(scale) and 0 <= scale < math.inf):
        raise ArgumentError(f"scale must be 0 or more, as the operator takes its square root; got {scale!r}")
    if not (_is_number(softcap) and 0 <= softcap < math.inf):
        raise ArgumentError(f"softcap must be greater than 0, or 0.0 for no cap; got {softcap!r}")


def _is_among(value: Any, numbers: tuple[int, ...]) -> bool:
    """Whether a value is one of some whole numbers, and written as one: True and 1.0 equal 1."""
    return type(value) is int and value in numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
