"""Mask: whether a mask hides from each query exactly the keys that it means, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from headwise.calls import call_role, callee, mask_arguments, parameters
from headwise.dataflow import (
    SOFTMAXES,
    AttentionOps,
    AttentionPattern,
    MarkedOp,
    Run,
    allowed_by,
    attentions,
    downstream,
    find_pattern,
)
from headwise.diagnosis.checks.mask_arguments import waits_for_another, withheld
from headwise.diagnosis.checks.mask_effects import also_wrong, is_shared_out, mistaken, source_turned, wanted_pairs
from headwise.diagnosis.checks.mask_path import (
    arranged,
    home_of,
    is_along_queries,
    is_of_fewer,
    nudges,
    reached_by,
    uses,
)
from headwise.diagnosis.checks.mask_repair import hiding
from headwise.diagnosis.checks.softmax import other_normalisation
from headwise.diagnosis.checks.weight_sums import TOLERANCE, chooses_both_ways, is_mutual
from headwise.diagnosis.patches.masks import masked_before
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.wording import percent

__all__ = ["is_reached", "masking_suspects"]

# what masks of any attention are called after
PLAIN = frozenset({"q", "k", "v", "query", "key", "value", "attention", "attn", "src", "tgt", "source", "target"})
PRODUCTS = frozenset({"*", "*=", "mul", "mul_", "multiply"})
# of a number less a tensor
DIFFERENCES = frozenset({"rsub", "__rsub__"})
Pair = tuple[AttentionOps, AttentionPattern | None, AttentionPattern | None]


def masking_suspects(masked: Run, free: Run) -> list[Suspect]:
    """What is wrong with a mask. masked, free: runs on the same numbers with the mask, and with none."""
    reached = reached_by(masked)
    pairs = [(a, find_pattern(a), find_pattern(b)) for a, b in zip(attentions(masked), attentions(free), strict=False)]
    takers = [sight for a, sight, _ in pairs if any(uses(op, reached) for op in (*a.path, a.context))]
    sources = {int(taker.source.max()) for taker in takers if taker is not None}
    for a, with_mask, without in pairs:
        if with_mask is None or without is None or with_mask.weights.shape != without.weights.shape:
            continue
        if not any(torch.equal(getattr(with_mask, axis), getattr(without, axis)) for axis in ("row", "column")):
            # the mask decides which tokens come together, as where they are sorted, and not only which are hidden
            continue
        # what is packed has no padding left: which key is which, the run that has none tells
        with_mask = replace(without, weights=with_mask.weights)
        if (sources and int(with_mask.source.max()) not in sources) or _is_other_half(masked, a, pairs):
            # it looks at other tokens than those that the mask is for
            continue
        samples = int(with_mask.sample.max()) + 1
        rows, columns = int(with_mask.row.max()) + 1, int(with_mask.column.max()) + 1
        allowed = allowed_by(masked, samples, rows, columns)
        if allowed is None or _counts_others(masked, columns):
            continue
        wanted = wanted_pairs(masked, allowed, with_mask, without)
        if not bool(without.weights.isfinite().all()):
            # what holds NaN with no mask tells nothing of one; a mask that hides nothing is one
            is_of_mask = bool(free.plan.mask) and any(uses(op, reached) for op in (*a.path, a.context))
            is_turned = bool((with_mask.visible != wanted).all()) and bool(wanted.any(dim=-1).all())
            if is_of_mask and (is_turned or _is_of_mask(masked, a)):
                return [_suspect(masked, a, "mask-inverted" if is_turned else "mask-nan", wanted, with_mask)]
            continue
        kind = mistaken(with_mask, without, allowed, wanted)
        if not kind and _opens_later_keys(masked, with_mask, without, wanted):
            entry = next((op for op in (*a.path, a.context) if uses(op, reached)), a.context)
            return [Suspect("causal-replaced", entry.span, proved=True)]
        if kind == "mask-axis" and (_is_of_queries(masked) or call_role(masked.plan.mask) == "adjacency"):
            # an edge may be read from either of its ends
            continue
        is_late = bool(_late(masked, a)) or (a.softmax is None and _is_unchanged(with_mask, without))
        if kind == "mask-weak-fill" and not any(uses(op, reached) for op in (*a.path, a.context)):
            kind = "mask-ignored"
        kind = _without_effect(masked, a) if kind == "mask-ignored" else kind
        # where a softmax would give hidden keys nothing, what stands in its place is to blame, and not the mask
        is_below = bool((with_mask.weights.nan_to_num()[~wanted] < -TOLERANCE).any())
        if (kind == "mask-nan" or (kind and is_below)) and (replaced := other_normalisation(a, reached)) is not None:
            return [replaced]
        if kind == "mask-ignored" and (
            _counts_part(masked, columns)
            or waits_for_another(masked)
            or _is_for_another(masked, pairs)
            or _is_called_after(masked, with_mask)
        ):
            continue
        if kind == "mask-after-softmax" and not (is_late and (a.softmax is not None or is_shared_out(without))):
            # beside a sink rows sum to less the more is masked; what no softmax shared out has none before it
            continue
        if kind and not _is_flag(masked, a, with_mask, without):
            also = also_wrong(kind, with_mask, without, wanted) if is_late else ""
            kept = source_turned(with_mask, without.visible, wanted) if kind == "mask-inverted" else None
            return [_suspect(masked, a, each, wanted, with_mask, kept) for each in (kind, also) if each]
    return []


def _without_effect(run: Run, attention: AttentionOps) -> str:
    """The kind of a mask that hides nothing, by how it meets the scores."""
    if is_along_queries(attention, reached_by(run)) and not _is_of_queries(run):
        return "mask-axis"
    if nudges(run, attention.path):
        return "mask-weak-fill"
    return "mask-broadcast" if is_of_fewer(run, [*attention.path, attention.context]) else "mask-ignored"


def _counts_others(run: Run, columns: int) -> bool:
    """Whether lengths count what came, and the keys are fewer tokens made of it."""
    declared = run.plan.call.get("_mask", {})
    return declared.get("means") == "lengths" and columns < run.sizes.get("L", columns) and "S" not in run.sizes


def _counts_part(run: Run, columns: int) -> bool:
    """Whether lengths are taken from a number of tokens that are only some of the keys, as those of the past alone."""
    declared, reached = run.plan.call.get("_mask", {}), reached_by(run)
    taken = [op for op in run.seen if op.last in DIFFERENCES and reached & op.taken]
    numbers = [each for op in taken for each in op.args if isinstance(each, int) and not isinstance(each, bool)]
    return declared.get("means") == "lengths" and any(0 < number < columns for number in numbers)


def _opens_later_keys(run: Run, masked: AttentionPattern, free: AttentionPattern, wanted: Tensor) -> bool:
    """Whether a mask of keys alone takes the place of the causal one that there is without it, in rows that both leave
    a key.
    """
    declared = run.plan.call.get("_mask", {})
    axes = [str(axis) for axis in declared.get("shape", ()) if str(axis) not in ("B", "1")]
    if declared.get("means") != "lengths" and len(axes) != 1:
        return False
    earlier = masked.column <= masked.row
    is_causal = bool((free.visible == earlier).all()) and not bool(earlier.all())
    has_some = (earlier & wanted).any(dim=-1, keepdim=True) & masked.seeing
    return is_causal and bool((masked.visible & ~earlier & has_some).any())


def _is_of_queries(run: Run) -> bool:
    """Whether the keys have a mask of their own, which is not given: this one is then of the queries."""
    inputs = [name for name in run.argument_marks if call_role(name) == "key"]
    others = [name for name in mask_arguments(parameters(callee(run.target))) if name != run.plan.mask]
    return any(mask_name.startswith(name) for name in inputs for mask_name in others)


def _is_called_after(run: Run, pattern: AttentionPattern) -> bool:
    """Whether a mask is called after an input of which no key is: `text_mask`, of what looks at sound."""
    mask = run.plan.mask
    named = {name: number for name, number in run.sources.items() if mask.startswith(f"{name}_")}
    spare = [each.name for each in parameters(callee(run.target)) if each.default is None and each.name not in PLAIN]
    if not named and any(mask.startswith(f"{name}_") and name not in run.plan.call for name in spare):
        # what it is of is not given
        return True
    # values are the keys' own
    owners = {number for name, number in named.items() if call_role(name) != "value"}
    return bool(owners) and not owners & set(torch.unique(pattern.source).tolist())


def _is_flag(run: Run, attention: AttentionOps, masked: AttentionPattern, free: AttentionPattern) -> bool:
    """Whether a mask's numbers reach nothing, and only that there is one makes each query see what is before it."""
    reached = reached_by(run)
    if any(uses(each, reached) for each in (*attention.path, attention.context)):
        return False
    before = masked.column <= masked.row
    return bool((masked.visible == before).all()) and not bool((free.visible == before).all())


def _is_unchanged(masked: AttentionPattern, free: AttentionPattern) -> bool:
    """Whether the keys that are seen have the weights that they have with no mask."""
    return bool(((masked.weights - free.weights).nan_to_num().abs() <= TOLERANCE)[masked.visible].all())


def _late(run: Run, attention: AttentionOps) -> list[MarkedOp]:
    """The operations after the softmax that use the mask."""
    reached, softmax = reached_by(run), attention.softmax
    return [entry for entry in attention.path if softmax is not None and entry.at > softmax.at and uses(entry, reached)]


def _suspect(
    run: Run, attention: AttentionOps, kind: str, wanted: Tensor, masked: AttentionPattern, source: int | None = None
) -> Suspect:
    """source: of the keys that the mask is for, where those of others are always kept."""
    reached = reached_by(run)
    on_path = [op for op in attention.path if uses(op, reached)]
    late = _late(run, attention)
    entry = on_path[0] if on_path else next((op for op in run.seen if uses(op, reached)), None)
    entry = late[0] if kind == "mask-after-softmax" and late else entry
    span = None if entry is None else entry.span
    is_part = kind == "mask-broadcast" and entry is not None and _is_part(entry, attention)
    if kind in ("mask-repeat-order", "mask-axis", "mask-broadcast") and not is_part:
        met = attention.context if attention.fused and kind == "mask-repeat-order" else entry
        span = arranged(run, reached, kind, met) or span
    if span is None:
        span = (attention.softmax or attention.scores or attention.context).operation.span
    if attention.fused:
        span = attention.context.span if entry is None else span
    without = withheld(run, attention.context.operation) if kind == "mask-ignored" and not on_path else None
    span = without or span
    error = float((masked.weights.nan_to_num() * (~wanted)).sum(dim=-1).max())
    softmax = attention.softmax if kind == "mask-after-softmax" else None
    rewriting = None if softmax is None else partial(masked_before, softmax=softmax.span)
    is_product = kind == "mask-weak-fill" and entry is not None and entry.name in PRODUCTS
    return Suspect(
        "mask-multiplied" if is_product else kind,
        span,
        Repair(hiding(run, attention, on_path, source), rewriting=rewriting, is_local=True),
        values={"leak": percent(error)},
        home=None if is_product or without else home_of(run, kind, entry, reached),
    )


def _is_of_mask(run: Run, attention: AttentionOps) -> bool:
    """Whether what brings a mask to scores makes NaN of scores that hold none."""
    for entry in attention.path:
        if uses(entry, reached_by(run)):
            before = [tensor.value for tensor in entry.marked_inputs]
            return all(tensor is not None and not bool(tensor.isnan().any()) for tensor in before)
    return False


def _is_part(entry: MarkedOp, attention: AttentionOps) -> bool:
    """Whether a mask is laid over some of the scores alone."""
    whole, part = attention.softmax, entry.outputs
    return (
        bool(part)
        and whole is not None
        and part[0].value is not None
        and whole.inputs[0].value is not None
        and (part[0].value.numel() < whole.inputs[0].value.numel())
    )


def is_reached(run: Run) -> bool:
    """Whether a mask is brought to scores, whatever comes of it."""
    reached = reached_by(run)
    kinds = [{m.kind for m in (*op.given, *op.output_marks) if m is not None} for op in run.seen if uses(op, reached)]
    return any("pair" in kind for kind in kinds) or any(
        uses(attention.context, reached) for attention in attentions(run)
    )


def _is_for_another(run: Run, pairs: Sequence[Pair]) -> bool:
    """Whether a mask leads to a softmax that is of none of the attentions that were followed, as where the weights of
    two softmaxes are multiplied (arXiv:1611.01603).
    """
    reached = reached_by(run)
    takers_of = [any(uses(entry, reached) for entry in (*a.path, a.context)) for a, *_ in pairs]
    if len(mask_arguments(parameters(callee(run.target)))) > 1 and len(set(takers_of)) > 1:
        # each of several attentions has a mask of its own
        return True
    known = {entry.at for a, *_ in pairs for entry in (*a.path, a.context)}
    takers = [entry for entry in run.seen if entry.at not in known and uses(entry, reached)]
    return any(
        entry.last in SOFTMAXES and entry.at not in known for taker in takers for entry in downstream(run, taker)
    )


def _is_other_half(run: Run, at: AttentionOps, pairs: Sequence[Pair]) -> bool:
    """Whether a mask hides none of these keys, but some of those that share a softmax with them and are of others; or
    both sides choose among each other, and as many of both do not tell which of them the mask hides.
    """
    pair = next(each for each in pairs if each[0] is at)
    pattern = pair[1]
    if is_mutual(run, at) or chooses_both_ways(run, at):
        return pattern is None or int(pattern.row.max()) == int(pattern.column.max())
    mine, source = at.softmax, _source(pair)
    others = [each for each in pairs if mine is not None and each[0] is not at and each[0].softmax is mine]
    return not _hides(pair) and any(_hides(each) and _source(each) != source for each in others)


def _hides(pair: Pair) -> bool:
    _, masked, free = pair
    if masked is None or free is None or masked.weights.shape != free.weights.shape:
        return False
    return bool((free.visible & ~masked.visible).any())


def _source(pair: Pair) -> int:
    return -1 if pair[1] is None else int(pair[1].source.max())
