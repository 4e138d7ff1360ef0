"""Whole sequence: the parts that ranks hold, joined on each of them, with the gradients that belong to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor

from headwise.distributed.layouts import Layout
from headwise.distributed.rank_failure import lost
from headwise.errors import BackendError


def joined(
    t: Tensor, layout: Layout, rank: int, group: dist.ProcessGroup | None, dim: int, *, is_summed: bool
) -> Tensor:
    """The parts t of all ranks, in the order of the sequence along `dim`; every rank must call it.

    is_summed: whether the gradient of a part is the sum of what all ranks have, or that of this rank alone.
    """
    whole: Tensor = _Joined.apply(t, layout, rank, group, dim, is_summed)  # type: ignore[no-untyped-call]
    return whole


class _Joined(torch.autograd.Function):
    """The parts in the order of the sequence; its gradient goes to the rank that holds the token."""

    @staticmethod
    def forward(
        ctx: Any, t: Tensor, layout: Layout, rank: int, group: dist.ProcessGroup | None, dim: int, is_summed: bool
    ) -> Tensor:
        shared = group if layout.ranks > 1 else None
        ctx.is_same = shared is not None and not is_summed
        ctx.tokens, ctx.group, ctx.dim = layout.tokens[rank], shared if is_summed else None, dim
        # all ranks must send as much: the shorter ones fill up
        most = max(len(tokens) for tokens in layout.tokens)
        local = t.movedim(dim, 0)
        padded = torch.cat([local, local.new_zeros(most - local.shape[0], *local.shape[1:])]).contiguous()
        if shared is not None:
            padded = collectives.wait_tensor(collectives.all_gather_single(padded, 0, shared))
        index = (layout.owner * most + layout.slot).to(t.device)
        return padded.index_select(0, index).movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        if ctx.is_same and torch.is_grad_enabled():
            raise BackendError(
                'whole(loss="same") gives one derivative, and a second one was asked for, to which the tokens of other '
                'ranks belong: use loss="parts", with a part of the loss on each rank'
            )
        if ctx.group is not None:
            # halves are summed up in float32, and rounded once
            dtype, gradient = gradient.dtype, gradient.to(torch.promote_types(gradient.dtype, torch.float32))
            try:
                gradient = collectives.wait_tensor(collectives.all_reduce(gradient.contiguous(), "sum", ctx.group))
            except RuntimeError as error:
                raise lost(error, ctx.group, "the backward pass of whole()") from error
            gradient = gradient.to(dtype)
        return gradient.index_select(ctx.dim, ctx.tokens.to(gradient.device)), None, None, None, None, None
