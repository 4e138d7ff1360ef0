"""Attention: the operations of a run that compute scores, softmax and weighted sum, by their dataflow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow.contractions import is_constant
from headwise.dataflow.marked_operations import SOFTMAXES, MarkedOp
from headwise.dataflow.product_provenance import looking
from headwise.dataflow.propagation import ATTENTIONS, LAYERS
from headwise.dataflow.provenance import Marks, source_of
from headwise.dataflow.runner import Run
from headwise.recording import Rebound, Site

__all__ = [
    "AttentionOps",
    "attentions",
    "chain_of",
    "hidden_in_layer",
    "is_laid_over",
    "is_layer",
    "is_scores",
    "made_from",
    "makers",
    "operand_marks",
    "value_of",
]

MASKS = ("attn_mask", "key_padding_mask")


@dataclass(frozen=True)
class AttentionOps:
    """One attention of a run. scores: the product of queries and keys, None: scores are additive, or the call is fused.

    path: the operations from the scores to the weights, in order. context: the weighted sum of values, or the fused
    call. looks: the array of a pair that is the query token ("x" or "y").
    """

    scores: MarkedOp | None
    path: tuple[MarkedOp, ...]
    context: MarkedOp
    looks: str
    fused: bool = False

    @property
    def keys(self) -> str:
        """The array of a pair that is the key token."""
        return "y" if self.looks == "x" else "x"

    @property
    def softmax(self) -> MarkedOp | None:
        """The operation of the path that normalises the scores."""
        return next((entry for entry in self.path if entry.last in SOFTMAXES), None)

    @property
    def has_weights_left(self) -> bool:
        """Whether the weights are the left operand of the weighted sum."""
        first = operand_marks(self.context)[0]
        return first is not None and first.kind == "pair"

    @property
    def weights(self) -> Tensor | None:
        """The weights that met the values (problems, queries, keys); None: torch kept them."""
        joint, left = self.context.joint, self.has_weights_left
        if joint is None:
            return None
        return joint.flat(value_of(self.context, joint.a if left else joint.b), left=left)

    @property
    def weight_tokens(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """The query, the key and the head of each weight, laid out as the weights are; None: they are not known."""
        joint, left = self.context.joint, self.has_weights_left
        marks = operand_marks(self.context)[0 if left else 1]
        if joint is None or marks is None or marks.kind != "pair":
            return None
        queries, keys, heads = (joint.flat(marks.arrays[name], left=left) for name in (self.looks, self.keys, "h"))
        return queries, keys, heads

    def key_axis(self, entry: MarkedOp) -> int | None:
        """The axis along which the keys of scores or weights lie; None: it gives none, or they lie along none alone."""
        return self._axis(entry, self.keys, self.looks)

    def query_axis(self, entry: MarkedOp) -> int | None:
        """The axis along which the queries of scores or weights lie; None: as for `key_axis`."""
        return self._axis(entry, self.looks, self.keys)

    def _axis(self, entry: MarkedOp, moving: str, still: str) -> int | None:
        if entry.pair is None:
            return None
        moves, stays = entry.pair.arrays[moving], entry.pair.arrays[still]
        axes = [axis for axis in range(moves.ndim) if is_constant(stays, axis) and not is_constant(moves, axis)]
        return axes[0] if len(axes) == 1 else None


def attentions(run: Run) -> list[AttentionOps]:
    """The attentions of a run, in order."""
    return list(run.fact(_attentions, run))


def _attentions(run: Run) -> list[AttentionOps]:
    out, earlier = [], list[frozenset[int]]()
    for entry in run.seen:
        if entry.last in ATTENTIONS or entry.last in LAYERS:
            out.append(AttentionOps(None, (), entry, "x", fused=True))
            continue
        if entry.joint is None or entry.joint.is_entrywise:
            continue
        kinds = [None if each is None else each.kind for each in operand_marks(entry)]
        if sorted(str(kind) for kind in kinds) != ["pair", "token"]:
            continue
        left = kinds[0] == "pair"
        weights = entry.joint.a if left else entry.joint.b
        path = _pair_path(run, entry, _number(entry, weights), earlier)
        values = operand_marks(entry)[1 if left else 0]
        scores = _scores(path, values)
        marks = operand_marks(entry)[0 if left else 1]
        if marks is None:
            continue
        letters = entry.joint.left if left else entry.joint.right
        looks = looking(marks, [letters.index(axis) for axis in entry.joint.summed])
        out.append(AttentionOps(scores, tuple(path), entry, looks))
        earlier.append(_softmaxes(path))
    return out


def operand_marks(entry: MarkedOp) -> tuple[Marks | None, Marks | None]:
    """The marks of the two operands of a contraction."""
    if entry.joint is None:
        return None, None
    marks = []
    for operand in (entry.joint.a, entry.joint.b):
        place = next((at for at, each in enumerate(entry.tensors) if each is operand), None)
        marks.append(None if place is None else entry.given[place])
    return marks[0], marks[1]


def _scores(path: Sequence[MarkedOp], values: Marks | None) -> MarkedOp | None:
    """The product of tokens on a path; of several that are added, the one of the tokens of the values."""
    products = [op for op in path if is_scores(op)]
    if len(products) < 2 or values is None or values.kind != "token":
        return next(iter(products), None)
    value_sources = set(torch.unique(source_of(values.arrays["t"])).tolist()) - {-1}

    def shared(entry: MarkedOp) -> int:
        sides = [torch.unique(source_of(m.arrays["t"])) for m in operand_marks(entry) if m is not None]
        return sum(not value_sources.isdisjoint(side.tolist()) for side in sides)

    return max(products, key=shared)


def _number(entry: MarkedOp, tensor: Tensor) -> int:
    place = next(at for at, each in enumerate(entry.tensors) if each is tensor)
    return entry.inputs[place].number


def is_scores(entry: MarkedOp) -> bool:
    """Whether an operation multiplies tokens with tokens and sums an axis."""
    if entry.joint is None:
        return False
    return all(marks is not None and marks.kind == "token" for marks in operand_marks(entry))


def is_laid_over(entry: MarkedOp) -> bool:
    """Whether an operation broadcasts tokens or scores to more axes, by an operand without marks."""
    if entry.joint is not None or entry.is_movement or len(entry.outputs) != 1:
        return False
    # numbers that rows of a table are looked up with are laid over nothing
    sides = [pair for pair in zip(entry.inputs, entry.given, strict=True) if pair[0].dtype != torch.int64]
    ranks = [(marks is not None, len(tensor.shape)) for tensor, marks in sides]
    marked, others = ([rank for has_marks, rank in ranks if has_marks is is_held] for is_held in (True, False))
    return bool(marked and others) and max(marked) < max(others) == len(entry.outputs[0].shape)


def makers(run: Run, before: int, number: int) -> list[MarkedOp]:
    """The operations that returned or changed a tensor before an operation, the last first."""
    return [each for each in reversed(run.makers.get(number, ())) if each.at < before]


def made_from(run: Run, entries: Sequence[MarkedOp]) -> Iterator[MarkedOp]:
    """The operations that computed the operands without tokens, back to the beginning of the run, each once."""
    ahead = [(entry.at, tensor.number) for entry in entries for tensor in entry.unmarked_inputs]
    met: set[int] = set()
    while ahead:
        before, number = ahead.pop()
        for maker in makers(run, before, number):
            if maker.at not in met:
                met.add(maker.at)
                yield maker
                ahead += [(maker.at, tensor.number) for tensor in maker.inputs]


def _pair_path(run: Run, entry: MarkedOp, number: int, earlier: Sequence[frozenset[int]]) -> list[MarkedOp]:
    """The operations on scores that lead to a tensor, in order. earlier: the softmaxes of each attention before it: the
    scores may follow from weights of an earlier query (See et al. 2017, arXiv:1704.04368, equation 11), but what led to
    these belongs to that query.
    """
    by_index: dict[int, MarkedOp] = {}
    ahead = [(entry.at, number)]
    while ahead:
        before, current = ahead.pop()
        for maker in makers(run, before, current):
            if maker.at in by_index:
                continue
            kinds = [each.kind for each in (*maker.output_marks, *maker.given) if each is not None]
            of_others = [softmaxes for softmaxes in earlier if maker.at in softmaxes]
            if "pair" not in kinds or any(_softmaxes(by_index.values()) - softmaxes for softmaxes in of_others):
                continue
            by_index[maker.at] = maker
            for tensor, marks in zip(maker.inputs, maker.given, strict=True):
                if marks is not None and marks.kind == "pair":
                    ahead.append((maker.at, tensor.number))
    return [by_index[at] for at in sorted(by_index)]


def _softmaxes(path: Iterable[MarkedOp]) -> frozenset[int]:
    """The numbers of the softmaxes among operations."""
    return frozenset(entry.at for entry in path if entry.last in SOFTMAXES)


def chain_of(run: Run, entry: MarkedOp | int, tensor: Tensor | int) -> list[MarkedOp]:
    """All operations that lead from the arguments to an operand, in order."""
    at = entry if isinstance(entry, int) else entry.at
    number = tensor if isinstance(tensor, int) or isinstance(entry, int) else _number(entry, tensor)
    by_index: dict[int, MarkedOp] = {}
    ahead = [(at, int(number))]
    while ahead:
        before, current = ahead.pop()
        for maker in makers(run, before, current):
            if maker.at not in by_index and maker.handed_on:
                by_index[maker.at] = maker
                ahead += [(maker.at, source.number) for source, _ in maker.handed_on]
    return [by_index[at] for at in sorted(by_index)]


def value_of(entry: MarkedOp, tensor: Tensor) -> Tensor:
    """The value of an operand at the time of the operation."""
    place = next(at for at, each in enumerate(entry.tensors) if each is tensor)
    value = entry.inputs[place].value
    return tensor if value is None else value


def is_layer(entry: MarkedOp) -> bool:
    """Whether an operation is a call of nn.MultiheadAttention."""
    return bool(entry.args) and isinstance(entry.args[0], nn.MultiheadAttention)


def hidden_in_layer(entry: MarkedOp, shown: Tensor, dropped: Sequence[Tensor]) -> dict[Site, Callable[..., Any]]:
    """The replacement that masks keys of a layer. shown: (batch * heads, queries, keys), True: allowed.

    dropped: masks of the original call to leave out; others are combined with `shown`.
    """
    bound = inspect.signature(entry.function).bind(*entry.args, **entry.options).arguments
    gone = {id(each) for each in dropped}
    overrides: dict[str, Any] = {name: None for name in MASKS if id(bound.get(name)) in gone}
    mask = None if "attn_mask" in overrides else bound.get("attn_mask")
    overrides |= {"attn_mask": _joined(~shown, mask), "is_causal": False}
    return {entry.site: Rebound(entry.function, overrides)}


def _joined(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden
    if mask.dtype == torch.bool:
        return hidden | mask
    return mask.expand(hidden.shape).masked_fill(hidden, float("-inf"))
