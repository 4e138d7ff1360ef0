"""Reference output: what a run should give: softmax(q kᵀ / √d) v of the user's own q, k and v."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import (
    LAYERS,
    AttentionOps,
    MarkedOp,
    Run,
    allowed_by,
    attentions,
    place_of,
    sample_of,
)
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.ops.reference import attention as definition
from headwise.recording import Site

__all__ = ["Intent", "contexts", "given_instead"]

# numbers of one intermediate tensor; what would take more is not built
MOST = 30_000_000


@dataclass(frozen=True)
class Intent:
    """What an attention means. seen: (queries, keys), who sees whom by their places, None: all see all; scale: by
    what it multiplies q · k, None: 1/√(head width).
    """

    seen: Tensor | None = None
    scale: float | None = None


def contexts(run: Run, intents: Sequence[Intent]) -> list[tuple[MarkedOp, Tensor]] | None:
    """The weighted sum that each attention of a run should give; None: it cannot be built for one of them."""
    out = []
    for attention, intent in zip(attentions(run), intents, strict=True):
        result = _fused(run, attention, intent) if attention.fused else _context(run, attention, intent)
        if result is None:
            return None
        out.append((attention.context, result))
    return out


def given_instead(results: Sequence[tuple[MarkedOp, Tensor]]) -> dict[Site, Callable[..., Any]]:
    """Stand-ins, good for one run, that give these in place of what the operations compute."""
    waiting: dict[Site, list[Tensor]] = {}
    for entry, value in results:
        waiting.setdefault(entry.site, []).append(value)

    def next_of(queue: list[Tensor]) -> Callable[..., Any]:
        return lambda *_, **__: queue.pop(0)

    return {site: next_of(queue) for site, queue in waiting.items()}


@dataclass(frozen=True)
class _Looks:
    """For each query of each problem: which it is (x), which keys it meets (y), and its place among those of q."""

    x: Tensor
    y: Tensor
    at: Tensor


def _context(run: Run, attention: AttentionOps, intent: Intent) -> Tensor | None:
    by_name = {side.name: side for side in sides(attention)}
    joint, value = attention.context.joint, attention.context.outputs[0].value
    if set(by_name) != set("qkv") or joint is None or value is None:
        return None
    q, k, v = (by_name[name] for name in "qkv")
    looks = _looks(attention, q)
    if looks is None or any(bool((tensor.t < 0).any()) for tensor in (q, k, v)):
        return None
    problems, rows, keys = looks.y.shape
    if problems * rows * keys * max(q.x.shape[-1], v.x.shape[-1]) > MOST or v.x.shape[:2] != (problems, keys):
        return None
    at = looks.at.flatten()
    mine = torch.div(at * k.x.shape[0], q.x.shape[0] * q.x.shape[1], rounding_mode="floor")
    met = _in_order(k, mine, looks.y.reshape(-1, keys))
    if met is None:
        return None
    queries = q.x.flatten(0, 1)[at]
    values = v.x.repeat_interleave(rows, dim=0)
    x = looks.x.reshape(-1, 1).expand(-1, keys)
    allowed = _allowed(run, intent, x, looks.y.reshape(-1, keys))
    if allowed is None:
        return None
    result = definition(
        queries.double()[:, None, None], met.double()[:, None], values.double()[:, None],
        mask=allowed[:, None, None], scale=intent.scale,
    )  # fmt: skip
    flat = result.reshape(problems, rows, -1)
    return _laid_out(attention, flat, tuple(value.shape)).to(value.dtype)


def _looks(attention: AttentionOps, q: Side) -> _Looks | None:
    """The queries and keys of the weighted sum, each query found again among the operands of the scores."""
    tokens = attention.weight_tokens
    if tokens is None:
        return None
    x, y, h = tokens
    if bool((x != x[..., :1]).any()) or bool((y < 0).any()) or bool((x < 0).any()):
        return None
    heads, ranks = torch.unique(q.f[:, :, 0], return_inverse=True)
    ids = (q.t[:, :, 0] * len(heads) + ranks).flatten()
    wanted = torch.searchsorted(heads, h[..., 0].contiguous()).clamp(max=len(heads) - 1)
    if bool((heads[wanted] != h[..., 0]).any()) or len(torch.unique(ids)) != len(ids):
        return None
    numbers = x[..., 0] * len(heads) + wanted
    order = ids.argsort()
    at = torch.searchsorted(ids[order], numbers.contiguous()).clamp(max=len(ids) - 1)
    if bool((ids[order][at] != numbers).any()):
        return None
    return _Looks(x[..., 0], y, order[at])


def _in_order(k: Side, problems: Tensor, y: Tensor) -> Tensor | None:
    """For each query its keys, in the order in which its weights stand."""
    tokens = k.t[:, :, 0][problems]
    if tokens.shape != y.shape:
        return None
    token_order, mine = tokens.argsort(dim=1, stable=True), y.argsort(dim=1, stable=True)
    if not torch.equal(tokens.gather(1, token_order), y.gather(1, mine)):
        return None
    order = torch.empty_like(mine).scatter_(1, mine, token_order)
    keys: Tensor = k.x[problems].gather(1, order[..., None].expand(-1, -1, k.x.shape[-1]))
    return keys


def _allowed(run: Run, intent: Intent, x: Tensor, y: Tensor) -> Tensor | None:
    """Whether each query may see each key, by the meaning of the mask and by the order of tokens."""
    # torch.broadcast_shapes brings sympy, which takes a second to import
    out = torch.ones_like(x == y)
    if run.plan.mask:
        samples, rows, columns = int(sample_of(x).max()) + 1, int(place_of(x).max()) + 1, int(place_of(y).max()) + 1
        allowed = allowed_by(run, samples, rows, columns)
        if allowed is None:
            return None
        out = out & allowed[sample_of(x), place_of(x), place_of(y)]
    if intent.seen is not None:
        if int(place_of(x).max()) >= intent.seen.shape[0] or int(place_of(y).max()) >= intent.seen.shape[1]:
            return None
        out = out & intent.seen[place_of(x), place_of(y)]
    return out


def _laid_out(attention: AttentionOps, flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(problems, queries, channels) with the axes of the weighted sum."""
    joint = attention.context.joint
    if joint is None:
        return flat.reshape(shape)
    pair, value = (joint.left, joint.right) if attention.has_weights_left else (joint.right, joint.left)
    problems = [each for each in joint.out if each in pair and each in value]
    rows = [each for each in pair if each in joint.out and each not in problems]
    channels = [each for each in value if each in joint.out and each not in problems]
    order = [joint.out.index(each) for each in (*problems, *rows, *channels)]
    places = torch.arange(flat.numel()).reshape([shape[each] for each in order])
    back = [order.index(each) for each in range(len(order))]
    return flat.flatten()[places.permute(back)]


def _fused(run: Run, attention: AttentionOps, intent: Intent) -> Tensor | None:
    """Of torch's own attention, whose operands end in heads, tokens, channels; axes before them are batches alike."""
    entry = attention.context
    if entry.last in LAYERS or entry.last == "AdditiveAttention" or len(entry.inputs) < 3:
        return None
    values = [tensor.value for tensor in entry.inputs[:3]]
    marks = entry.given[:3]
    output = entry.outputs[0].value
    if output is None or any(m is None or m.kind != "token" or bool((m.arrays["t"] < 0).any()) for m in marks):
        return None
    q, k, v = (value.double() for value in values if value is not None)
    while q.ndim < 4:
        q, k, v = (tensor.unsqueeze(-3) for tensor in (q, k, v))
    q, k, v = (tensor.flatten(0, -4) for tensor in (q, k, v))
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] or q.numel() * k.shape[2] > MOST:
        return None
    (x, y) = (m.arrays["t"][..., 0].reshape(t.shape[:3]) for m, t in zip(marks[:2], (q, k), strict=True) if m)
    y = y.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    allowed = _allowed(run, intent, x[..., None], y[..., None, :])
    if allowed is None:
        return None
    result = definition(q, k, v, mask=allowed, scale=intent.scale)
    return result.reshape(output.shape).to(output.dtype) if result.numel() == output.numel() else None
