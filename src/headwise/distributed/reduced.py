"""Reduced: the two ends of a stretch that each rank computes a part of, with the gradients that belong to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh

__all__ = ["first_only", "shared", "summed"]


def shared(t: Tensor, mesh: DeviceMesh) -> Tensor:
    """What all ranks hold alike, t, at the start of what each computes a part of: its gradient is their sum."""
    out: Tensor = _Shared.apply(t, mesh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


def summed(t: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum of the ranks' parts t, alike on all of them; the gradient of each part is that of the sum."""
    out: Tensor = _Summed.apply(t, mesh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


def first_only(t: Tensor, mesh: DeviceMesh) -> Tensor:
    """t on the first rank and zeros on the others, as a part of a sum; its gradient is that of the sum on all."""
    out: Tensor = _FirstOnly.apply(t, mesh)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return out


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # by the other end, so that it has a derivative too
        return summed(grad, ctx.mesh), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        whole: Tensor = collectives.all_reduce(t.contiguous(), "sum", (mesh, 0))
        done: Tensor = collectives.wait_tensor(whole)
        return done

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return shared(grad, ctx.mesh), None


class _FirstOnly(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, t: Tensor, mesh: DeviceMesh) -> Tensor:
        return t.view_as(t) if mesh.get_local_rank() == 0 else torch.zeros_like(t)

    @staticmethod
    def backward(_: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
