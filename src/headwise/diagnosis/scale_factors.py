"""Scale factors: the constant by which each operation of a run multiplies, measured on other numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from torch import nn

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, chain_of, is_layer, is_scores, makers
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.operation_factors import (
    EXACT,
    factor_of,
    factor_of_constant,
    is_shift,
    is_whole,
    keeps_length,
    product_factor,
    sum_factor,
)
from headwise.diagnosis.score_path import plain_scores, way_of

__all__ = ["Factor", "Scale", "scales"]


# with these a softmax that is written by hand begins
EXPONENTIALS = frozenset({"exp", "exp_"})


@dataclass(frozen=True)
class Factor:
    """An operation that multiplies by a constant."""

    entry: MarkedOp
    value: float


@dataclass(frozen=True)
class Scale:
    """By how much an attention multiplies q · k before its softmax. bent: an operation that is not a multiplication
    stands between, such as a norm, a cap or a mixing of heads. after: factors between the softmax and the projection.
    floored: an operation that keeps whole numbers only. is_related: it is bent only by other scores that are added, as
    those of relative places, or by a mixture of heads: the factor counts, but 1 or a share of terms may be meant.
    """

    attention: AttentionOps
    total: float
    factors: tuple[Factor, ...]
    after: tuple[Factor, ...]
    width: int
    bent: bool = False
    normed: bool = False
    floored: MarkedOp | None = None
    is_related: bool = False


def scales(first: Run, second: Run) -> list[Scale]:
    """The scale of each attention, from two runs that differ only in the numbers they were given."""
    pairs = list(zip(attentions(first), attentions(second), strict=False))
    return [_scale(first, second, a, b) for a, b in pairs if len(a.path) == len(b.path) and (a.scores or a.fused)]


def _scale(first: Run, second: Run, a: AttentionOps, b: AttentionOps) -> Scale:
    factors: list[Factor] = []
    a, b = plain_scores(a), plain_scores(b)
    is_normed = False
    chains = [
        {side.name: chain_of(run, side.entry, side.operand) for side in sides(attention)}
        for run, attention in ((first, a), (second, b))
    ]
    for name in "qk":
        if name in chains[0]:
            side_factors, is_side_normed = _side_factors(first, a, name, chains[0], chains[1].get(name, []))
        else:
            side_factors, is_side_normed = _constant_factors(first, a, name)
        factors += side_factors
        is_normed = is_normed or is_side_normed
    width = _width(a)
    way = _Way([], is_bent=_is_many(a))
    if a.fused:
        declared = a.context.options.get("scale")
        factors.append(Factor(a.context, float(declared) if declared is not None else width**-0.5))
    else:
        way = _way(a, b)
        factors += way.factors
    after = _after(first, second, a, b)
    total = prod((factor.value for factor in factors), start=1.0)
    return Scale(a, total, tuple(factors), after, width, way.is_bent, is_normed, way.floored, way.is_related)


def _side_factors(
    run: Run, attention: AttentionOps, name: str, chains: Mapping[str, list[MarkedOp]], chain: list[MarkedOp]
) -> tuple[list[Factor], bool]:
    """The factors of queries or keys, and whether these are normalised behind their projection. chains: of the sides in
    the first run; chain: of this side in the second.
    """
    factors: list[Factor] = []
    is_normed = False
    shared = {op.at for op in chains.get("v", [])}
    projected = max((op.at for op in chains[name] if _projects(attention, op)), default=-1)
    for op, twin in zip(chains[name], chain, strict=False):
        if op.at in shared or op.is_movement or (op.joint is not None and not op.joint.is_entrywise):
            continue
        value = factor_of(op, twin)
        if value is None:
            is_normed = is_normed or (op.at > projected and not keeps_length(op))
        elif abs(value - 1) > EXACT and _is_passed(run, attention, name, op) and not _is_of_layer(run, attention, op):
            factors.append(Factor(op, value))
    return factors, is_normed


def _constant_factors(run: Run, attention: AttentionOps, name: str) -> tuple[list[Factor], bool]:
    """The factors of queries or keys that depend on no argument, as learned ones, back to their projection; and whether
    something else than a multiplication stands between.
    """
    entry = attention.context if attention.fused else attention.scores
    number = None if entry is None or is_layer(entry) else _number_of(entry, attention, name)
    factors: list[Factor] = []
    while entry is not None and number is not None:
        entry = next(iter(makers(run, entry.at, number)), None)
        if entry is None or not entry.inputs or any(isinstance(t, nn.Parameter) and t.ndim > 1 for t in entry.tensors):
            # what is learned, or the product with weights that are
            break
        value = factor_of_constant(entry)
        if value is None:
            return factors, True
        if abs(value - 1) > EXACT:
            factors.append(Factor(entry, value))
        number = max(entry.inputs, key=lambda tensor: prod(tensor.shape)).number
    return factors, False


def _number_of(entry: MarkedOp, attention: AttentionOps, name: str) -> int | None:
    """The number of an operand of scores; None: it is not known which it is."""
    if attention.fused:
        return entry.inputs["qk".index(name)].number
    if entry.joint is None:
        return None
    operand = entry.joint.a if (name == "q") == (attention.looks == "x") else entry.joint.b
    pairs = zip(entry.tensors, entry.inputs, strict=True)
    return next((seen.number for tensor, seen in pairs if tensor is operand), None)


@dataclass
class _Way:
    """What is done to scores before their softmax, as in Scale."""

    factors: list[Factor]
    is_bent: bool = False
    floored: MarkedOp | None = None
    is_related: bool = False


def _way(a: AttentionOps, b: AttentionOps) -> _Way:
    ways = [way_of(attention) for attention in (a, b)]
    ops, twins = (
        list(attention.path) if way is None else sorted((*way.way, *way.sums), key=lambda op: op.at)
        for way, attention in zip(ways, (a, b), strict=True)
    )
    sums = {total.at for way in ways if way is not None for total in way.sums}
    out = _Way([])
    for op, twin in zip(ops, twins, strict=False):
        if op is a.softmax or (a.softmax is None and op.last in EXPONENTIALS):
            break
        value = product_factor(op, twin) if op is a.scores else factor_of(op, twin)
        if op.at in sums:
            # what cannot be told of a sum is that of its terms
            value = sum_factor(op, twin) or 1.0
        # of rows in which one key is seen, a shift leaves nothing
        if value in (None, 0.0) and is_shift(op):
            continue
        if value is None and is_whole(op):
            out.floored = out.floored or op
        elif value is None:
            out.is_bent = True
        elif abs(value - 1) > EXACT:
            out.factors.append(Factor(op, value))
            if value == 0:
                # of nothing, nothing can be said
                break
    # what is added or mixed is no multiplication either
    out.is_related = None not in ways and len(ops) == len(twins) and not out.is_bent
    out.is_bent = out.is_bent or None not in ways or _is_many(a)
    return out


def _is_many(attention: AttentionOps) -> bool:
    """Whether there are two softmaxes, or two products of data, which are no one scale's."""
    return max(sum(entry.last == "softmax" for entry in attention.path), sum(map(is_scores, attention.path))) > 1


def _is_passed(run: Run, attention: AttentionOps, name: str, entry: MarkedOp) -> bool:
    """Whether all of an operand passes an operation; what only a part passes, as in a rotation, is no scale."""
    side = next(operand for operand in sides(attention) if operand.name == name)
    place = next(at for at, tensor in enumerate(side.entry.tensors) if tensor is side.operand)
    ahead, met = [(side.entry.at, side.entry.inputs[place].number)], {entry.at}
    while ahead:
        before, number = ahead.pop()
        entries = [maker for maker in makers(run, before, number) if maker.handed_on]
        if not entries:
            return False
        maker = entries[0]
        if maker.at in met:
            continue
        met.add(maker.at)
        if _projects(attention, maker):
            return False
        ahead += [(maker.at, tensor.number) for tensor, _ in maker.handed_on]
    return True


def _projects(attention: AttentionOps, entry: MarkedOp) -> bool:
    """Whether an operation is a product with weights, and no part of the expression that makes the scores."""
    if entry.joint is None or entry.joint.is_entrywise:
        return False
    return attention.scores is None or entry.operation.span != attention.scores.operation.span


def _is_of_layer(run: Run, attention: AttentionOps, entry: MarkedOp) -> bool:
    """Whether an operation is a part of the layer that projects, such as one whose weights are kept in few bits."""
    module = entry.operation.module
    if attention.scores is None or module == attention.scores.operation.module:
        return False
    inside = [op for op in run.seen if op.operation.module == module and op.at < entry.at]
    is_projected = any(any(isinstance(t, nn.Parameter) for t in op.tensors) for op in inside)
    return is_projected and any(m is None for m in entry.given)


def _width(attention: AttentionOps) -> int:
    if attention.fused:
        return int(attention.context.tensors[0].shape[-1])
    joint = None if attention.scores is None else attention.scores.joint
    if joint is None:
        return 1
    return prod(joint.a.shape[joint.left.index(axis)] for axis in joint.summed)


def _after(first: Run, second: Run, a: AttentionOps, b: AttentionOps) -> tuple[Factor, ...]:
    out = []
    path = zip(a.path, b.path, strict=True)
    behind = a.softmax is None
    for op, twin in path:
        if op is a.softmax:
            behind = True
            continue
        value = factor_of(op, twin) if behind and a.softmax is not None else None
        if value is not None and abs(value - 1) > EXACT:
            out.append(Factor(op, value))
    ops = [op for op in first.seen if op.at > a.context.at]
    twins = [op for op in second.seen if op.at > b.context.at]
    for op, twin in zip(ops, twins, strict=False):
        if op.joint is not None or op.last in ("layer_norm", "rms_norm"):
            break
        if op.is_movement or not op.is_marked:
            continue
        value = factor_of(op, twin)
        if value is not None and abs(value - 1) > EXACT:
            out.append(Factor(op, value))
    return tuple(out)
