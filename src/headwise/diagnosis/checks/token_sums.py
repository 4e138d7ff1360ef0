"""Token sums: what a weighted sum over tokens is divided by, and whether it leaves out what a mask hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import TOTALS, MarkedOp, Run, TokenSum, attentions, chain_of, downstream, token_sums, value_of
from headwise.diagnosis.checks.mask_path import reached_by, uses
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import NOTHING, hidden_share, weighed, weighed_sums
from headwise.recording import Site

__all__ = ["normaliser_suspects", "unhidden_tokens"]

FILLS = frozenset({"masked_fill", "masked_fill_", "where"})
MULTIPLIED = frozenset({"*", "*=", "mul"})


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
    for total in token_sums(run):
        if weighed(run, rerun, total) is not None:
            continue
        for entry, name, stand_ins, is_lasting in _other_sums(run, total, is_masked=is_masked):
            if weighed(run, rerun, total, stand_ins) is not None:
                lasting = stand_ins if is_lasting else {}
                return [Suspect("normaliser-wrong", entry.span, lasting, said={"name": name}, proved=True)]
    return []


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
    for of in weighed_sums(run, rerun):
        shares = hidden_share(run, rerun, of)
        if shares is None or min(shares) <= NOTHING:
            continue
        weights = next((at for at in of.total.operands if at != of.values), None)
        if weights is None:
            continue
        operand = of.total.product.args[weights]
        reached = reached_by(run)
        met = [entry for entry in chain_of(run, of.total.product, operand) if uses(entry, reached)]
        kind = _kind_of(met[-1], reached) if met else ""
        if kind:
            return [Suspect(kind, met[-1].span, said={"leak": f"{shares[0]:.0%}"}, proved=True)]
    return []


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
