"""Guarded calls: of those that were made before, the newest, which are recognized without their keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from headwise.masks import Mask
from headwise.masks.derived_tensors import DerivedTable, is_capturing
from headwise.ops import sdpa
from headwise.ops.call_keys import PLAIN_KEY, kernels_are_on, stream_of
from headwise.ops.device_calls import DeviceCall
from headwise.ops.repeated_calls import RepeatedCall, without_mask

__all__ = ["guard", "met_again", "recognized"]

# what compares three tensors with those of a call before in one step: their types, dtypes, sizes, strides, devices,
# what requires gradients, and the modes and transforms that are at work, but not grad mode; not in every torch
Guards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
# the newest calls that are recognized by their guards, those with one mask
MOST_GUARDED = 4


class GuardedCall(NamedTuple):
    """A repeated call, and what recognizes it: guards of q, k and v, and all else that its key holds.

    has_grad: whether grad mode was on. stream: the CUDA stream on which what is kept was made; 0: none. numbers: how
    many k and the outputs hold alike, where both lie in memory without gaps, the call is small, float32 and
    differentiated; else 0. key: by which it was remembered.
    """

    guards: Any
    scale: float | None
    backend: str
    threads: int
    has_grad: bool
    numbers: int
    stream: int
    key: Hashable
    call: RepeatedCall | DeviceCall


# the key of the last call that was found by it, and of which mask
_last: tuple[Any, ...] = ()


def recognized(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None, backend: str
) -> GuardedCall | None:
    """What is kept of a call without further rules, found in half the time of its key; None: ask for its key."""
    # what other compilers trace is no plain tensor, which the guards refuse
    if is_dynamo_compiling():
        return None
    kept: DerivedTable | None = without_mask
    if mask is not None:
        kept = getattr(mask, "_table", None) or getattr(mask, "_layout_table", None)
    if kept is None or (mask is not None and q.is_cuda and is_capturing()):
        return None
    for guarded in kept.guarded:
        if (
            guarded.guards.check(q, k, v)
            and type(guarded.scale) is type(scale)
            and guarded.scale == scale
            and type(backend) is str
            and guarded.backend == backend
            and guarded.has_grad is torch.is_grad_enabled()
            and guarded.threads == torch.get_num_threads()
            and forward_ad._current_level < 0
            and kernels_are_on(q)
            and guarded.stream == stream_of(q)
        ):
            return guarded if not kept.tensors or kept.is_current() else None
    return None


def guard(kept: DerivedTable, key: Any, tensors: tuple[Tensor, Tensor, Tensor], call: Any, out: Tensor) -> None:
    """Have the next calls like that of q, k and v, `tensors`, which gave `out`, recognized.

    call: what is repeated of it; of a backend alone, and of calls with further rules, nothing is recognized.
    """
    if Guards is None or len(key) > PLAIN_KEY or not isinstance(call, RepeatedCall | DeviceCall):
        return
    _, _, scale, backend, _, threads, _, stream = key
    _, k, _ = tensors
    numbers, has_grad = out.numel(), torch.is_grad_enabled()
    is_small = k.is_cpu and out.requires_grad and k.dtype is torch.float32 and k.numel() == numbers < sdpa.GRAIN
    if not (is_small and _is_dense(k) and _is_dense(out)):
        numbers = 0
    guards = Guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    newest = GuardedCall(guards, scale, backend, threads, has_grad, numbers, stream, key, call)
    kept.guarded = (newest, *kept.guarded[: MOST_GUARDED - 1])


def met_again(
    kept: DerivedTable, key: Hashable, tensors: tuple[Tensor, Tensor, Tensor], call: Any, out: Tensor
) -> None:
    """Guard a call that was found by its key in a table, if the one found before it had the same key.

    The layers of a model follow one another so. Calls that alternate among more than MOST_GUARDED shapes would take
    each other's place.
    """
    global _last
    last, _last = _last, (id(kept), key)
    if last == _last and not any(_guards(guarded, key, tensors) for guarded in kept.guarded):
        guard(kept, key, tensors, call, out)


def _guards(guarded: GuardedCall, key: Hashable, tensors: tuple[Tensor, Tensor, Tensor]) -> bool:
    """Whether a call is guarded already: it was not recognized since it is called in another way."""
    is_same = guarded.key == key and guarded.has_grad is torch.is_grad_enabled()
    return is_same and bool(guarded.guards.check(*tensors))


def _is_dense(t: Tensor) -> bool:
    """Whether heads or tokens follow one another in memory without gaps."""
    return t.is_contiguous() or t.transpose(1, 2).is_contiguous()
