"""Gathered: attention to a rank's own keys where they stand, and to those of other ranks where they have arrived."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from headwise.distributed.exchange import Route, Traffic, arrived, counting, started
from headwise.distributed.index import Index, runs_of, size_of, take
from headwise.distributed.layouts import Layout
from headwise.distributed.whole_call import WholeCall
from headwise.masks.tensor_versions import check_unchanged, versions
from headwise.ops import blockwise
from headwise.ops.call import Call
from headwise.ops.segmented import SegmentedCall, all_finite
from headwise.ops.segments import Segments
from headwise.ops.workspace import Gradients, fits_torch

if TYPE_CHECKING:
    from headwise.distributed.gather import RowPart

# columns in more pieces than these are joined in one tensor
MOST_PIECES = 64
# and fewer keys of the whole sequence than these numbers, which cost less to join than a call of the kernel does
FEWEST_NUMBERS = 1 << 16
KV = ("k", "v")


class Piece(NamedTuple):
    """Neighbouring columns of those that a rank gathers: which of a rank's they are, of those that it sends here."""

    rank: int
    columns: slice


@dataclass(frozen=True, eq=False)
class Job:
    """What is gathered, by a route of keys and values, in which pieces, and the parts that attend to them.

    length: how many keys this rank holds. joined: the same attention to columns that are joined in one tensor, whose
    derivatives have derivatives.
    """

    route: Route
    pieces: tuple[Piece, ...]
    parts: tuple[RowPart, ...]
    length: int
    joined: Callable[[Call], Tensor]

    @property
    def others(self) -> list[int]:
        """The other ranks."""
        return [r for r in range(self.route.ends.ranks) if r != self.route.ends.rank]

    def views(self, flat: Tensor, like: Tensor, sides: Sequence[Sequence[int]]) -> list[dict[int, Tensor]]:
        """Of keys, then of values, (B, Hk, n, D) of each other rank, as views of one tensor. sides: n by rank."""
        sizes = [(like.shape[0], like.shape[1], side[r], like.shape[3]) for r in self.others for side in sides]
        pieces = iter(flat.split([torch.Size(size).numel() for size in sizes]))
        by_side: list[dict[int, Tensor]] = [{} for _ in sides]
        for r in self.others:
            for of in by_side:
                of[r] = next(pieces).view(like.shape[0], like.shape[1], -1, like.shape[3])
        return by_side

    def segments(self, local: Tensor, others: dict[int, Tensor]) -> Segments:
        """The gathered columns: this rank's own, as they stand in `local`, between those of others."""
        rank, needed = self.route.ends.rank, runs_of(self.route.parcels[0].sends[self.route.ends.rank][1])
        mine = Segments((local,)).picked(needed)
        sources = {**{r: Segments((t,)) for r, t in others.items()}, rank: mine}
        return Segments(tuple(part for r, columns in self.pieces for part in sources[r].at(columns)))


def pieces_of(columns: Sequence[Tensor], layout: Layout) -> tuple[tuple[Piece, ...], ...] | None:
    """The pieces of each rank's columns (n,) of the whole sequence; None where a rank has too many of them."""
    by_part = []
    for of_rank in columns:
        owner = layout.owner[of_rank]
        bounds = [0, *(owner.diff() != 0).nonzero()[:, 0].add(1).tolist(), len(of_rank)]
        if len(bounds) > MOST_PIECES:
            return None
        start, pieces = [0] * layout.ranks, []
        for first, past in pairwise(bounds) if len(of_rank) else ():
            rank = int(owner[first])
            pieces.append(Piece(rank, slice(start[rank], start[rank] + past - first)))
            start[rank] += past - first
        by_part.append(tuple(pieces))
    return tuple(by_part)


def why_not(call: WholeCall, length: int) -> str:
    """Why a call takes its columns in one tensor; "" where it does not: the same on all ranks.

    length: that of all keys.
    """
    if call.by_distance is not None:
        return "torch's kernel takes no bias"
    if torch.compiler.is_compiling():
        return "a program is traced of plain operations"
    is_plain = call.q.is_cpu and call.q.dtype in (torch.float32, torch.float64) and fits_torch(call, is_dropped=False)
    if not is_plain or call.dropout or 0 in (*call.q.shape[:2], *call.k.shape[:2]):
        return "torch's kernel does not compute it exactly"
    if call.k.shape[0] * call.k.shape[1] * length * call.k.shape[3] < FEWEST_NUMBERS:
        return "to join so few costs less"
    return ""


def run(call: Call, job: Job) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, D), as often differentiable as wanted."""
    tensors = (call.q, call.k, call.v)
    rules = {"scale": call.scale, "mask": call.mask}
    out: Tensor = Gathered.apply(job, rules, counting(), *tensors)  # type: ignore[no-untyped-call]
    return out


class Gathered(torch.autograd.Function):
    """One exchange and the parts; backward the parts' gradients, and those of other ranks' columns sent home."""

    @staticmethod
    def forward(
        ctx: Any, job: Job, rules: dict[str, Any], traffic: Traffic | None, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        ctx.job, ctx.rules, ctx.traffic, ctx.versions = job, rules, traffic, versions(rules["mask"])
        came = _received(job, k, v, traffic)
        out, lse = torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(q.shape[:3])
        ctx.is_finite = all_finite(q, k, v, came)
        for part, at in _parts(job, q, k, v, came, rules["scale"]):
            rows = part.rows
            if ctx.is_finite:
                at.forward(out[:, :, rows], lse[:, :, rows])
            else:
                out[:, :, rows], outputs = blockwise.forward(_joined(at), None, with_lse=True)
                lse[:, :, rows] = -math.inf if outputs is None else outputs[1]
        for rows in _idle_rows(job):
            out[:, :, rows], lse[:, :, rows] = 0.0, -math.inf
        ctx.save_for_backward(q, k, v, out, lse, came)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        job, needed = ctx.job, dict(zip("qkv", ctx.needs_input_grad[3:], strict=True))
        check_unchanged(ctx.versions)
        q, k, v, out, lse, came = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            if torch.is_grad_enabled():
                # views: a gradient ends where it is asked for
                views = dict(zip("qkv", (t.view_as(t) for t in (q, k, v)), strict=True))
                wanted = [t for name, t in views.items() if needed[name]]
                again = job.joined(Call(**views, **ctx.rules))
                of_inputs = iter(torch.autograd.grad(again, wanted, gradients[0], create_graph=True))
                return None, None, None, *(next(of_inputs) if needed[name] else None for name in "qkv")
            parts = list(_parts(job, q, k, v, came, ctx.rules["scale"]))
            into = _Sums.of(job, q, k, needed, is_fresh=ctx.is_finite and _is_written(job, parts, lse))
            for part, at in parts:
                rows = part.rows
                outputs, sums = (out[:, :, rows], lse[:, :, rows]), into.at(part)
                if ctx.is_finite:
                    at.backward(gradients[0][:, :, rows], outputs, sums)
                else:
                    _add_joined(at, gradients[0][:, :, rows], outputs, sums)
            into.send_home(job, k, ctx.traffic)
        return None, None, None, into.q, into.local.get("k"), into.local.get("v")


@dataclass(eq=False)
class _Sums:
    """Where gradients are summed up: of q and of a rank's own k and v, and flat of what came of other ranks."""

    q: Tensor | None
    local: dict[str, Tensor]
    flat: Tensor
    gathered: dict[str, Segments]
    is_fresh: bool

    @staticmethod
    def of(job: Job, q: Tensor, k: Tensor, needed: dict[str, bool], *, is_fresh: bool) -> _Sums:
        make = torch.empty if is_fresh else torch.zeros
        names = [name for name in KV if needed[name]]
        local = {name: make(k.shape, dtype=k.dtype) for name in names}
        counts = _counts(job, is_sent=False)
        numbers = sum(counts) * k.shape[0] * k.shape[1] * k.shape[3]
        flat = make(numbers * len(names), dtype=k.dtype)
        views = job.views(flat, k, [counts] * len(names))
        gathered = {name: job.segments(local[name], of) for name, of in zip(names, views, strict=True)}
        of_q = torch.empty(q.shape, dtype=q.dtype) if needed["q"] else None
        if of_q is not None:
            for rows in _idle_rows(job):
                of_q[:, :, rows] = 0.0
        return _Sums(of_q, local, flat, gathered, is_fresh)

    def at(self, part: RowPart) -> Gradients:
        """Those of a part; the first one is written where all are fresh."""
        is_fresh, self.is_fresh = self.is_fresh, False
        runs = runs_of(part.columns)
        columns = {name: of.picked(runs, is_fresh=is_fresh) for name, of in self.gathered.items()}
        return Gradients(None if self.q is None else self.q[:, :, part.rows], columns.get("k"), columns.get("v"))

    def send_home(self, job: Job, k: Tensor, traffic: Traffic | None) -> None:
        """Send each other rank the gradients of its columns, and add what comes of others to this rank's own."""
        if not self.local or job.route.ends.is_quiet:
            return
        numbers = k.shape[0] * k.shape[1] * k.shape[3] * len(self.local)
        outs, ins = ([n * numbers for n in _counts(job, is_sent=is_sent)] for is_sent in (True, False))
        came = arrived(started(self.flat, outs, ins, job.route.ends, traffic), job.route.ends)
        views = job.views(came, k, [_counts(job, is_sent=True)] * len(self.local))
        for (_, total), of in zip(self.local.items(), views, strict=True):
            for r, piece in of.items():
                start = 0
                for run in runs_of(job.route.parcels[0].sends[r][1]):
                    width = run.stop - run.start
                    total[:, :, run] += piece[:, :, start : start + width]
                    start += width


def _counts(job: Job, *, is_sent: bool) -> list[int]:
    """How many columns go to each rank, or come from it; 0 of this one."""
    ends, parcel = job.route.ends, job.route.parcels[0]
    sides = parcel.sends if is_sent else parcel.places
    return [0 if r == ends.rank else size_of(columns) for r, (_, columns) in enumerate(sides)]


def _received(job: Job, k: Tensor, v: Tensor, traffic: Traffic | None) -> Tensor:
    """The keys and values of other ranks, flat."""
    ends = job.route.ends
    if ends.is_quiet:
        return k.new_empty(0)
    numbers = 2 * k.shape[0] * k.shape[1] * k.shape[3]
    outs, ins = ([n * numbers for n in _counts(job, is_sent=is_sent)] for is_sent in (False, True))
    flat = k.new_empty(sum(ins))
    views = job.views(flat, k, [_counts(job, is_sent=True)] * 2)
    for t, of in zip((k, v), views, strict=True):
        for r, piece in of.items():
            columns: Index = job.route.parcels[0].sends[r][1]
            piece.copy_(take(t, (slice(0, k.shape[1]), columns)))
    return arrived(started(flat, outs, ins, ends, traffic), ends)


def _parts(
    job: Job, q: Tensor, k: Tensor, v: Tensor, came: Tensor, scale: float | None
) -> Iterator[tuple[RowPart, SegmentedCall]]:
    """The calls of rows that attend to something, that of the most columns first."""
    views = job.views(came, k, [_counts(job, is_sent=False)] * 2)
    of_k, of_v = (job.segments(t, of) for t, of in zip((k, v), views, strict=True))
    for part in sorted(job.parts, key=lambda part: -size_of(part.columns)):
        runs = runs_of(part.columns)
        if size_of(part.rows) and runs:
            yield part, SegmentedCall(q[:, :, part.rows], of_k.picked(runs), of_v.picked(runs), part.mask, scale)


def _is_written(job: Job, parts: list[tuple[RowPart, SegmentedCall]], lse: Tensor) -> bool:
    """Whether the first part adds to each of this rank's columns, and of those that came, once."""
    if not parts:
        return False
    part, at = parts[0]
    every = sum(map(size_of, (columns for _, columns in job.route.parcels[0].places)))
    sent = size_of(job.route.parcels[0].sends[job.route.ends.rank][1])
    is_all = size_of(part.columns) == every and sent == job.length
    return is_all and at.splits_columns(lse[:, :, part.rows])


def _idle_rows(job: Job) -> list[slice]:
    """The rows that attend to nothing."""
    return [part.rows for part in job.parts if not size_of(part.columns)]


def _joined(at: SegmentedCall) -> Call:
    return Call(at.q, torch.cat(at.k.parts, 2), torch.cat(at.v.parts, 2), at.mask, scale=at.scale)


def _add_joined(at: SegmentedCall, gradient: Tensor, outputs: tuple[Tensor, Tensor], into: Gradients) -> None:
    """What `SegmentedCall.backward` writes and adds, also where numbers are not finite."""
    wanted = [name for name in ("q", *KV) if getattr(into, name) is not None]
    gradients = blockwise.backward(_joined(at), None, gradient, wanted, outputs=outputs)
    if into.q is not None:
        into.q.copy_(gradients["q"])
    for name, total in (("k", into.k), ("v", into.v)):
        if isinstance(total, Segments):
            lengths = [part.shape[2] for part in total.parts]
            for part, more in zip(total.parts, gradients[name].split(lengths, 2), strict=True):
                part.add_(more)
