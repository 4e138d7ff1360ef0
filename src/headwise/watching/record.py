"""CallRecord: the arguments of one call of attention, kept so that its map can be read after the model has run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import ArgumentError, StaleMapError
from headwise.maps import AttentionMap, attention_map
from headwise.maps.constructors import additive_map, shared_map
from headwise.maps.weight_gradients import STALE, Backward, OutputGradient
from headwise.masks import Mask
from headwise.ops.active_spread import SpreadSequence
from headwise.ops.additive import additive_attention
from headwise.ops.attention import attention
from headwise.ops.shared_axis import SharedHeads
from headwise.positions.distance_bias import DistanceBias

__all__ = ["CallRecord", "Projected", "unreadable"]


@dataclass(frozen=True, eq=False)
class Projected:
    """The values of a call that projects them itself, computed when they are asked for.

    x (B, L, E) by weight (heads * Dv, E) and bias. learned: a last value (heads * Dv) that all samples share, None:
    there is none. has_zero: whether a value of zeros comes after it. versions: of the tensors, when the call ran.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    heads: int
    learned: Tensor | None = None
    has_zero: bool = False
    versions: tuple[int | None, ...] = ()

    def tensor(self) -> Tensor:
        """(B, heads, L, Dv); ArgumentError where what they are made of has changed since."""
        if self.versions and self.versions != self._now():
            raise ArgumentError(
                "the values of a call are projected when they are asked for, but the input or the weights of "
                "nn.MultiheadAttention have changed in place since: read them before the next step"
            )
        v = F.linear(self.x, self.weight, self.bias)
        if self.learned is not None:
            v = torch.cat([v, self.learned.expand(v.shape[0], 1, -1).to(v.dtype)], dim=1)
        if self.has_zero:
            v = F.pad(v, (0, 0, 0, 1))
        four: Tensor = v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return four

    def detached(self, *, grad: bool) -> Projected:
        """The same, safe to keep."""
        kept = self if grad else replace(self, x=self.x.detach())
        return replace(kept, versions=kept._now())

    def _now(self) -> tuple[int | None, ...]:
        return tuple(None if t is None or t.is_inference() else t._version for t in self._tensors)

    @property
    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.x, self.weight, self.bias, self.learned


@dataclass(frozen=True, eq=False)
class CallRecord:
    """One call of attention: q (B, Hq, Lq, D), k (B, Hk, Lk, D) and its rules, as `hw.attention_map` takes them.

    weight: (Hq, D) or (D,), of additive scores, None: scores are dot products. spread, heads: what of the map ranks
    share, whose part of q and k this is, None: it is not shared. mask and attn_bias are of all rows, and so is
    distance_bias, which is added too. v: the values
    (B, Hk, Lk, Dv), None: they are not known. dropout: the probability at which the call dropped weights. backward:
    where the gradient of its output goes, None: nowhere. v_version: of v when it was kept, None: it is not kept.
    """

    q: Tensor
    k: Tensor
    mask: Mask | None = None
    attn_bias: Tensor | None = None
    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    lse: Tensor | None = None
    weight: Tensor | None = None
    distance_bias: DistanceBias | None = None
    spread: SpreadSequence | None = None
    heads: SharedHeads | None = None
    v: Tensor | Projected | None = None
    dropout: float = 0.0
    backward: OutputGradient | None = None
    v_version: int | None = None

    def values(self) -> Tensor:
        """The values (B, Hk, Lk, Dv); ArgumentError where they are not known, StaleMapError where they have changed."""
        if self.v is None:
            raise ArgumentError("the values of this call are not known")
        if isinstance(self.v, Projected):
            return self.v.tensor()
        if self.v_version is not None and self.v._version != self.v_version:
            raise StaleMapError(STALE)
        return self.v

    def context(self) -> Tensor:
        """What each head gives before the output projection, (B, Hq, Lq, Dv), without dropout.

        Of a map that ranks share, all of it: every rank must ask.
        """
        v = self.values()
        if self.spread is not None or self.heads is not None:
            return self._joined(self._part_of_context(v))
        return self._part_of_context(v)

    def _part_of_context(self, v: Tensor) -> Tensor:
        """The rows and heads of it that this rank has."""
        if self.spread is not None:
            with torch.no_grad():
                return self.spread.attend(
                    self.q, self.k, v, way="auto", mask=self.mask, attn_bias=self.attn_bias, scale=self.scale,
                    softcap=self.softcap, sink=self.sink, weight=self.weight, distance_bias=self.distance_bias,
                )  # fmt: skip
        if self.weight is not None:
            return additive_attention(self.q, self.k, v, self.weight, mask=self.mask)
        return attention(
            self.q, self.k, v, mask=self.mask, attn_bias=self.attn_bias, scale=self.scale, softcap=self.softcap,
            sink=self.sink,
        )  # fmt: skip

    def _joined(self, part: Tensor) -> Tensor:
        """All rows and heads, of the parts of the ranks that share them."""
        part = part if self.spread is None else self.spread.rows.joined(part.detach(), 2)
        return part if self.heads is None else self.heads.axis.joined(part.detach(), 1)

    def rows_of(self, context: Tensor) -> Tensor | None:
        """What a call gave, (..., Lq, Dv), as (B, Hq, Lq, Dv) in the order of the rows of q; None: it has others."""
        rows = self.q.shape[:3]
        return context.reshape(*rows, context.shape[-1]) if rows.numel() == context.shape[:-1].numel() else None

    def map(self) -> AttentionMap:
        """The lazy weights of this call."""
        if self.spread is not None or self.heads is not None:
            return shared_map(
                self.q, self.k, spread=self.spread, heads=self.heads, weight=self.weight, mask=self.mask,
                attn_bias=self.attn_bias, distance_bias=self.distance_bias, scale=self.scale, softcap=self.softcap,
                sink=self.sink, lse=self.lse,
            )  # fmt: skip
        if self.weight is not None:
            of_call = additive_map(self.q, self.k, self.weight, mask=self.mask, lse=self.lse)
        else:
            of_call = attention_map(
                self.q, self.k, mask=self.mask, attn_bias=self.attn_bias, scale=self.scale, softcap=self.softcap,
                sink=self.sink, lse=self.lse,
            )  # fmt: skip
        if self.backward is not None:
            of_call._backward = Backward(self.values, self.backward)
        return of_call

    def detached(self, *, grad: bool) -> CallRecord:
        """The same call, safe to keep: without its graph unless `grad`, and apart from caches written later."""
        if grad and (self.spread is not None or self.heads is not None):
            raise ArgumentError("a map that ranks share has no way back to q and k: watch without grad=True")
        bias = self.attn_bias
        if isinstance(bias, nn.Parameter) or (bias is not None and isinstance(bias._base, nn.Parameter)):
            bias = _copied(bias, grad=grad)
        elif bias is not None and not grad:
            bias = bias.detach()
        sink, weight = (None if t is None else _copied(t, grad=grad) for t in (self.sink, self.weight))
        lse = None if self.lse is None else self.lse.detach()
        q, k = (_kept(t, grad=grad) for t in (self.q, self.k))
        v = _kept(self.v, grad=grad) if isinstance(self.v, Tensor) else self.v and self.v.detached(grad=grad)
        version = v._version if isinstance(v, Tensor) else None
        by_distance = self.distance_bias
        if by_distance is not None:
            by_distance = by_distance.copied(_copied(by_distance.numbers, grad=grad))
        return replace(
            self, q=q, k=k, v=v, v_version=version, attn_bias=bias, distance_bias=by_distance, sink=sink, lse=lse,
            weight=weight,
        )  # fmt: skip


def _kept(t: Tensor, *, grad: bool) -> Tensor:
    """A query or key to keep: itself, or a copy where it may be written again or where no version would show it."""
    t = t if grad else t.detach()
    # what has been written in place before, as a cache is before each step, will be again
    if not t.is_inference() and t._version == 0:
        return t
    with torch.inference_mode(False):
        return t.clone()


def _copied(t: Tensor, *, grad: bool) -> Tensor:
    """A copy of what may be a parameter, or computed from one: fully_shard frees it after the forward pass."""
    with torch.inference_mode(False):
        return (t if grad else t.detach()).clone()


def unreadable(q: Any) -> str:
    """Why the numbers of a query cannot be kept; "" where they can."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "ran inside a torch.func transform, whose tensors end with it: watch outside of vmap, grad or jvp"
    if type(q) not in (Tensor, nn.Parameter):
        return f"ran on {type(q).__name__}, not on plain tensors: watch it on those"
    if q.is_nested:
        return "ran on nested tensors: pad them, and mask the padding"
    if q.device.type == "meta":
        return "ran on the meta device, which has no numbers: move the model to another"
    return ""
