"""Exchange: parts of tensors that ranks need of each other, moved by one all-to-all, and their gradients moved back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers the gradient of the operation
from torch import Tensor

from headwise.distributed.index import Place, add, is_whole, put, size_of, take
from headwise.distributed.rank_failure import lost
from headwise.errors import ArgumentError


@dataclass(slots=True, eq=False)
class Traffic:
    """What a rank has sent to other ranks: bytes, and in how many messages; what it keeps for itself is not counted."""

    bytes: int = 0
    messages: int = 0


_counter: ContextVar[Traffic | None] = ContextVar("traffic", default=None)


@contextmanager
def counted() -> Iterator[Traffic]:
    """Count what this rank sends in the calls made here, their backward passes included, whenever these run.

    >>> with counted() as traffic:
    ...     pass
    >>> traffic.bytes
    0
    """
    traffic = Traffic()
    token = _counter.set(traffic)
    try:
        yield traffic
    finally:
        _counter.reset(token)


@dataclass(frozen=True, eq=False)
class Parcel:
    """How one tensor (B, H, L, D) is sent, and what is received in its place.

    sends: for each rank, the heads and columns that it is sent. places: for each rank, where what comes from it stands
    in the received tensor, of `heads` heads and `columns` columns. Each place of that is filled by one rank.
    """

    sends: tuple[Place, ...]
    places: tuple[Place, ...]
    heads: int
    columns: int


# which tensor, and what of its heads and columns
Cut = tuple[int, Place]


@dataclass(frozen=True, eq=False)
class Ends:
    """This rank, of how many, in a group, None: of one. call: what it is for, which an error names.

    is_quiet: no rank sends anything to another, on which all ranks must agree.
    """

    rank: int
    ranks: int
    group: dist.ProcessGroup | None
    call: str
    is_quiet: bool = False


@dataclass(frozen=True, eq=False)
class Route:
    """One all-to-all: the parcels, one a tensor, and which cuts of the tensors received are wanted, one an output."""

    parcels: tuple[Parcel, ...]
    cuts: tuple[Cut, ...]
    ends: Ends


def exchange(route: Route, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The cuts of a route, from tensors (B, H, L, D) of one dtype, one a parcel, differentiable as often as wanted.

    Gradients of several cuts of one place are summed up, and travel, in float32 where the tensors are halves; they are
    rounded once. All ranks of the group must call it, forward and backward, in the same order.
    """
    if torch.compiler.is_compiling() and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        # torch 2.13 inlines a Function without gradients with its arguments shifted by one
        return _received(route, counting(), tensors)
    received: tuple[Tensor, ...] = Exchange.apply(route, counting(), *tensors)  # type: ignore[no-untyped-call]
    return received


def _received(route: Route, traffic: Traffic | None, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The cuts of what all ranks send, without gradients."""
    ends = route.ends
    sends = [[take(t, parcel.sends[to]) for to in range(ends.ranks)] for t, parcel in _with_parcels(tensors, route)]
    sizes = [_sizes(t.shape, parcel.places) for t, parcel in _with_parcels(tensors, route)]
    came = moved(ends, sends, sizes, traffic)
    whole = []
    for (t, parcel), parts in zip(_with_parcels(tensors, route), came, strict=True):
        into = t.new_empty(t.shape[0], parcel.heads, parcel.columns, t.shape[3])
        for place, part in zip(parcel.places, parts, strict=True):
            put(into, place, part)
        whole.append(into)
    # a tensor wanted whole is its own cut; two views of one tensor would be one output to autograd
    return tuple(take(whole[number], at) for number, at in route.cuts)


class Exchange(torch.autograd.Function):
    """The all-to-all of a route; its backward pass is the same all-to-all, reversed."""

    @staticmethod
    def forward(ctx: Any, route: Route, traffic: Traffic | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.route, ctx.traffic = route, traffic
        ctx.shapes, ctx.dtype = [tuple(t.shape) for t in tensors], tensors[0].dtype
        return _received(route, traffic, tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        route: Route = ctx.route
        ends = route.ends
        wide = torch.promote_types(ctx.dtype, torch.float32)
        wanted = ctx.needs_input_grad[2:]
        numbers = [number for number, needed in enumerate(wanted) if needed]
        totals = {n: _total(route, n, gradients, ctx.shapes[n], wide) for n in numbers}
        sends = [[take(totals[n], at) for at in route.parcels[n].places] for n in numbers]
        sizes = [_sizes(ctx.shapes[n], route.parcels[n].sends) for n in numbers]
        came = moved(ends, sends, sizes, ctx.traffic)
        sums: list[Tensor | None] = [None] * len(wanted)
        for number, parts in zip(numbers, came, strict=True):
            sums[number] = _added(parts, route.parcels[number].sends, ends.rank, ctx.shapes[number]).to(ctx.dtype)
        return None, None, *sums


def _total(route: Route, number: int, gradients: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The gradient of all that was received of one tensor: the sum over its cuts."""
    parcel = route.parcels[number]
    cuts = [(at, gradient) for (n, at), gradient in zip(route.cuts, gradients, strict=True) if n == number]
    if len(cuts) == 1 and is_whole(cuts[0][0], parcel.heads, parcel.columns):
        return cuts[0][1].to(dtype)
    total = gradients[0].new_zeros((shape[0], parcel.heads, parcel.columns, shape[3]), dtype=dtype)
    for at, gradient in cuts:
        add(total, at, gradient.to(dtype))
    return total


def _added(parts: Sequence[Tensor], places: Sequence[Place], rank: int, shape: Sequence[int]) -> Tensor:
    """The sum of what all ranks send for places of one tensor of this shape; not written over its inputs."""
    # with a graph, empty parts too: its backward pass must be the exchange of all ranks
    has_graph = torch.is_grad_enabled()
    local, others = parts[rank], [r for r, part in enumerate(parts) if r != rank and (part.numel() or has_graph)]
    if is_whole(places[rank], shape[1], shape[2]):
        if not others:
            return local
        mine = local.clone(memory_format=torch.contiguous_format)
    else:
        mine = local.new_zeros(tuple(shape))
        add(mine, places[rank], local)
    for r in others:
        add(mine, places[r], parts[r])
    return mine


def moved(
    ends: Ends,
    sends: Sequence[Sequence[Tensor]],
    sizes: Sequence[Sequence[tuple[int, ...]]],
    traffic: Traffic | None,
) -> list[list[Tensor]]:
    """Of each tensor, what each rank sends here, in the sizes given; this rank's own part is handed on as it is.

    sends: of each tensor, what each rank is sent. All tensors go in one all-to-all.
    """
    if ends.is_quiet:
        # of others there is nothing, in every size
        return [
            [part if r == ends.rank else part.new_empty(size) for r, size in enumerate(of)]
            for (part, of) in ((parts[ends.rank], of) for parts, of in zip(sends, sizes, strict=True))
        ]
    others = [r for r in range(ends.ranks) if r != ends.rank]
    flat = [parts[r].reshape(-1) for r in others for parts in sends]
    ins = [sum(parts[r].numel() for parts in sends) if r != ends.rank else 0 for r in range(ends.ranks)]
    outs = [sum(_count(of[r]) for of in sizes) if r != ends.rank else 0 for r in range(ends.ranks)]
    got = arrived(started(torch.cat(flat) if len(flat) > 1 else flat[0], outs, ins, ends, traffic), ends)
    pieces = iter(got.split([_count(of[r]) for r in others for of in sizes]))
    came = [[parts[ends.rank]] * len(parts) for parts in sends]
    for r in others:
        for number, of in enumerate(sizes):
            came[number][r] = next(pieces).view(of[r])
    return came


def started(flat: Tensor, outs: list[int], ins: list[int], ends: Ends, traffic: Traffic | None) -> Tensor:
    """What ranks send here, `outs` numbers each, from flat (sum(ins),), of which each takes `ins`: under way."""
    if traffic is not None:
        traffic.bytes += sum(ins) * flat.element_size()
        traffic.messages += sum(n > 0 for n in ins)
    if torch.compiler.is_compiling():
        return _all_to_all(flat, outs, ins, ends)
    try:
        return _all_to_all(flat, outs, ins, ends)
    except RuntimeError as error:
        raise lost(error, ends.group, ends.call) from error


def arrived(coming: Tensor, ends: Ends) -> Tensor:
    """What `started` has promised, once it is there."""
    if torch.compiler.is_compiling():
        return _waited(coming)
    try:
        return _waited(coming)
    except RuntimeError as error:
        raise lost(error, ends.group, ends.call) from error


def _all_to_all(flat: Tensor, outs: list[int], ins: list[int], ends: Ends) -> Tensor:
    # the operation itself: its wrapper imports torch.compile's modules, which takes seconds
    if ends.group is None:
        raise ArgumentError("an exchange needs a process group: give spread() one")
    name = ends.group.group_name
    under_way: Tensor = torch.ops._c10d_functional.all_to_all_single(flat.contiguous(), outs, ins, name)
    return under_way


def _waited(coming: Tensor) -> Tensor:
    there: Tensor = torch.ops._c10d_functional.wait_tensor(coming)
    return there


def counting() -> Traffic | None:
    """The counter of `counted` that is at work; None: nothing is counted."""
    return None if torch.compiler.is_compiling() else _counter.get()


def _with_parcels(tensors: Sequence[Tensor], route: Route) -> Iterator[tuple[Tensor, Parcel]]:
    return zip(tensors, route.parcels, strict=True)


def _sizes(shape: Sequence[int], places: Sequence[Place]) -> list[tuple[int, ...]]:
    """The sizes of what stands at each place, in a tensor of B batch elements and D features."""
    return [(shape[0], size_of(heads), size_of(columns), shape[3]) for heads, columns in places]


def _count(size: tuple[int, ...]) -> int:
    total = 1
    for n in size:
        total *= n
    return total
