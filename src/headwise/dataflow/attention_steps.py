"""Attention steps: the role of each operation of a run in attention, by its dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from headwise.dataflow.index_maps import is_movement
from headwise.dataflow.marked_operations import ADDITIONS
from headwise.dataflow.provenance import Origin
from headwise.recording import Operation

__all__ = ["Axes", "kinds"]

# the axis names of the inputs and of the outputs of an operation
Axes = tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]

PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "baddbmm", "addmm", "einsum", "tensordot"})
DROPOUTS = frozenset({"dropout", "dropout_", "alpha_dropout", "feature_dropout"})
SCALES = frozenset({"/", "*", "/=", "*=", "div", "mul", "div_", "mul_", "multiply", "divide"})
FILLS = frozenset({"masked_fill", "masked_fill_", "where", "masked_scatter"})
SUMS = frozenset({"+", "-", "+=", "-=", "add", "sub", "add_", "sub_"})
NORMS = frozenset({"layer_norm", "rms_norm", "normalize"})
TURNS = frozenset({"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "rearrange"})
PARTS = frozenset({"chunk", "split", "unbind", "index", "select", "narrow", "tensor_split", "split_with_sizes"})
COPIES = frozenset({"expand", "expand_as", "repeat", "repeat_interleave", "tile", "broadcast_to", "repeat_kv"})
JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
# an additive mask has at most this value at a masked pair
HIDDEN = -1e4


@dataclass
class _Flow:
    """The roles of tensors, by number. scores: on the way to a softmax; weights: after it; context: weighted sums."""

    scores: set[int] = field(default_factory=set)
    weights: set[int] = field(default_factory=set)
    context: set[int] = field(default_factory=set)


def kinds(operations: Sequence[Operation], axes: Sequence[Axes], sources: dict[int, Origin]) -> list[str]:
    """The role of each operation: "project", "split", "scores", …; "": it has none in attention."""
    softmaxes = _softmaxes(operations)
    between, scores = _before(softmaxes, operations)
    flow = _Flow()
    out = []
    for at, (operation, names) in enumerate(zip(operations, axes, strict=True)):
        kind = (
            "softmax"
            if at in softmaxes
            else _kind(operation, names, sources, flow, is_scores=at in scores, is_between=at in between)
        )
        out.append(kind)
        _follow(operation, kind, flow)
    return out


def _softmaxes(operations: Sequence[Operation]) -> set[int]:
    """The indices of softmax calls, and of quotients of a tensor by its sum."""
    indices, sums = set(), {}
    for at, operation in enumerate(operations):
        input_numbers = [tensor.number for tensor in operation.inputs]
        if "softmax" in _last(operation) and input_numbers:
            indices.add(at)
        elif operation.name == "sum" and input_numbers and operation.outputs:
            sums[operation.outputs[0].number] = input_numbers[0]
        elif (
            operation.name in ("/", "/=", "div", "div_")
            and len(input_numbers) == 2
            and sums.get(input_numbers[1]) == input_numbers[0]
        ):
            indices.add(at)
    return indices


def _before(softmaxes: set[int], operations: Sequence[Operation]) -> tuple[set[int], set[int]]:
    """The operations between a product and a softmax, and the products."""
    between, scores = set(), set()
    for at in softmaxes:
        wanted = {operations[at].inputs[0].number}
        for place in range(at - 1, -1, -1):
            operation = operations[place]
            if place in softmaxes or not wanted & (operation.results | set(operation.writes)):
                continue
            if _last(operation) in PRODUCTS:
                scores.add(place)
                continue
            between.add(place)
            sizes = {tensor.shape for tensor in operation.outputs}
            wanted |= {
                tensor.number for tensor in operation.inputs if tensor.shape in sizes or is_movement(operation.function)
            }
    return between, scores


def _kind(
    operation: Operation,
    axes: Axes,
    sources: dict[int, Origin],
    flow: _Flow,
    *,
    is_scores: bool,
    is_between: bool,
) -> str:
    name, last = operation.name, _last(operation)
    input_numbers = operation.taken
    has_weight = any(sources.get(tensor.number, Origin("made")).kind == "parameter" for tensor in operation.inputs)
    if last == "scaled_dot_product_attention":
        return "attention"
    if last in DROPOUTS:
        return "dropout"
    if last == "linear" or (last in PRODUCTS and has_weight):
        return "project_out" if input_numbers & flow.context else "project"
    if last in PRODUCTS:
        return "mix" if input_numbers & flow.weights else "scores" if is_scores else "product"
    if name in FILLS:
        return "mask_weights" if input_numbers & flow.weights else "mask"
    if name in SUMS and is_between and _hides(operation, flow):
        return "mask"
    if name in ADDITIONS and is_between:
        return "bias"
    if name in SCALES and not input_numbers & (flow.weights | flow.context):
        return (
            "scale"
            if sum(tensor.value is not None and tensor.value.numel() > 1 for tensor in operation.inputs) == 1
            else ""
        )
    if last in NORMS:
        return "norm"
    if last == "embedding":
        return "embed"
    return _moving(operation, axes, flow)


def _moving(operation: Operation, axes: Axes, flow: _Flow) -> str:
    """The role of an operation that rearranges entries."""
    name, input_axes = operation.name, axes[0][0] if axes[0] else ()
    output_axes = axes[1][0] if axes[1] else ()
    if name in JOINS:
        return "merge" if operation.taken & flow.context else "join"
    if not is_movement(operation.function) and name != "rearrange":
        return ""
    if any(_is_mixed(axis) for axis in output_axes) and not any(_is_mixed(axis) for axis in input_axes):
        return "mixed"
    sizes = [prod(each.shape) for each in (*operation.inputs[:1], *operation.outputs[:1])]
    if name in PARTS and not (name == "index" and sizes[:1] == sizes[1:]):
        return "part"
    if name in COPIES:
        return "copy"
    if _has_heads(output_axes) and not _has_heads(input_axes):
        return "unfold" if any(map(_is_folded, input_axes)) else "split"
    if _has_heads(input_axes) and not _has_heads(output_axes):
        return "fold" if any(map(_is_folded, output_axes)) else "merge"
    return "turn" if name in TURNS else "reshape" if list(input_axes) != list(output_axes) else ""


def _follow(operation: Operation, kind: str, flow: _Flow) -> None:
    """Update the roles of tensors by an operation."""
    input_numbers = operation.taken
    output_numbers = operation.results
    if kind in ("scores", "product", "scale", "mask", "bias"):
        flow.scores |= output_numbers
    if kind == "softmax":
        flow.weights |= output_numbers
    elif kind in ("mix", "attention"):
        flow.context |= output_numbers
    elif kind == "project_out":
        return
    elif kind in ("dropout", "mask", "mask_weights", "scale", "") or is_movement(operation.function):
        shapes = {tensor.shape for tensor in operation.inputs if tensor.number in flow.weights}
        is_moved = is_movement(operation.function)
        if input_numbers & flow.weights:
            flow.weights |= {tensor.number for tensor in operation.outputs if is_moved or tensor.shape in shapes}
        if input_numbers & flow.context:
            flow.context |= output_numbers
    elif kind in ("merge", "join") and input_numbers & flow.context:
        flow.context |= output_numbers


def _hides(operation: Operation, flow: _Flow) -> bool:
    """Whether a sum adds a mask: an operand with large negative values that is no score."""
    return any(_lowest(tensor.value) <= HIDDEN for tensor in operation.inputs if tensor.number not in flow.scores)


def _lowest(value: Tensor | None) -> float:
    if value is None or not value.is_floating_point() or not value.numel():
        return 0.0
    return float(torch.nan_to_num(value, nan=0.0, neginf=2 * HIDDEN).min())


def _has_heads(axes: Sequence[str]) -> bool:
    return any(axis in ("H", "Hkv") for axis in axes)


def _is_folded(axis: str) -> bool:
    """Whether an axis is batch and heads together."""
    factors = axis.split("*")
    return "B" in factors and _has_heads(factors)


def _is_mixed(axis: str) -> bool:
    return axis.startswith("(") and " " in axis


def _last(operation: Operation) -> str:
    return operation.last
