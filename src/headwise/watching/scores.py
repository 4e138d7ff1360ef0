"""Scores: the queries, keys and rules by which a model computed scores, followed through what it did to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.masks import allowed
from headwise.ops.call import cast_by_autocast
from headwise.watching.axes import Axes, Axis, arranged, merged
from headwise.watching.contraction import Contraction
from headwise.watching.provenance import Ran
from headwise.watching.record import CallRecord

__all__ = ["Groups", "Scores", "scores_after", "scores_of", "storage_of", "version_of"]

# exp of a difference of so much is 0 in float64 too
UNDERFLOW = 800.0

Groups = Sequence[Sequence[Axis]]


class Operand(NamedTuple):
    """A tensor with one dimension, 1 or of its size, for every axis, and after them perhaps one of features."""

    tensor: Tensor
    axes: tuple[Axis, ...]


class ScoreFactor(NamedTuple):
    """One factor of q·k: (axes, D), which of its axes the other factor has not, and whether it is a parameter."""

    operand: Operand
    free: Axis
    is_learned: bool


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores multiplier·f(scale·q·k) + biases where all of `opened` allow, with f = tanh where `scale` is not None.

    lead: their axes but those of queries and keys. weights: what multiplies q·k beside the numbers, such as one
    temperature a head. fills: what stands where `opened` mask. versions: of all tensors, as they were read.
    """

    factors: tuple[ScoreFactor, ScoreFactor]
    lead: tuple[Axis, ...]
    multiplier: float = 1.0
    scale: float | None = None
    weights: tuple[Operand, ...] = ()
    biases: tuple[Operand, ...] = ()
    opened: tuple[Operand, ...] = ()
    fills: tuple[float, ...] = ()
    versions: tuple[tuple[Tensor, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether nothing but q·k and multipliers is in it."""
        return self.scale is None and not self.biases and not self.opened

    def are_unchanged(self) -> bool:
        """Whether every tensor still is as it was read."""
        return all(tensor._version == version for tensor, version in self.versions)

    def reads(self, storage: int) -> bool:
        """Whether a tensor of it lies in this storage."""
        operands = (*(f.operand for f in self.factors), *self.weights, *self.biases, *self.opened)
        return any(storage_of(operand.tensor) == storage for operand in operands)

    def keys(self, key: Axis) -> ScoreFactor | None:
        """The factor whose free axis the softmax runs over; None: neither's, or it has been split."""
        return next((f for f in self.factors if f.free.leaves() == [key]), None)

    def record(self, query: Axis, key: Axis, lead: Groups) -> CallRecord | None:
        """The call of attention whose scores these are; None: there is none that is certain to have them.

        lead: the axes that make up the batch, and those that make up the heads.
        """
        keys = self.keys(key)
        queries = self.factors[0] if keys is self.factors[1] else self.factors[1]
        if keys is None or queries.free.leaves() != [query] or not self.are_unchanged():
            return None
        groups = [list(group) for group in lead]
        q, k = (_four(f.operand, [*groups, [axis]]) for f, axis in ((queries, query), (keys, key)))
        sizes = [math.prod(axis.size for axis in group) for group in groups]
        for weight in self.weights:
            factor = _four(weight, [*groups, [query], [key]])
            if factor.shape[3] != 1:
                return None
            q = q * factor.to(q.dtype)
        q, k = q.expand(*sizes, -1, -1), k.expand(sizes[0], -1, -1, -1)
        scale, softcap = self.multiplier, None
        if self.scale is not None:
            # c·tanh(s·q·k) is softcap·tanh(scale·q·k / softcap)
            scale, softcap = self.scale * self.multiplier, self.multiplier
            if softcap <= 0:
                return None
        every = [*groups, [query], [key]]
        bias, mask = None, None
        for operand in self.biases:
            four = _four(operand, every)
            bias = four if bias is None else bias + four
        for operand in self.opened:
            four = _four(operand, every)
            mask = four if mask is None else mask & four
        record = CallRecord(q, k, None if mask is None else allowed(_compressed(mask)), bias, scale, softcap)
        return record if self._hides(record) and (mask is None or self._leaves_keys(mask)) else None

    def _hides(self, record: CallRecord) -> bool:
        """Whether every finite number that stands for a masked pair is so low that its weight is 0."""
        finite = [fill for fill in self.fills if math.isfinite(fill)]
        if not finite or 0 in (*record.q.shape, *record.k.shape):
            return True
        q, k = (float(t.detach().float().norm(dim=-1).amax()) for t in (record.q, record.k))
        highest = record.softcap if record.softcap is not None else abs(record.scale or 0.0) * q * k
        added = 0.0 if record.attn_bias is None else float(record.attn_bias.detach().float().abs().amax())
        return max(finite) <= -(highest + 2 * added + UNDERFLOW)

    def _leaves_keys(self, mask: Tensor) -> bool:
        """Whether every row has a key, where it is not -inf that masks the others: they would get uniform weights."""
        return all(fill == -math.inf for fill in self.fills) or bool(mask.any(dim=-1).all())


def scores_of(product: Contraction, axes: Axes, is_learned: Callable[[Tensor], bool]) -> Scores | None:
    """The scores that a product of queries and keys is; axes: of its result. None: it is no such product."""
    if len(product.summed) != 1 or any(len(rows) != 1 for rows in product.rows):
        return None
    if any(letter not in product.result + product.summed for letter in "".join(product.letters)):
        return None
    left, right, _ = cast_by_autocast(*product.factors, product.factors[1])
    named = {letter: axes.groups[n][0] for n, letter in enumerate(product.result)}
    factors, versions = [], []
    for side, tensor in enumerate((left, right)):
        letters, free = product.letters[side], product.rows[side]
        order = [n for n, letter in enumerate(letters) if letter != product.summed]
        moved = tensor.permute(*order, letters.index(product.summed))
        operand = Operand(moved, tuple(named[letters[n]] for n in order))
        factors.append(ScoreFactor(operand, named[free], is_learned(product.factors[side])))
        versions += version_of(tensor)
    lead = tuple(named[c] for c in product.result if c not in "".join(product.rows))
    scores = Scores((factors[0], factors[1]), lead, product.multiplier, versions=tuple(versions))
    if product.addend is None:
        return scores
    addend = product.addend if product.of_addend == 1.0 else product.addend * product.of_addend
    return _with(scores, axes, addend, "biases")


def scores_after(scores: Scores, axes: Axes, at: int, ran: Ran) -> Scores | None:
    """The scores after a function of them; at: where among its arguments they are. None: it is not known."""
    rule = RULES.get(ran.name)
    return None if rule is None else rule(scores, axes, at, ran.args, ran.options)


def _multiplied(
    scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any], *, inverse: bool = False
) -> Scores | None:
    if options or len(args) != 2 or (inverse and at == 1):
        return None
    by = _number(args[1 - at])
    if isinstance(by, float):
        if inverse:
            by = math.inf if by == 0 else 1 / by
        if (not scores.is_plain and by <= 0 and scores.opened) or not math.isfinite(by):
            return None
        biases = tuple(Operand(t * by, operand_axes) for t, operand_axes in scores.biases)
        return replace(scores, multiplier=scores.multiplier * by, biases=biases)
    if not isinstance(by, Tensor) or not scores.is_plain:
        return None
    return _with(scores, axes, by.reciprocal() if inverse else by, "weights")


def _divided(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:
    return _multiplied(scores, axes, at, args, options, inverse=True)


def _added(
    scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any], *, sign: float = 1.0
) -> Scores | None:
    if len(args) != 2 or set(options) - {"alpha"} or (at == 1 and (options or sign < 0)):
        return None
    addend, alpha = args[1 - at], sign * float(options.get("alpha", 1))
    if not isinstance(addend, Tensor):
        return None
    if not addend.is_floating_point():
        addend = addend.to(torch.get_default_dtype())
    return _with(scores, axes, addend if alpha == 1.0 else addend * alpha, "biases")


def _subtracted(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:
    return _added(scores, axes, at, args, options, sign=-1.0)


def _filled(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:
    arguments = dict(zip(("input", "mask", "value"), args, strict=False)) | dict(options)
    return _hidden(scores, axes, arguments.get("mask"), arguments.get("value"), is_open=False) if at == 0 else None


def _chosen(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:
    """torch.where(condition, a, b), or a.where(condition, b)."""
    if options or len(args) != 3:
        return None
    if at == 0:
        return _hidden(scores, axes, args[1], args[2], is_open=True)
    return _hidden(scores, axes, args[0], args[3 - at], is_open=at == 1)


def _written(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:
    """scores[mask] = number."""
    if at or options or len(args) != 3 or not isinstance(args[1], Tensor):
        return None
    mask = args[1]
    if mask.dtype is not torch.bool or not mask.ndim:
        return None
    mask = mask[(..., *(None,) * (len(axes.groups) - mask.ndim))]
    return _hidden(scores, axes, mask, args[2], is_open=False)


def _bounded(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:  # noqa: ARG001
    return replace(scores, scale=scores.multiplier, multiplier=1.0) if scores.is_plain else None


def _kept(scores: Scores, axes: Axes, at: int, args: Sequence[Any], options: Mapping[str, Any]) -> Scores | None:  # noqa: ARG001
    return scores if at == 0 else None


RULES: dict[str, Callable[..., Scores | None]] = {
    "mul": _multiplied, "multiply": _multiplied, "div": _divided, "divide": _divided, "true_divide": _divided,
    "add": _added, "sub": _subtracted, "subtract": _subtracted, "masked_fill": _filled, "where": _chosen,
    "__setitem__": _written, "tanh": _bounded,
    **dict.fromkeys(("to", "float", "double", "half", "bfloat16", "type", "type_as", "contiguous", "clone"), _kept),
}  # fmt: skip


def _hidden(scores: Scores, axes: Axes, mask: Any, fill: Any, *, is_open: bool) -> Scores | None:
    """The scores with a low number where a mask is True, or where it is not."""
    value = _number(fill, anywhere=True)
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool or not isinstance(value, float) or not value < 0:
        return None
    result = _with(scores, axes, mask if is_open else ~mask, "opened")
    return None if result is None else replace(result, fills=(*result.fills, value))


def _with(scores: Scores, axes: Axes, tensor: Tensor, where: str) -> Scores | None:
    """The scores with one more operand, which broadcasts against a tensor that has these axes."""
    split = axes.split(tensor)
    if split is None:
        return None
    operand = Operand(split[0], tuple(split[1]))
    versions = (*scores.versions, *version_of(tensor))
    return replace(scores, **{where: (*getattr(scores, where), operand), "versions": versions})  # type: ignore[arg-type]


def _four(operand: Operand, groups: Groups) -> Tensor:
    """An operand with one dimension, 1 or of its size, for every group, and its features."""
    return merged(arranged(operand.tensor, operand.axes, [axis for group in groups for axis in group]), groups)


def _compressed(mask: Tensor) -> Tensor:
    """A mask (B, H, Lq, Lk), with 1 in place of heads and of queries that all have the same."""
    for axis in (1, 2):
        if mask.shape[axis] > 1 and bool((mask == (first := mask.narrow(axis, 0, 1))).all()):
            mask = first.clone()
    return mask


def _number(value: Any, *, anywhere: bool = False) -> Any:
    """A number, or a tensor of one that no gradient needs, as float; else the value itself; anywhere: on a GPU too."""
    if isinstance(value, int | float):
        return float(value)
    is_single = isinstance(value, Tensor) and value.ndim == 0 and not value.requires_grad
    return float(value) if is_single and (anywhere or value.device.type == "cpu") else value


def version_of(tensor: Tensor) -> list[tuple[Tensor, int]]:
    """A tensor with its version; nothing for one of inference mode, which has none."""
    return [] if tensor.is_inference() else [(tensor, tensor._version)]


def storage_of(tensor: Tensor) -> int:
    """Where the numbers of a tensor and of its views lie; 0: not in memory, as of sparse tensors and of transforms."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0
