"""Token sums: what a weighted sum over tokens is divided by, and whether it leaves out what a mask hides."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import (
    SOFTMAXES,
    TOTALS,
    MarkedOp,
    Run,
    TokenSum,
    attentions,
    chain_of,
    downstream,
    token_sums,
    value_of,
)
from headwise.diagnosis.checks.mask_path import reached_by, uses
from headwise.diagnosis.checks.padding import changed_tokens, padded
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import Padding, paddings
from headwise.diagnosis.repair import Change, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import NOTHING, StandIns, WeighedSum, hidden_share, weighed, weighed_sums
from headwise.recording import Site
from headwise.source import Span

__all__ = ["normaliser_suspects", "unhidden_pads", "unhidden_tokens"]

# so many other sums are tried in place of one
MOST = 24
FILLS = frozenset({"masked_fill", "masked_fill_", "where"})
MULTIPLIED = frozenset({"*", "*=", "mul"})


# that tokens are shared out among others on purpose, as to clusters (arXiv:1511.07247) and capsules (arXiv:1710.09829)
ASSIGNED = re.compile(
    r"cluster|vlad|diff_?pool|coarse|assign|capsule|rout(e|ing)|slot|expert|mixture|codebook|codeword|聚类|胶囊|路由",
    re.IGNORECASE,
)
ATTENDS = re.compile(r"attention|attn|注意力", re.IGNORECASE)


@dataclass(frozen=True)
class _AddedUp:
    """Stands in for a sum: another sum, along another axis, or of what the keys are where values are weighed."""

    name: str
    axis: int
    keeps: bool
    instead: Tensor | None

    def __call__(self, tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        keys = tensor if self.instead is None else self.instead.to(tensor)
        return keys.cumsum(self.axis) if self.name == "cumsum" else keys.sum(self.axis, keepdim=self.keeps)

    def __str__(self) -> str:
        return f"{self.name}(dim={self.axis}{', keepdim=True' * self.keeps})"


def normaliser_suspects(run: Run, rerun: Callable[..., Run], *, is_masked: bool = False) -> list[Suspect]:
    """The sum of keys by which a weighted sum is divided, where with another one in its place the weights sum to 1.

    Katharopoulos et al. 2020, arXiv:2006.16236, equations 5 and 9. is_masked: without a mask they do, so that what is
    added up may be keys that the mask has not changed; else it may be on purpose that others weigh the values.
    """
    if run.failure is not None or attentions(run):
        return []
    # of a sum in a loop the first stands for all
    totals: dict[Span, TokenSum] = {}
    for total in token_sums(run):
        totals.setdefault(total.product.span, total)
    for total in totals.values():
        if weighed(run, rerun, total) is not None:
            continue
        for softmax, axis, was in _other_axes(run, total):
            along: StandIns = {softmax.site: partial(_along, axis=axis)}
            if weighed(run, rerun, total, along) is not None:
                said = {"axis": axis, "was": str(was)}
                return [Suspect("softmax-axis", softmax.span, Repair(dict(along)), values=said, proved=True)]
        for entry, name, stand_ins, is_lasting in islice(_other_sums(run, total, is_masked=is_masked), MOST):
            if weighed(run, rerun, total, stand_ins) is not None:
                lasting = stand_ins if is_lasting else {}
                return [Suspect("normaliser-wrong", entry.span, Repair(lasting), values={"name": name}, proved=True)]
    return []


def _other_axes(run: Run, total: TokenSum) -> Iterator[tuple[MarkedOp, int, int]]:
    """Each softmax that the operands of a sum come through, with each of the axes that it is not along, and its own."""
    span = total.product.span
    text = "" if span is None else "".join(linecache.getlines(span.file))
    kind = type(run.target)
    names = [name for name, _ in run.target.named_children()] if isinstance(run.target, nn.Module) else []
    if ASSIGNED.search(text) or not ATTENDS.search(" ".join([kind.__name__, kind.__doc__ or "", *names])):
        return
    entries = {entry.at: entry for tensor in total.product.inputs
               for entry in chain_of(run, total.product.at, tensor.number) if entry.last in SOFTMAXES}  # fmt: skip
    for entry in entries.values():
        value = entry.value
        told = entry.options.get("dim", entry.args[1] if len(entry.args) > 1 else None)
        if value is None or not isinstance(told, int):
            continue
        yield from ((entry, axis - value.ndim, told) for axis in range(1, value.ndim) if axis != told % value.ndim)


def _along(*args: Any, axis: int, **options: Any) -> Any:
    return torch.softmax(args[0] if args else options["input"], dim=axis)


# a sum, what it should be, what makes it so, and whether that is right in other runs too
Other = tuple[MarkedOp, str, dict[Site, Callable[..., Any]], bool]


def _other_sums(run: Run, total: TokenSum, *, is_masked: bool) -> Iterator[Other]:
    """The sums of keys that meet what was weighed, and for each the sums that it could be."""
    later = list(downstream(run, total.product))
    reached = {each.at for each in later}
    operands = [total.product.args[at] for at in total.operands]
    for entry in run.seen:
        if entry.last not in TOTALS or entry.at in reached or entry is total.total or not entry.args:
            continue
        keys = entry.args[0]
        if not isinstance(keys, Tensor) or all(operand.shape != keys.shape for operand in operands):
            continue
        if not any(entry.at in {op.at for op in chain_of(run, met, number)} for met in later
                   for number in met.taken):  # fmt: skip
            continue
        value = entry.value
        keeps = value is not None and value.ndim == keys.ndim
        others = (value_of(total.product, operand) for operand in operands if operand is not keys)
        sides = [None, *(others if is_masked else ())]
        for instead in [side for side in sides if side is None or side.shape == keys.shape]:
            for axis in range(keys.ndim):
                for name in ("cumsum", "sum"):
                    right = _AddedUp(name, axis, keeps and name == "sum", instead)
                    # what stands in for masked keys is right where these are masked
                    yield entry, str(right), {entry.site: right}, instead is None
        yield from _running(run, entry, keys)


def _running(run: Run, entry: MarkedOp, keys: Tensor) -> Iterator[Other]:
    """The sum of the keys up to each query in place of one of all, where a product reads that."""
    for product in (op for op in run.seen if op.joint is not None and entry.results & op.taken):
        joint = product.joint
        if joint is None:
            continue
        at = next(at for at, tensor in enumerate(product.inputs) if tensor.number in entry.results)
        is_left = product.tensors[at] is joint.a
        others, letters = (joint.b, joint.right) if is_left else (joint.a, joint.left)
        if others.shape == keys.shape:
            for axis in range(keys.ndim):
                right = partial(
                    _read, queries=others, keys=keys, axis=axis, equation=f"{letters},{letters}->{joint.out}"
                )
                yield entry, f"cumsum(dim={axis})", {product.site: right}, False


def _read(*_: Any, queries: Tensor, keys: Tensor, axis: int, equation: str, **__: Any) -> Tensor:
    return torch.einsum(equation, queries, keys.cumsum(axis))


def unhidden_tokens(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The operation that should hide tokens from a weighted sum, and gives them weights that are not 0.

    run: with the mask. Proved by the weights that tokens keep, whichever of the two values of the mask hides them.
    """
    reached = reached_by(run)
    for of, hidden in _unhidden(run, rerun):
        # what is the same for all tokens of a sample, as whether it has any, hides none of them
        for entry in reversed([each for each in _weighing(run, of) if uses(each, reached)]):
            if kind := _kind_of(entry, reached):
                return [Suspect(kind, entry.span, values={"leak": f"{hidden:.0%}"}, proved=True)]
    return []


def unhidden_pads(exam: Examination, free: Run) -> list[Suspect]:
    """The same where the mask is made of token numbers: proved by a run in which some tokens are padding."""
    for padding in paddings(free):
        change = changed_tokens(exam, padding, padded(padding))

        def rerun(stand_ins: StandIns | None = None, change: Change = change) -> Run:
            again: Run = exam.run(stand_ins, change=change)
            return again

        run = rerun()
        tokens = run.given.get(padding.name)
        if run.failure is not None or tokens is None:
            continue
        reached = _made_of(run, padding)
        for of, hidden in _unhidden(run, rerun, padding.laid(tokens) != padding.number):
            weighing = _weighing(run, of)
            met = [entry for entry in weighing if reached & entry.taken and not entry.results <= reached]
            # a mask that is weighed itself is added up for the divisor
            is_of_mask = _operand(of, of.values) in reached
            if is_of_mask or not met or not _is_of_scores(met[-1], weighing):
                continue
            if kind := _kind_of(met[-1], reached):
                return [Suspect(kind, met[-1].span, values={"leak": f"{hidden:.0%}"}, proved=True)]
    return []


def _unhidden(run: Run, rerun: Callable[..., Run], shown: Tensor | None = None) -> Iterator[tuple[WeighedSum, float]]:
    """The weighted sums in which both hidden tokens and shown ones keep a share, and that of the hidden ones."""
    for of in weighed_sums(run, rerun):
        shares = hidden_share(run, rerun, of, shown)
        if shares is not None and min(shares) > NOTHING:
            yield of, shares[0]


def _weighing(run: Run, of: WeighedSum) -> list[MarkedOp]:
    """The operations that lead to the weights of a sum, in order."""
    product = of.total.product
    weights = next((at for at in of.total.operands if at != of.values), None)
    return [] if weights is None else chain_of(run, product, product.args[weights])


def _operand(of: WeighedSum, place: int) -> int:
    """The number of the tensor at a place among the arguments of the product of a sum."""
    return of.total.product.inputs[of.total.operands.index(place)].number


def _is_of_scores(entry: MarkedOp, weighing: list[MarkedOp]) -> bool:
    """Whether an operation on the way to weights gives one number for each weight, of which no later one makes another:
    features become scores by a contraction.
    """
    counts = [prod(op.outputs[0].shape) for op in (entry, weighing[-1])]
    later = [op for op in weighing if op.at > entry.at]
    return counts[0] == counts[1] and not any(op.joint is not None or op.last in TOTALS for op in later)


def _made_of(run: Run, padding: Padding) -> set[int]:
    """The numbers of the tensors that are made of a comparison of tokens, and of nothing else of the inputs."""
    comparison = next((op for op in run.seen if op.span == padding.entry.span), None)
    numbers = set() if comparison is None else set(comparison.results)
    for entry in run.seen:
        operands = {tensor.number for tensor, _ in entry.handed_on}
        if operands and operands <= numbers and entry.joint is None and entry.last != "embedding":
            numbers |= entry.results
    return numbers


def _kind_of(entry: MarkedOp, reached: set[int]) -> str:
    """What is wrong where scores are multiplied by nothing but 0 and 1, or are filled with a number in some places and
    not in others; "": they are weighed by numbers, or the mask hides nothing.
    """
    masks = [tensor.value for tensor in entry.inputs if tensor.number in reached and tensor.value is not None]
    levels = set().union(*(set(mask.double().unique().tolist()) for mask in masks)) if masks else set()
    if levels != {0.0, 1.0}:
        return ""
    if entry.name in MULTIPLIED:
        return "mask-multiplied"
    is_filled = entry.last in FILLS and entry.value is not None and bool(entry.value.isfinite().all())
    return "mask-weak-fill" if is_filled else ""
