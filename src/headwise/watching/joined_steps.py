"""Joined steps: the steps of one module on a growing sequence as one call on the whole of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.masks import Mask, allowed, lengths
from headwise.masks.leaves import Causal
from headwise.watching.record import CallRecord

__all__ = ["joined"]


class JoinedKeys(NamedTuple):
    """The keys of the whole sequence, k (B, Hk, Lk, D), and which of them the first key of each step is."""

    k: Tensor
    starts: list[int]


def joined(name: str, steps: list[CallRecord]) -> CallRecord:
    """The rows of all steps over the keys of the whole sequence, each step seeing the keys that it had.

    Raises ArgumentError where the steps do not read one growing sequence.
    """
    if len(steps) == 1:
        return steps[0]
    if any(step.spread is not None for step in steps):
        raise ArgumentError(
            f'the {len(steps)} calls of "{name}" were each of a whole sequence that ranks share, and are no steps of '
            f'one: take seen.calls("{name}")'
        )
    fewest = min(step.k.shape[1] for step in steps)
    steps = [_grouped(step, fewest) for step in steps]
    last = steps[-1]
    keys = _keys(name, steps)
    lse = None if any(s.lse is None for s in steps) else torch.cat([s.lse for s in steps if s.lse is not None], dim=2)
    return CallRecord(
        torch.cat([s.q for s in steps], dim=2), keys.k, _mask(steps, keys), _bias(steps, keys), last.scale,
        last.softcap, last.sink, lse, last.weight, heads=last.heads,
    )  # fmt: skip


def _grouped(step: CallRecord, heads: int) -> CallRecord:
    """The step with so many heads of keys, where it has more that repeat these, as Hugging Face does now and then."""
    kv_heads = step.k.shape[1]
    if kv_heads == heads or kv_heads % heads:
        return step
    groups = step.k.unflatten(1, (heads, kv_heads // heads))
    return replace(step, k=groups[:, :, 0]) if bool((groups == groups[:, :, :1]).all()) else step


def _keys(name: str, steps: list[CallRecord]) -> JoinedKeys:
    """The keys that all steps agree on: those of the last one, or, of a cache that drops its oldest, all that came."""
    faults = [fault for n in range(len(steps)) if (fault := _unlike_the_last(steps, n))]
    if not faults:
        candidates = [(JoinedKeys(steps[-1].k, [0] * len(steps)), _no_growth(steps))]
        # a step that sees no older key is no step of what came before
        if all(step.k.shape[2] > step.q.shape[2] for step in steps[1:]):
            sliding = _sliding(steps)
            candidates.append((sliding, _no_newest(steps, sliding)))
        for keys, fault in candidates:
            bad = next((n for n, step in enumerate(steps) if not _agrees(step, keys, keys.starts[n])), None)
            if bad is None and not fault:
                return keys._replace(k=keys.k[:, :, : _filled(steps)]) if keys.starts == [0] * len(steps) else keys
            if bad is not None:
                size = steps[bad].k.shape[2]
                fault = f"the {size} keys of call {bad} are not among the {keys.k.shape[2]} of the whole"
            faults.append(fault)
    raise ArgumentError(
        f'the {len(steps)} calls of "{name}" must be steps of one sequence to be joined, but {faults[0]}: '
        f'take seen.calls("{name}")'
    )


def _unlike_the_last(steps: list[CallRecord], n: int) -> str:
    """How a call differs from the last in what all steps of one sequence share; "" where it does not."""
    step, last = steps[n], steps[-1]
    if (*step.q.shape[:2], *step.k.shape[:2]) != (*last.q.shape[:2], *last.k.shape[:2]):
        first, second = (f"q {tuple(s.q.shape)} and k {tuple(s.k.shape)}" for s in (step, last))
        return f"call {n} has {first}, and call {len(steps) - 1} {second}"
    is_same = _same(step.sink, last.sink) and _same(step.weight, last.weight)
    if (step.scale, step.softcap) != (last.scale, last.softcap) or not is_same:
        return f"call {n} and call {len(steps) - 1} differ in scale, softcap, sink or weight"
    return ""


def _no_growth(steps: list[CallRecord]) -> str:
    """Why the keys do not grow as steps make them grow, by one for each query; "" where they do.

    In a buffer of one size the visible keys grow; those of another sequence stay the same.
    """
    grown = [after.k.shape[2] - before.k.shape[2] for before, after in pairwise(steps)]
    noun = "keys"
    if not any(grown):
        masks = [_visible(step) for step in steps]
        # the keys of another sequence: all queries see the same
        if all(_is_alike(mask, masks[0]) for mask in masks):
            repeats = any(torch.equal(before.q, after.q) for before, after in pairwise(steps) if before.q.shape[2] > 1)
            return "two calls have the same queries" if repeats else ""
        ends = [_end(mask) for mask in masks]
        grown, noun = [after - before for before, after in pairwise(ends)], "visible keys"
    for n, (more, step) in enumerate(zip(grown, steps[1:], strict=True), 1):
        if more != step.q.shape[2]:
            return f"call {n} has {step.q.shape[2]} queries, and {more} {noun} more than call {n - 1}"
    return ""


def _filled(steps: list[CallRecord]) -> int:
    """How many of the keys of the last step belong to the sequence: of a buffer of one size, those visible by then."""
    size = steps[-1].k.shape[2]
    if any(step.k.shape[2] != size for step in steps):
        return size
    masks = [_visible(step) for step in steps]
    # the keys of another sequence
    if all(_is_alike(mask, masks[0]) for mask in masks):
        return size
    return max(map(_end, masks))


def _is_alike(mask: Tensor, first: Tensor) -> bool:
    """Whether all rows of a mask (B or 1, H or 1, rows, keys) are the first row of another."""
    return bool((mask == first[:, :, :1]).all())


def _end(mask: Tensor) -> int:
    """After which key no row of a mask may attend."""
    columns = mask.flatten(0, -2).any(dim=0).nonzero()
    return int(columns.max()) + 1 if columns.numel() else 0


def _sliding(steps: list[CallRecord]) -> JoinedKeys:
    """The keys of a cache that holds the latest ones only, its steps beginning with the sequence."""
    rows = [step.q.shape[2] for step in steps]
    ends = list(accumulate(rows))
    starts = [max(0, end - step.k.shape[2]) for end, step in zip(ends, steps, strict=True)]
    newest = []
    for step, end, start, size in zip(steps, ends, starts, rows, strict=True):
        newest.append(step.k[:, :, max(0, end - start - size) : end - start])
    return JoinedKeys(torch.cat(newest, dim=2), starts)


def _no_newest(steps: list[CallRecord], keys: JoinedKeys) -> str:
    """Which call does not see the newest of the keys that it should have by then; "" where all do."""
    ends = accumulate(step.q.shape[2] for step in steps)
    for n, (step, end, start) in enumerate(zip(steps, ends, keys.starts, strict=True)):
        if (visible := _end(_visible(step))) != end - start:
            return f"call {n} sees {visible} keys where a step would see {end - start}"
    return ""


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _agrees(step: CallRecord, keys: JoinedKeys, start: int) -> bool:
    """Whether the keys that a step could see are those of the whole, from `start` on."""
    there = keys.k[:, :, start : start + step.k.shape[2]]
    size = there.shape[2]
    different = torch.ones(step.k.shape[0], step.k.shape[2], dtype=torch.bool, device=step.k.device)
    different[:, :size] = (step.k[:, :, :size] != there).any(dim=3).any(dim=1)
    if not bool(different.any()):
        return True
    # a key that no query of the step could see may have been empty still, as in a static cache
    return not bool((_visible(step).any(dim=2).any(dim=1) & different).any())


def _visible(step: CallRecord) -> Tensor:
    """What a step could see, by its mask and by a bias that fills up with the least number."""
    visible = _allowed(step)
    if step.attn_bias is None:
        return visible
    return visible & (step.attn_bias > torch.finfo(step.attn_bias.dtype).min)


def _allowed(step: CallRecord) -> Tensor:
    """The mask of one step, bool (B or 1, H or 1, Lq, Lk)."""
    Lq, Lk = step.q.shape[2], step.k.shape[2]
    if step.mask is None:
        return torch.ones(1, 1, Lq, Lk, dtype=torch.bool, device=step.q.device)
    dense = step.mask.allowed(Lq, Lk, device=step.q.device)
    return dense[None, None] if dense.ndim == 2 else dense


def _mask(steps: list[CallRecord], keys: JoinedKeys) -> Mask:
    """Each step sees the keys that it had; lengths say so in O(L) where no step has more of a mask than causal."""
    if not any(keys.starts) and all(s.mask is None or type(s.mask) is Causal for s in steps):
        return lengths(torch.cat([_lengths(s) for s in steps])[None])
    return allowed(_stacked([_placed(_allowed(s), keys, start) for s, start in zip(steps, keys.starts, strict=True)]))


def _lengths(step: CallRecord) -> Tensor:
    """How many keys each row of a step sees, which are the first."""
    Lq, Lk, device = step.q.shape[2], step.k.shape[2], step.q.device
    if step.mask is None:
        return torch.full((Lq,), Lk, device=device)
    return torch.arange(Lk - Lq + 1, Lk + 1, device=device).clamp(min=0)


def _bias(steps: list[CallRecord], keys: JoinedKeys) -> Tensor | None:
    if all(s.attn_bias is None for s in steps):
        return None
    blocks = []
    for step, start in zip(steps, keys.starts, strict=True):
        bias = step.q.new_zeros(1, 1, 1, 1) if step.attn_bias is None else step.attn_bias
        bias = bias[None, None] if bias.ndim == 2 else bias
        blocks.append(_placed(bias.expand(*bias.shape[:2], step.q.shape[2], step.k.shape[2]), keys, start))
    return _stacked(blocks)


def _placed(block: Tensor, keys: JoinedKeys, start: int) -> Tensor:
    """The columns of a step among those of the whole, 0 or False elsewhere; what is empty at its end is cut off."""
    return F.pad(block, (start, keys.k.shape[2] - start - block.shape[-1]))


def _stacked(blocks: list[Tensor]) -> Tensor:
    """Blocks of rows below each other, with the samples and heads of those that have them."""
    B, H = (max(t.shape[axis] for t in blocks) for axis in (0, 1))
    return torch.cat([t.expand(B, H, *t.shape[2:]) for t in blocks], dim=2)
