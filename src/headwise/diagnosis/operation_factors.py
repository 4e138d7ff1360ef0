"""Operation factors: what one operation does to the numbers that it takes, seen from two runs on different ones."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp

__all__ = [
    "EXACT", "factor_of", "factor_of_constant", "is_shift", "is_whole", "keeps_length", "product_factor", "sum_factor",
]  # fmt: skip

# some turn scores into float32 on the way
EXACT = 1e-3
NEAR = 1e-9
# what is below hides a key
HIDDEN = -1e6
# what puts something beside numbers and leaves them as they are
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "pad"})
DIFFERENCES = frozenset({"-", "-=", "sub", "sub_"})
PRODUCTS = frozenset({"*", "*=", "mul", "mul_", "multiply"})


def product_factor(mine: MarkedOp, entry: MarkedOp) -> float | None:
    """By how much a contraction multiplies the plain product."""
    products = []
    for op in (mine, entry):
        joint = op.joint
        if joint is None:
            return None
        a, b = (op.inputs[place].value for place in _operands(op))
        if a is None or b is None:
            return None
        products.append(torch.einsum(f"{joint.left},{joint.right}->{joint.out}", a, b))
    return _ratio(products[1] - products[0], _output_of(entry) - _output_of(mine))


def sum_factor(mine: MarkedOp, entry: MarkedOp) -> float | None:
    """By how much a sum of two tensors multiplies both; None: it does something else."""
    sums = []
    for op in (mine, entry):
        values = [operand.value for operand in op.inputs]
        if len(values) != 2 or values[0] is None or values[1] is None:
            return None
        sums.append(values[0] - values[1] if op.name in DIFFERENCES else values[0] + values[1])
    if sums[0].shape != _output_of(mine).shape or sums[1].shape != _output_of(entry).shape:
        return None
    return _ratio(sums[1] - sums[0], _output_of(entry) - _output_of(mine))


def _operands(entry: MarkedOp) -> list[int]:
    joint = entry.joint
    return (
        [] if joint is None else [next(at for at, t in enumerate(entry.tensors) if t is x) for x in (joint.a, joint.b)]
    )


def factor_of(mine: MarkedOp, entry: MarkedOp) -> float | None:
    """The constant by which an operation multiplies; None: it does something else."""
    if not mine.outputs or not entry.outputs:
        return 1.0
    if mine.is_movement or mine.last in JOINS:
        return 1.0
    place = next((at for at, each in enumerate(mine.given) if each is not None and each.kind != "lost"), None)
    if place is None or place >= len(entry.inputs):
        return None
    before, after = mine.inputs[place].value, entry.inputs[place].value
    output, other_output = _output_of(mine), _output_of(entry)
    if before is None or after is None or not before.is_floating_point() or not output.is_floating_point():
        return 1.0 if mine.outputs[0].shape == mine.inputs[place].shape else None
    if before.shape != output.shape:
        before, after, output, other_output = _aligned(before, after, output, other_output)
        if before.shape != output.shape:
            return None
    kept = _kept(mine, output.shape)
    if _is_masked(output):
        kept = kept & output.isfinite() & other_output.isfinite() & (output > HIDDEN) & (other_output > HIDDEN)
    if not bool(kept.all()):
        before, after, output, other_output = before[kept], after[kept], output[kept], other_output[kept]
    if torch.equal(before, after):
        # what is learned is the same in both runs
        return _ratio(before, output)
    return _ratio(after - before, other_output - output)


def factor_of_constant(entry: MarkedOp) -> float | None:
    """The factor of an operation on what depends on no argument, seen from one run; None: it does something else."""
    if entry.is_movement:
        return 1.0
    before = max((tensor.value for tensor in entry.inputs if tensor.value is not None), key=Tensor.numel, default=None)
    after = entry.outputs[0].value if entry.outputs else None
    if before is None or after is None or before.shape != after.shape or not after.is_floating_point():
        return None
    return _ratio(before, after)


def _kept(entry: MarkedOp, shape: torch.Size) -> Tensor:
    """Where a multiplication by ones and zeros, as by a mask, leaves its entries; everywhere for other operations."""
    if entry.name in PRODUCTS:
        for operand, marks in zip(entry.inputs, entry.given, strict=True):
            value = None if marks is not None or operand.value is None else operand.value
            if value is not None and value.numel() > 1 and bool(((value == 0) | (value == 1)).all()):
                return (value != 0).expand(shape)
    return torch.ones((), dtype=torch.bool).expand(shape)


def _aligned(before: Tensor, after: Tensor, output: Tensor, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values before and after an operation that also grew, where the one is a broadcast of the other."""
    try:
        return before.expand(output.shape), after.expand(output.shape), output, tensor
    except RuntimeError:
        return before, after, output, tensor


def _is_masked(value: Tensor) -> bool:
    return not bool(value.isfinite().all()) or bool((value < HIDDEN).any())


def _ratio(before: Tensor, after: Tensor) -> float | None:
    before, after = before.double().flatten(), after.double().flatten()
    if before.numel() == 0 or float(before.abs().max()) == 0:
        return None
    steady = before.abs() > 1e-3 * before.abs().max()
    if not bool(steady.any()):
        # with a NaN nothing is steady
        return None
    ratios = after[steady] / before[steady]
    middle = float(ratios.median())
    return middle if float((ratios - middle).abs().max()) <= EXACT * max(1.0, abs(middle)) else None


def keeps_length(entry: MarkedOp) -> bool:
    """Whether an operation is part of a rotation, or adds: it is no norm."""
    return entry.last not in (
        "layer_norm", "rms_norm", "normalize", "div", "__truediv__", "norm", "rsqrt", "group_norm", "vector_norm",
        "mean", "true_divide", "__idiv__", "div_", "batch_norm", "softmax",
    )  # fmt: skip


def is_shift(entry: MarkedOp) -> bool:
    """Whether an operation moves all scores of a row alike, as what is taken off before an exponential does; or is
    what finds by how much.
    """
    output = _output_of(entry)
    before = next((tensor.value for tensor in entry.marked_inputs), None)
    if before is None or not output.is_floating_point() or not before.is_floating_point():
        return False
    if output.shape != before.shape:
        return output.ndim == before.ndim and output.shape[-1] == 1 < before.shape[-1]
    # to what hides a key a small number adds nothing
    kept = (
        (before > HIDDEN) & ~(before == float("inf"))
        if _is_masked(before)
        else torch.ones_like(before, dtype=torch.bool)
    )
    far = (output - before).nan_to_num(nan=float("inf"))
    low, high = (far.masked_fill(~kept, -sign * float("inf")).mul(sign).amax(dim=-1).mul(sign) for sign in (-1, 1))
    return bool(kept.any()) and bool((high - low < NEAR)[kept.any(dim=-1)].all())


def is_whole(entry: MarkedOp) -> bool:
    """Whether an operation keeps whole numbers only."""
    output = _output_of(entry)
    before = next((tensor.value for tensor in entry.marked_inputs), None)
    if before is None or output.shape != before.shape or not before.is_floating_point():
        return False
    visible = output.isfinite() & (output > -1e4)
    usable, before = output[visible], before.expand(output.shape)[visible]
    return usable.numel() > 0 and bool((usable == usable.round()).all()) and not bool((before == before.round()).all())


def _output_of(entry: MarkedOp) -> Tensor:
    value = entry.outputs[0].value
    if value is None:
        raise ValueError("a run whose values are asked for must have been recorded with them")
    return value
