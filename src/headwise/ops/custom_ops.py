"""Custom ops: the strips as registered operations of torch, for programs that are compiled or exported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.errors import BackendError
from headwise.masks.leaves import Allowed
from headwise.ops import blockwise
from headwise.ops.call import Call
from headwise.ops.dropout import Drops, drawn_seed


@torch.library.custom_op("headwise::attention_by_strips", mutates_args=())
def attention_by_strips(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weight: Tensor | None,
    attn_bias: Tensor | None,
    sink: Tensor | None,
    allowed: Tensor | None,
    scale: float | None,
    softcap: float | None,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """The outputs of a call of `blockwise`, (B, Hq, Lq, Dv).

    allowed: its mask as bool, (Lq, Lk) or broadcastable to (B, Hq, Lq, Lk), whose empty tiles are skipped; None: all.
    seed: of the drops, an integer without axes; None: no dropout. The rest as in `hw.attention`.
    """
    call = _call(q, k, v, weight, attn_bias, sink, allowed, scale, softcap)
    return blockwise.forward(call, _drops(dropout, seed))[0]


@torch.library.custom_op("headwise::attention_by_strips_backward", mutates_args=())
def attention_by_strips_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weight: Tensor | None,
    attn_bias: Tensor | None,
    sink: Tensor | None,
    allowed: Tensor | None,
    scale: float | None,
    softcap: float | None,
    dropout: float,
    seed: Tensor | None,
    wanted: list[bool],
) -> list[Tensor]:
    """The gradients of those among q, k, v, weight, attn_bias and sink that are wanted, in this order."""
    call = _call(q, k, v, weight, attn_bias, sink, allowed, scale, softcap)
    names = _names(wanted)
    gradients = blockwise.backward(call, _drops(dropout, seed), gradient, names)
    return [gradients[name] for name in names]


@attention_by_strips.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


@attention_by_strips_backward.register_fake
def _(gradient: Tensor, *rest: Any) -> list[Tensor]:
    tensors, wanted = rest[: len(blockwise.TENSORS)], rest[-1]
    return [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t, w in zip(tensors, wanted, strict=True) if w]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors, allowed, (*ctx.rules, seed) = inputs[: len(blockwise.TENSORS)], inputs[6], inputs[7:]
    ctx.save_for_backward(*tensors, allowed, seed)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, allowed, seed = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[: len(tensors)])
    gradients = iter(attention_by_strips_backward(gradient, *tensors, allowed, *ctx.rules, seed, wanted))
    return *(next(gradients) if needed else None for needed in wanted), *(None,) * (2 + len(ctx.rules))


def _refuse(ctx: Any, *gradients: Any) -> None:
    raise BackendError(
        "a compiled call of blockwise has one derivative, and a second one was asked for: "
        'leave it uncompiled, or use backend="reference"'
    )


attention_by_strips.register_autograd(_backward, setup_context=_save)
attention_by_strips_backward.register_autograd(_refuse)


def run(call: Call) -> Tensor:
    """The outputs of a checked call, by the registered operation."""
    seed = drawn_seed(call.generator, call.q.device) if call.dropout else None
    out: Tensor = attention_by_strips(
        call.q, call.k, call.v, call.weight, call.attn_bias, call.sink, call.allowed,
        call.scale, call.softcap, call.dropout, seed,
    )  # fmt: skip
    return out


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weight: Tensor | None,
    attn_bias: Tensor | None,
    sink: Tensor | None,
    allowed: Tensor | None,
    scale: float | None,
    softcap: float | None,
) -> Call:
    mask = None if allowed is None else Allowed(allowed)
    return Call(q, k, v, mask, weight, attn_bias, scale, softcap, sink)


def _drops(dropout: float, seed: Tensor | None) -> Drops | None:
    return None if seed is None else Drops(dropout, int(seed))


def _names(wanted: list[bool]) -> list[str]:
    return [name for name, needed in zip(blockwise.TENSORS, wanted, strict=True) if needed]
