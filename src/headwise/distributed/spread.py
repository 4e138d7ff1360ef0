"""Spread: a sequence whose tokens are held by several ranks, and what this rank does with its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from headwise.distributed.costs import (
    MACHINES,
    Estimate,
    LayerSize,
    Machine,
    cheapest,
    compare,
    estimate,
    pieces_of,
    work_of,
)
from headwise.distributed.layouts import Layout, RankShare, balanced, contiguous, striped, zigzag
from headwise.distributed.needed_keys import NeededKeys, needs
from headwise.distributed.sequences import Sequences, SpreadPair
from headwise.distributed.whole_sequence import joined
from headwise.errors import ArgumentError, ShapeError
from headwise.masks import Mask, as_mask
from headwise.shapes import check_count
from headwise.wording.counts import counted

# by name, for a number of tokens and of ranks; "balanced" needs the work of each token too
LAYOUTS = {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}
# the machine that is assumed of a backend of torch.distributed
MACHINE_OF = {"nccl": "nvlink"}
MOST_SHOWN = 16


@dataclass(frozen=True, eq=False, repr=False)
class Spread(RankShare, Sequences):
    """A sequence of `length` tokens over ranks; made by `spread`.

    layout: which tokens each rank holds. group: the ranks, None: this process alone. mask: of the whole sequence, for
    which the layout was chosen; None: all tokens attend to all. estimates: what the layouts that were compared cost.
    """

    mask: Mask | None
    estimates: tuple[Estimate, ...]
    layer: LayerSize
    _entered: list[Token[Any]] = field(default_factory=list)

    @property
    def crossed(self) -> SpreadPair:
        """Refused: a spread says nothing of keys that are not of its own tokens."""
        raise ArgumentError(
            f"a layer was given key= over a spread of {self.length} tokens, which does not say whose keys those are: "
            "leave key= out for self-attention, or say spread.with_keys(source) for the rank's tokens of another "
            "spread and spread.with_keys(None) for keys that every rank holds whole"
        )

    @property
    def queries(self) -> Spread:
        return self

    @property
    def source(self) -> Spread:
        return self

    def with_keys(self, source: Spread | None) -> SpreadPair:
        """This sequence, for cross-attention to the keys of another; in place of a spread, wherever one is taken.

        source: over the same ranks, each of which gives the keys of its own tokens; None: every rank gives all keys,
        the same ones, which is not checked. A layer takes its key for these, whatever tensor it is: self-attention is
        called without one. Masks and biases are of all queries and all keys.

        >>> import headwise as hw
        >>> attn, x, source = hw.MultiHeadAttention(8, 2), torch.randn(1, 5, 8), torch.randn(1, 7, 8)
        >>> target, other = spread(5), spread(7)
        >>> attn(target.local(x), other.local(source), spread=target.with_keys(other)).shape
        torch.Size([1, 5, 8])
        """
        if source is not None and (not isinstance(source, Spread) or source.group is not self.group):
            raise ArgumentError(
                f"with_keys() takes a spread over the same ranks, or None, but {source!r} came beside {self!r}: make "
                "both on one mesh"
            )
        return SpreadPair(self, source)

    def local(self, t: Tensor, dim: int = 1) -> Tensor:
        """This rank's part of t, which holds the whole sequence along `dim`."""
        if t.shape[dim] != self.length:
            raise ShapeError(
                f"t must hold the whole sequence, length={self.length}, along dim={dim}, but came as {tuple(t.shape)}: "
                "local() takes the part of this rank out of it"
            )
        return t.index_select(dim, self.tokens.to(t.device))

    def whole(self, t: Tensor, dim: int = 1, *, loss: str = "same") -> Tensor:
        """The whole sequence along `dim`, on every rank, from the part t of each.

        Every rank must call it. loss: what follows. "same": every rank computes the same loss from the whole, whose
        gradient at its tokens is then that of a part. "parts": each rank computes a part of one loss, as where its
        own queries attend to the whole as keys, and the gradients of all ranks are summed: the loss of each rank must
        come of the whole, if only as `0 * whole.sum()`, since the backward pass waits for all.
        """
        if loss not in ("same", "parts"):
            raise ArgumentError(f'loss must be "same" or "parts", but {loss!r} came: say what ranks compute of it')
        if t.shape[dim] != len(self.tokens):
            raise ShapeError(
                f"t must hold this rank's {len(self.tokens)} tokens along dim={dim}, but came as {tuple(t.shape)}: "
                "whole() joins the parts of all ranks"
            )
        return joined(t, self.layout, self.rank, self.group, dim % t.ndim, is_summed=loss == "parts")

    def needs(self, mask: Mask | None = None, *, batch: int | None = None, heads: int | None = None) -> NeededKeys:
        """Which tokens each rank needs of each other under a mask of the whole sequence; None: under no mask."""
        return needs(mask, self.layout, batch=batch, heads=heads)

    @property
    def estimate(self) -> Estimate:
        """That of the layout that was taken."""
        return next(each for each in self.estimates if each.layout is self.layout)

    def __str__(self) -> str:
        taken = self.estimate
        received = self.needs(self.mask).received.sum(1).tolist()
        head = f"{self.length} tokens over {counted(self.ranks, 'rank')}, {self.layout.name}"
        lines = [f"{head}: slowest / mean work {taken.imbalance:.2f}, most received {max(received)} tokens"]
        mean = max(float(taken.pairs.mean()), 1.0)
        rows = [("rank", "tokens", "work", "receives", "bytes", "holds")]
        for rank in range(min(self.ranks, MOST_SHOWN)):
            work, size = float(taken.pairs[rank]) / mean, received[rank] * self.layer.token_bytes
            name = f"{rank} (this)" if rank == self.rank else str(rank)
            tokens = self.layout.tokens[rank]
            rows.append(
                (name, str(len(tokens)), f"{work:.2f}", str(received[rank]), size_of(size), self.layout.listed(rank))
            )
        lines += aligned(rows)
        if self.ranks > MOST_SHOWN:
            lines.append(f"... and {counted(self.ranks - MOST_SHOWN, 'rank')} more")
        lines += ["", *aligned(_compared(self.estimates, taken))]
        size = f"{self.layer.key} heads of {self.layer.width}, {self.layer.itemsize} bytes a number"
        lines.append(f"bytes of K and V that one layer's forward pass receives: {size}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<Spread of {self.length} tokens over {counted(self.ranks, 'rank')}, {self.layout.name}; rank {self.rank}>"
        )


def spread(
    length: int,
    group: DeviceMesh | dist.ProcessGroup | None = None,
    *,
    mask: Mask | Tensor | None = None,
    layout: str | Layout = "auto",
    machine: Machine | None = None,
    layer: LayerSize | None = None,
) -> Spread:
    """A sequence of `length` tokens spread over the ranks of a group, each of which calls this with the same arguments.

    group: a DeviceMesh of one dimension, such as mesh["cp"], or a process group; None: the default group, or this
    process alone where torch.distributed was not started. mask: of the whole sequence, for which the layout is chosen;
    None: no mask. layout: "contiguous", "zigzag", "striped", "balanced", one of your own, or "auto": the cheapest by
    the modelled time of a layer's forward and backward pass. machine: what a rank can do, None: assumed from the
    backend; layer: the size of a layer, None: 32 query and 8 key/value heads of 128 in bfloat16. Both decide only what
    "auto" takes.

    >>> import headwise as hw
    >>> whole = spread(1024, mask=hw.causal())
    >>> whole.ranks, whole.local(torch.zeros(1, 1024, 8)).shape
    (1, torch.Size([1, 1024, 8]))
    """
    check_count("length", length, 0, error=ArgumentError)
    members, device = group_of(group)
    rank, ranks = (0, 1) if members is None else (dist.get_rank(members), dist.get_world_size(members))
    if machine is None:
        backend = "gloo" if members is None else dist.get_backend(members)
        machine = MACHINES[MACHINE_OF.get(backend, "cpu")]
    size, checked_mask = LayerSize() if layer is None else layer, as_mask(mask)
    estimates = _estimates(checked_mask, length, ranks, layout, machine, size, device)
    return Spread(cheapest(estimates).layout, rank, members, checked_mask, tuple(estimates), size)


def _estimates(
    mask: Mask | None,
    length: int,
    ranks: int,
    layout: str | Layout,
    machine: Machine,
    layer: LayerSize,
    device: torch.device,
) -> list[Estimate]:
    """Of the layout that was asked for, or of all that "auto" compares."""
    if layout == "auto":
        return compare(mask, length, ranks, machine=machine, layer=layer, device=device)
    work, tiles_open = work_of(mask, length, device)
    if isinstance(layout, Layout):
        if (layout.length, layout.ranks) != (length, ranks):
            raise ArgumentError(
                f"the layout must hold length={length} tokens on {ranks} ranks, but {layout!r} holds {layout.length} "
                f"on {layout.ranks}: make one for these"
            )
        taken = [layout]
    elif layout == "balanced":
        taken = [balanced(work, ranks, pieces=pieces) for pieces in pieces_of(length, ranks)]
        return [cheapest([estimate(candidate, work, tiles_open, machine=machine, layer=layer) for candidate in taken])]
    elif layout in LAYOUTS:
        taken = [LAYOUTS[layout](length, ranks)]
    else:
        listed = ", ".join(f'"{name}"' for name in LAYOUTS)
        raise ArgumentError(f'layout must be "auto", "balanced", {listed} or a Layout; got {layout!r}')
    return [estimate(candidate, work, tiles_open, machine=machine, layer=layer) for candidate in taken]


def group_of(group: DeviceMesh | dist.ProcessGroup | None) -> tuple[dist.ProcessGroup | None, torch.device]:
    """The process group, and the device on which its tensors are."""
    if group is None:
        group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ArgumentError(
                f"a sequence is spread along one dimension of a mesh, but {group.mesh_dim_names or group.shape} has "
                f'{group.ndim}: give one, as mesh["cp"]'
            )
        return group.get_group(), torch.device(group.device_type)
    if group is None:
        return None, torch.device("cpu")
    return group, torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")


def _compared(estimates: tuple[Estimate, ...], taken: Estimate) -> list[tuple[str, ...]]:
    """Rows of a table: what each layout costs."""
    rows: list[tuple[str, ...]] = [("layout", "runs a rank", "slowest / mean", "most received", "modelled", "")]
    for e in estimates:
        runs = max(e.layout.listed(rank, e.layout.length).count(" ") + 1 for rank in range(e.layout.ranks))
        rows.append(
            (e.layout.name, str(runs), f"{e.imbalance:.2f}", str(int(e.received.max())),
             f"{e.seconds:.3g} s", "taken" if e is taken else ""),
        )  # fmt: skip
    return rows


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of a table, each column as wide as its widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def size_of(count: float) -> str:
    """Bytes with a unit and three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000
    return ""
