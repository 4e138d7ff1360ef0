"""Attention pattern: the keys to which each query attends in a run, and those that its mask allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from headwise.dataflow.attention import AttentionOps, is_layer
from headwise.dataflow.marked_operations import MarkedOp
from headwise.dataflow.provenance import LEARNED, place_of, sample_of, source_of, token
from headwise.dataflow.runner import Run
from headwise.recording import Rebound

__all__ = ["AttentionPattern", "allowed_by", "find_pattern"]

# a weight below this counts as 0
NOTHING = 1e-7
# the source of keys that are no token's, as learned ones for each head are
NOBODYS = 2 * LEARNED
# batch, tokens and features
AXES = 3


@dataclass(frozen=True)
class AttentionPattern:
    """An attention pattern. weights: (batch * heads, queries, keys). sample, row, column, head: the batch element,
    query, key and head of each entry; source: the argument of its key.
    """

    weights: Tensor
    sample: Tensor
    row: Tensor
    column: Tensor
    head: Tensor
    source: Tensor

    @property
    def visible(self) -> Tensor:
        """Where a query attends to a key."""
        return self.weights.nan_to_num().abs() > NOTHING

    @property
    def seeing(self) -> Tensor:
        """The queries whose weights are not all 0, and not uniform over several keys: (batch * heads, queries, 1)."""
        weights = self.weights.nan_to_num()
        uniform = (weights - weights.mean(dim=-1, keepdim=True)).abs().amax(dim=-1, keepdim=True) < 1e-9
        return (weights.abs().sum(dim=-1, keepdim=True) > 0) & ~(uniform & (weights.shape[-1] > 1))


def find_pattern(attention: AttentionOps) -> AttentionPattern | None:
    """The pattern of an attention; None: unknown."""
    if attention.fused:
        return _fused(attention)
    weights, tokens = attention.weights, attention.weight_tokens
    return None if weights is None or tokens is None else _placed(weights, *tokens)


def _placed(weights: Tensor, x: Tensor, y: Tensor, h: Tensor) -> AttentionPattern | None:
    """The pattern of weights, by the tokens of their rows and columns, and their heads."""
    keys = _with_nobodys(x, y)
    if keys is None:
        return None
    return AttentionPattern(weights, sample_of(x), place_of(x), place_of(keys), h, source_of(keys))


def _with_nobodys(x: Tensor, y: Tensor) -> Tensor | None:
    """The tokens of the columns y, with learned ones in those that hold none in any row; None: it is not known, or the
    tokens of the rows x are not.
    """
    is_nobodys = (y < 0).all(dim=-2, keepdim=True)
    if bool((x < 0).any()) or bool(((y < 0) & ~is_nobodys).any()) or bool(is_nobodys.all()):
        return None
    return torch.where(is_nobodys, token(NOBODYS, sample_of(x), torch.zeros_like(x)), y)


def _fused(attention: AttentionOps) -> AttentionPattern | None:
    entry = attention.context
    if is_layer(entry):
        return _of_layer(entry)
    if entry.last != "scaled_dot_product_attention" or len(entry.tensors) < 3:
        return None
    q, k = entry.tensors[:2]
    a, b = entry.given[:2]
    if a is None or b is None or a.kind != "token" or b.kind != "token" or q.ndim != 4 or k.ndim != 4:
        return None
    group = q.shape[1] // max(1, k.shape[1])
    k = k.repeat_interleave(group, dim=1) if group > 1 else k
    kt = b.arrays["t"].repeat_interleave(group, dim=1) if group > 1 else b.arrays["t"]
    args, options = entry.rules
    scale = options.get("scale") or q.shape[-1] ** -0.5
    scores = q @ k.transpose(-1, -2) * scale
    mask = mask_argument(args, options)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if causal_argument(args, options):
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    shape = scores.shape
    x = a.arrays["t"][..., :1].expand(shape).reshape(-1, *shape[-2:])
    y = kt[..., 0].unsqueeze(-2).expand(shape).reshape(-1, *shape[-2:])
    h = a.arrays["f"][..., :1].expand(shape).reshape(-1, *shape[-2:])
    return _placed(scores.softmax(dim=-1).detach().reshape(-1, *shape[-2:]), x, y, h)


def _of_layer(entry: MarkedOp) -> AttentionPattern | None:
    """The pattern of nn.MultiheadAttention, from the weights that it returns."""
    token_marks = [
        marks for marks in entry.given[:2] if marks is not None and marks.kind == "token" and len(marks.shape) == AXES
    ]
    module: nn.MultiheadAttention = entry.args[0]
    if len(token_marks) != 2:
        return None
    changed = entry.change.overrides if isinstance(entry.change, Rebound) else {}
    asked = Rebound(entry.function, {**changed, "need_weights": True, "average_attn_weights": False})
    with torch.no_grad():
        weights = asked(*entry.args, **entry.options)[1]
    x, y = (marks.arrays["t"][..., 0] if module.batch_first else marks.arrays["t"][..., 0].T for marks in token_marks)
    if weights.shape != (x.shape[0], module.num_heads, x.shape[1], y.shape[1]):
        return None
    h = torch.arange(module.num_heads)[None, :, None, None].expand(weights.shape)
    x, y = x[:, None, :, None].expand(weights.shape), y[:, None, None, :].expand(weights.shape)
    return _placed(*(each.reshape(-1, *weights.shape[-2:]) for each in (weights, x, y, h)))


def mask_argument(args: tuple[object, ...], options: Mapping[str, object]) -> Tensor | None:
    """The mask argument of torch's attention; None: it has none."""
    mask = options.get("attn_mask", args[3] if len(args) > 3 else None)
    return mask if isinstance(mask, Tensor) else None


def causal_argument(args: tuple[object, ...], options: Mapping[str, object]) -> bool:
    """Whether torch's attention is told to be causal."""
    return bool(options.get("is_causal", args[5] if len(args) > 5 else False))


def allowed_by(run: Run, samples: int, rows: int, columns: int) -> Tensor | None:
    """The pairs (batch, queries, keys) that the mask of a plan allows; None: it has no mask, or one of unknown form."""
    declared = run.plan.call.get("_mask")
    if not isinstance(declared, Mapping):
        return None
    mask = run.named.get(str(declared["argument"]))
    if mask is None:
        return None
    means, shape = str(declared["means"]), [str(each) for each in declared["shape"]]
    if means == "lengths":
        if mask.numel() % samples:
            return None
        counts = (mask * columns).round() if declared.get("share") else mask
        lengths = counts.reshape(samples, -1, 1)
        return (torch.arange(columns) < lengths).expand(samples, rows, columns)
    attend = mask if mask.dtype == torch.bool else mask != 0
    if means == "blocked":
        attend = ~attend
    elif means == "additive":
        attend = mask > -1
    attend, shape = _of_sides(run, attend, shape, columns)
    meanings = {symbol.name: symbol.meaning for symbol in run.plan.symbols}
    if len(shape) > 1 and meanings.get(shape[-1]) == "batch" and attend.ndim < 4:
        # batch last, as in models with sequence-first layout
        attend, shape = attend.movedim(-1, 0), [shape[-1], *shape[:-1]]
    elif shape and shape[-1] == "1" and attend.ndim == 3 and columns > 1:
        attend = attend.squeeze(-1)
    first = shape and meanings.get(shape[0]) == "batch"
    if attend.ndim > 2 and not first and attend.shape[0] == 1:
        attend = attend.squeeze(0)
    full = attend.reshape(attend.shape[0], -1, attend.shape[-1]) if first else attend.reshape(1, -1, attend.shape[-1])
    if first and attend.ndim == 4 and attend.shape[1] > 1:
        return None
    if full.shape[-1] != columns or full.shape[1] not in (1, rows) or full.shape[0] not in (1, samples):
        return None
    return full.expand(samples, rows, columns)


def _of_sides(run: Run, attend: Tensor, shape: list[str], columns: int) -> tuple[Tensor, list[str]]:
    """A mask of samples and of sides of an image or frames of a video, for each of its tokens, one row after the other,
    and what it is then; any other as it is.
    """
    inputs = (each[1:-1] for each in run.plan.call.values() if isinstance(each, list) and len(each) > AXES)
    sides = next((each for each in inputs if set(shape[1:]) <= set(each)), [])
    if not sides or shape[:1] != ["B"] or prod(run.sizes.get(side, 0) for side in sides) != columns:
        return attend, shape
    for at, side in enumerate(sides, 1):
        if side not in shape[1:]:
            attend = attend.unsqueeze(at)
    return attend.expand(attend.shape[0], *(run.sizes[side] for side in sides)).flatten(1), ["B", "L"]
