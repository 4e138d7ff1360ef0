"""Masking: whether a mask hides from each query exactly the keys that it means, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.checks.coming import arranged, home_of, nudges, reached_by, uses
from headwise.diagnosis.checks.diagonal import adds_itself
from headwise.diagnosis.checks.halves import is_other_half, of_others
from headwise.diagnosis.checks.lateness import CLEAR, also_wrong, is_shared_out
from headwise.diagnosis.checks.sharing import TOLERANCE
from headwise.diagnosis.following.anatomy import Attention, attentions
from headwise.diagnosis.following.layers import hidden_in_layer, is_layer
from headwise.diagnosis.following.marks import place_of, sample_of
from headwise.diagnosis.following.replacing import Recalled, Site, site_of
from headwise.diagnosis.following.running import Run
from headwise.diagnosis.following.seeing import Sight, allowed_by, sight_of
from headwise.diagnosis.following.shadow import Seen
from headwise.diagnosis.suspects import Hiding, Suspect
from headwise.recording.calls import call_role, callee, mask_arguments, parameters

__all__ = ["is_reached", "masking_suspects"]


def masking_suspects(masked: Run, free: Run) -> list[Suspect]:
    """What is wrong with a mask. masked, free: runs on the same numbers with the mask, and with none."""
    reached = reached_by(masked)
    pairs = [(a, sight_of(a), sight_of(b)) for a, b in zip(attentions(masked), attentions(free), strict=False)]
    takers = [sight for a, sight, _ in pairs if any(uses(each, reached) for each in (*a.path, a.context))]
    sources = {int(each.source.max()) for each in takers if each is not None}
    for a, with_mask, without in pairs:
        if with_mask is None or without is None or with_mask.weights.shape != without.weights.shape:
            continue
        if (sources and int(with_mask.source.max()) not in sources) or is_other_half(masked, a, pairs):
            # it looks at other tokens than those that the mask is for
            continue
        samples = int(with_mask.sample.max()) + 1
        rows, columns = int(with_mask.row.max()) + 1, int(with_mask.column.max()) + 1
        allowed = allowed_by(masked, samples, rows, columns)
        if allowed is None:
            continue
        wanted = allowed[with_mask.sample, with_mask.row, with_mask.column] | of_others(with_mask, without)
        if not bool(without.weights.isfinite().all()):
            # what holds NaN with no mask tells nothing of one; a mask that hides nothing is one
            is_of_mask = bool(free.plan.mask) and any(uses(each, reached_by(masked)) for each in a.path)
            if is_of_mask and _is_of_mask(masked, a):
                return [_suspect(masked, a, "mask-nan", wanted, with_mask)]
            continue
        kind = _kind(with_mask, without, allowed, wanted)
        if kind == "mask-axis" and (_is_of_queries(masked) or call_role(masked.plan.mask) == "adjacency"):
            # an edge may be read from either of its ends
            continue
        is_late = bool(_late(masked, a)) or (a.softmax is None and _is_unchanged(with_mask, without))
        if kind == "mask-weak-fill" and not any(uses(each, reached) for each in (*a.path, a.context)):
            kind = "mask-ignored"
        kind = "mask-weak-fill" if kind == "mask-ignored" and nudges(masked, a.path) else kind
        if kind == "mask-after-softmax" and not (is_late and (a.softmax is not None or is_shared_out(without))):
            # beside a sink rows sum to less the more is masked; what no softmax shared out has none before it
            continue
        if kind and not _is_flag(masked, a, with_mask, without):
            also = also_wrong(kind, with_mask, without, wanted) if is_late else ""
            return [_suspect(masked, a, each, wanted, with_mask) for each in (kind, also) if each]
    return []


def _kind(masked: Sight, free: Sight, allowed: Tensor, wanted: Tensor) -> str:
    if bool((masked.weights.nan_to_num() < -TOLERANCE).any()) and bool((free.weights.nan_to_num() >= 0).all()):
        # what is meant for scores was given to weights
        return "mask-after-softmax"
    # what is nearly nothing without the mask tells nothing of it
    before = free.weights.nan_to_num() > CLEAR
    right = before & wanted
    has_some = right.any(dim=-1, keepdim=True) & ~_padded(masked, allowed)
    seen = masked.visible & before
    if bool(((seen == right) | ~has_some).all()):
        total = masked.weights.nan_to_num().sum(dim=-1, keepdim=True)
        share = free.weights.nan_to_num().sum(dim=-1, keepdim=True)
        return "mask-after-softmax" if bool((((total - share).abs() > TOLERANCE) & has_some).any()) else ""
    if torch.allclose(masked.weights.nan_to_num(), free.weights.nan_to_num(), atol=1e-9):
        return "mask-ignored"
    if adds_itself(masked, seen, right):
        return ""
    wrong = before & ~wanted
    has_wrong = wrong.any(dim=-1, keepdim=True)
    if bool(((seen == wrong) | ~has_wrong).all()):
        return "mask-inverted"
    if bool((seen == before).all()):
        # nothing is hidden: whole queries are made alike, or what should be nothing is too much
        return "mask-axis" if _levels_rows(masked, free, before) else "mask-weak-fill"
    if another := _of_another(masked, allowed, before):
        return another
    if _is_of_rows(masked, allowed, before):
        return "mask-axis"
    if bool((masked.weights.isnan().any(dim=-1, keepdim=True) & right.any(dim=-1, keepdim=True)).any()):
        # a query that has keys to see
        return "mask-nan"
    if bool((seen | ~before | ~has_some).all()):
        return "mask-weak-fill"
    hidden = before & ~seen
    if bool((hidden & ~wanted).any()) and not bool((hidden & wanted & has_some).any()):
        # it hides only what it should, but not everywhere
        return "mask-broadcast"
    return "mask-broadcast" if bool((hidden & wanted).any()) else "unknown"


def _is_of_queries(run: Run) -> bool:
    """Whether the keys have a mask of their own, which is not given: this one is then of the queries."""
    inputs = [name for name in run.known if call_role(name) == "key"]
    others = [name for name in mask_arguments(parameters(callee(run.target))) if name != run.plan.mask]
    return any(other.startswith(name) for name in inputs for other in others)


def _padded(masked: Sight, allowed: Tensor) -> Tensor:
    """Rows of tokens that the mask itself hides, which see nothing, or all alike: nobody reads them."""
    if allowed.shape[1] != allowed.shape[2] or not bool((allowed == allowed[:, :1]).all()):
        return torch.zeros_like(masked.weights[..., :1], dtype=torch.bool)
    hidden = ~allowed[masked.sample[..., :1], 0, masked.row[..., :1]]
    return hidden & ~masked.seeing


def _is_flag(run: Run, attention: Attention, masked: Sight, free: Sight) -> bool:
    """Whether a mask's numbers reach nothing, and only that there is one makes each query see what is before it."""
    reached = reached_by(run)
    if any(uses(each, reached) for each in (*attention.path, attention.context)):
        return False
    before = masked.column <= masked.row
    return bool((masked.visible == before).all()) and not bool((free.visible == before).all())


def _levels_rows(masked: Sight, free: Sight, before: Tensor) -> bool:
    """Whether a mask changes some queries only, and lets these see all keys alike: it is on their axis."""
    weights, was = masked.weights.nan_to_num(), free.weights.nan_to_num()
    changed = ((weights - was).abs() > CLEAR).any(dim=-1)
    count = before.sum(dim=-1, keepdim=True).clamp(min=1)
    mean = (weights * before).sum(dim=-1, keepdim=True) / count
    is_level = (((weights - mean).abs() < TOLERANCE) | ~before).all(dim=-1)
    return bool(changed.any()) and not bool(changed.all()) and bool(is_level[changed].all())


def _of_another(masked: Sight, allowed: Tensor, before: Tensor) -> str:
    """Whether each head of each sample is hidden what the mask hides from some sample, but not always its own: from one
    and the same, or from others.
    """
    every = torch.ones(allowed.shape[0], dtype=torch.bool)
    for problem in range(masked.weights.shape[0]):
        rows, columns = masked.row[problem], masked.column[problem]
        seen = masked.visible[problem] & before[problem]
        fits = [
            bool(((seen == (before[problem] & allowed[sample][rows, columns]))
                  | ~(before[problem] & allowed[sample][rows, columns]).any(dim=-1, keepdim=True)).all())
            for sample in range(allowed.shape[0])
        ]  # fmt: skip
        if not any(fits):
            return ""
        every &= torch.tensor(fits)
    return "mask-broadcast" if bool(every.any()) else "mask-repeat-order"


def _is_of_rows(masked: Sight, allowed: Tensor, before: Tensor) -> bool:
    """Whether what should hide keys hides queries."""
    if allowed.shape[1] != allowed.shape[2]:
        return False
    right = before & allowed.transpose(1, 2)[masked.sample, masked.row, masked.column]
    return bool((((masked.visible & before) == right) | ~right.any(dim=-1, keepdim=True)).all())


def _is_unchanged(masked: Sight, free: Sight) -> bool:
    """Whether the keys that are seen have the weights that they have with no mask."""
    return bool(((masked.weights - free.weights).nan_to_num().abs() <= TOLERANCE)[masked.visible].all())


def _late(run: Run, attention: Attention) -> list[Seen]:
    """The operations after the softmax that use the mask."""
    reached, softmax = reached_by(run), attention.softmax
    return [each for each in attention.path if softmax is not None and each.at > softmax.at and uses(each, reached)]


def _suspect(run: Run, attention: Attention, kind: str, wanted: Tensor, masked: Sight) -> Suspect:
    reached = reached_by(run)
    on_path = [each for each in attention.path if uses(each, reached)]
    late = _late(run, attention)
    entry = on_path[0] if on_path else next((each for each in run.seen if uses(each, reached)), None)
    entry = late[0] if kind == "mask-after-softmax" and late else entry
    span = None if entry is None else entry.operation.span
    is_part = kind == "mask-broadcast" and entry is not None and _is_part(entry, attention)
    if kind in ("mask-repeat-order", "mask-axis", "mask-broadcast") and not is_part:
        span = arranged(run, reached, kind) or span
    if span is None:
        span = (attention.softmax or attention.scores or attention.context).operation.span
    if attention.fused:
        span = attention.context.operation.span if entry is None else span
    error = float((masked.weights.nan_to_num() * (~wanted)).sum(dim=-1).max())
    place = None if attention.softmax is None else attention.softmax.operation.span
    return Suspect(
        kind, span, _stand_ins(run, attention, on_path), said={"leak": f"{error:.0%}", "_softmax": place},
        is_local=True, home=home_of(run, kind, entry, reached), words="mask_numbers" if kind == "mask-nan" else "",
    )  # fmt: skip


def _is_of_mask(run: Run, attention: Attention) -> bool:
    """Whether what brings a mask to scores makes NaN of scores that hold none."""
    for entry in attention.path:
        if uses(entry, reached_by(run)):
            before = [
                each.value for each, marks in zip(entry.operation.inputs, entry.given, strict=True) if marks is not None
            ]
            return all(each is not None and not bool(each.isnan().any()) for each in before)
    return False


def _is_part(entry: Seen, attention: Attention) -> bool:
    """Whether a mask is laid over some of the scores alone."""
    whole, part = attention.softmax, entry.operation.outputs
    return (
        bool(part)
        and whole is not None
        and part[0].value is not None
        and whole.operation.inputs[0].value is not None
        and (part[0].value.numel() < whole.operation.inputs[0].value.numel())
    )


def is_reached(run: Run) -> bool:
    """Whether a mask is brought to scores, whatever comes of it."""
    reached = reached_by(run)
    kinds = [{m.kind for m in (*each.given, *each.made) if m is not None} for each in run.seen if uses(each, reached)]
    return any("pair" in each for each in kinds) or any(uses(each.context, reached) for each in attentions(run))


def _stand_ins(run: Run, attention: Attention, on_path: list[Seen]) -> dict[Site, Callable[..., Any]]:
    """What would hide the right keys: every use of the mask is undone, and the softmax hides them itself."""
    softmax = attention.softmax
    if attention.fused:
        return _fused_stand_ins(run, attention)
    if softmax is None:
        return {}
    marks = softmax.given[0]
    if marks is None or marks.kind != "pair":
        return {}
    sight = sight_of(attention)
    if sight is None:
        return {}
    samples, rows, columns = int(sight.sample.max()) + 1, int(sight.row.max()) + 1, int(sight.column.max()) + 1
    allowed = allowed_by(run, samples, rows, columns)
    if allowed is None:
        return {}
    x, y = marks.arrays[attention.looks], marks.arrays[attention.keys]
    open_to = allowed[sample_of(x), place_of(x), place_of(y)]
    out: dict[Site, Callable[..., Any]] = {site_of(softmax.operation): Hiding(softmax.function, open_to)}
    for entry in on_path:
        place = next((at for at, each in enumerate(entry.given) if each is not None and each.kind == "pair"), 0)
        if entry.joint is not None:
            out[site_of(entry.operation)] = _bare(entry.function)
        elif entry is not softmax:
            out[site_of(entry.operation)] = _undone(place)
    return out


def _fused_stand_ins(run: Run, attention: Attention) -> dict[Site, Callable[..., Any]]:
    """torch's own attention, called with the mask as it is meant."""
    entry = attention.context
    a, b = entry.given[:2]
    if is_layer(entry):
        return _layer_stand_ins(run, attention)
    if entry.last != "scaled_dot_product_attention" or a is None or b is None or len(a.shape) != 4:
        return {}
    x = a.arrays["t"][..., 0][..., None]
    y = b.arrays["t"][..., 0].repeat_interleave(max(1, a.shape[1] // b.shape[1]), dim=1)[..., None, :]
    size = [int(place_of(each).max()) + 1 for each in (x, y)]
    allowed = allowed_by(run, int(sample_of(x).max()) + 1, *size)
    if allowed is None:
        return {}
    open_to = allowed[sample_of(x), place_of(x), place_of(y)]
    return {site_of(entry.operation): Recalled(entry.function, {"attn_mask": open_to})}


def _layer_stand_ins(run: Run, attention: Attention) -> dict[Site, Callable[..., Any]]:
    """torch's own layer, called with the mask as it is meant, and with what else hides keys from it as it was."""
    sight = sight_of(attention)
    size = [] if sight is None else [int(each.max()) + 1 for each in (sight.sample, sight.row, sight.column)]
    if sight is None or (allowed := allowed_by(run, *size)) is None:
        return {}
    entry, reached = attention.context, reached_by(run)
    masks = [each for each, seen in zip(entry.tensors, entry.operation.inputs, strict=True) if seen.number in reached]
    return hidden_in_layer(entry, allowed[sight.sample, sight.row, sight.column], masks)


def _undone(place: int) -> Callable[..., Any]:
    from headwise.recording.identity import tensors

    return lambda *args, **options: list(tensors((args, options)))[place]


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product to which a mask is added, without it."""
    return lambda *args, **options: function(*args, **{**options, "beta": 0})
