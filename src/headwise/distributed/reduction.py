"""Reduction: the two ends of a stretch that each rank computes a part of, with the gradients that belong to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh

__all__ = ["first_only", "shared", "summed"]


def shared(t: Tensor, mesh: DeviceMesh, *, is_fresh: bool = False) -> Tensor:
    """What all ranks hold alike, t, at the start of what each computes a part of: its gradient is their sum.

    is_fresh: whether the gradient of what is given back is nobody else's, so that it may be summed where it is.
    """
    out: Tensor = _Shared.apply(t, mesh, is_fresh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


def summed(t: Tensor, mesh: DeviceMesh, *, is_fresh: bool = False) -> Tensor:
    """The sum of the ranks' parts t, alike on all of them; the gradient of each part is that of the sum.

    is_fresh: whether t is nobody else's, and may be written over.
    """
    out: Tensor = _Summed.apply(t, mesh, is_fresh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


def first_only(t: Tensor, mesh: DeviceMesh) -> Tensor:
    """t on the first rank and zeros on the others, as a part of a sum; its gradient is that of the sum on all."""
    out: Tensor = _FirstOnly.apply(t, mesh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, mesh: DeviceMesh, is_fresh: bool) -> Tensor:
        ctx.mesh, ctx.is_fresh = mesh, is_fresh
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # by the other end, so that it has a derivative too
        return summed(grad, ctx.mesh, is_fresh=ctx.is_fresh and not torch.is_grad_enabled()), None, None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, mesh: DeviceMesh, is_fresh: bool) -> Tensor:
        ctx.mesh = mesh
        if is_fresh and t.is_contiguous() and not torch.compiler.is_compiling():
            # the functional operation copies what it sums
            whole = t.detach()
            dist.all_reduce(whole, group=mesh.get_group())
            return whole
        done: Tensor = collectives.wait_tensor(collectives.all_reduce(t.contiguous(), "sum", (mesh, 0)))
        return done

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # an expanded one, as that of a sum is, would be copied by each product
        return shared(grad.contiguous(), ctx.mesh), None, None


class _FirstOnly(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, t: Tensor, mesh: DeviceMesh) -> Tensor:
        return t.view_as(t) if mesh.get_local_rank() == 0 else torch.zeros_like(t)

    @staticmethod
    def backward(_: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
