"""DistanceBias: scores to add by the distance of key and query alone, of which some rows and columns are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.positions.distances import distances

# of so many queries at a time the distances are listed
ROWS = 128


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances of a map, by the positions of its queries, (Lq,) or (B, Lq), and keys.

    They are numbered from `first` on, all of them, or by `listed`, ascending, which are those that occur.
    """

    first: int
    query_positions: Tensor
    key_positions: Tensor
    listed: Tensor | None = None

    def steps(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which of the distances each pair of some rows (R,) and columns (C,) has: int64 (B|1, R, C)."""
        i, j = self.query_positions, self.key_positions
        i, j = i[..., rows.to(i.device)], j[..., columns.to(j.device)]
        of_pairs = distances(i, j)[:, 0]
        return of_pairs - self.first if self.listed is None else torch.searchsorted(self.listed, of_pairs)

    def block(self, numbers: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The bias (B|1, H, R, C) of some rows and columns, from a number for each head and distance (H, N)."""
        steps = self.steps(rows, columns)
        of_heads: Tensor = numbers.index_select(1, steps.flatten()).unflatten(1, steps.shape)
        return of_heads.transpose(0, 1)

    def add_gradient(self, into: Tensor, rows: Tensor, columns: Tensor, gradient: Tensor) -> None:
        """Add the gradient of `block`, (B|1, H, R, C) or more samples, to that of its numbers (H, N)."""
        steps = self.steps(rows, columns)
        of_pairs = gradient.sum_to_size(steps.shape[0], *gradient.shape[1:]).transpose(0, 1).flatten(1)
        into.index_add_(1, steps.flatten(), of_pairs.to(into.dtype))


class DistanceBias(NamedTuple):
    """A number for each head and distance (H, N), and the distances: all that a bias of the map (H, Lq, Lk) holds."""

    numbers: Tensor
    distances: Distances

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The bias (B|1, H, R, C) of some rows (R,) and columns (C,) of the map."""
        return self.distances.block(self.numbers, rows, columns)

    def copied(self, numbers: Tensor) -> DistanceBias:
        """The same with these numbers, and positions of its own, which nothing writes to."""
        with torch.inference_mode(False):
            i, j = self.distances.query_positions.clone(), self.distances.key_positions.clone()
        return DistanceBias(numbers, replace(self.distances, query_positions=i, key_positions=j))

    @property
    def whole(self) -> Tensor:
        """The bias of all rows and columns (B|1, H, Lq, Lk)."""
        i, j = self.distances.query_positions, self.distances.key_positions
        return self.block(*(torch.arange(positions.shape[-1], device=positions.device) for positions in (i, j)))


def distance_bias(
    bias: Callable[[Tensor, Tensor], Tensor],
    query_positions: Tensor,
    key_positions: Tensor,
    *,
    reach: tuple[int, int] | None = None,
) -> DistanceBias:
    """What `bias`, a module of positions whose numbers depend on distances alone, gives: a number for each of these.

    query_positions (Lq,) or (B, Lq), key_positions (Lk,) or (B, Lk). reach: the least and the largest distance, None:
    read from the positions. Memory: a number for each distance between these two, Lq + Lk - 1 of tokens one after
    another. Where that is more than the map has pairs, B * Lq * Lk (timestamps), the distances that occur are listed,
    at most one for each pair, as many as one process makes of a bias. A compiled program lists none.

    >>> from headwise.positions import Alibi
    >>> of_map = distance_bias(Alibi().build(2), torch.arange(4), torch.arange(4))
    >>> of_map.numbers.shape, torch.equal(of_map.whole, Alibi().build(2)(torch.arange(4), torch.arange(4)))
    (torch.Size([2, 7]), True)
    """
    is_read = reach is None
    if reach is None:
        (least_i, most_i), (least_j, most_j) = (_bounds(t) for t in (query_positions, key_positions))
        reach = least_j - most_i, most_j - least_i
    here, listed = query_positions.new_zeros(1), None
    if (
        is_read
        and not torch.compiler.is_compiling()
        and reach[1] - reach[0] >= max(1, _pairs(query_positions, key_positions))
    ):
        listed = _listed(query_positions, key_positions)
    steps = torch.arange(reach[0], reach[1] + 1, device=here.device) if listed is None else listed
    of_distances = bias(here, steps)
    return DistanceBias(of_distances[0, :, 0], Distances(reach[0], query_positions, key_positions, listed))


def _pairs(query_positions: Tensor, key_positions: Tensor) -> int:
    """How many pairs of a query and a key the map has, in all samples whose positions differ."""
    samples = max(t.shape[0] if t.ndim == 2 else 1 for t in (query_positions, key_positions))
    return samples * query_positions.shape[-1] * key_positions.shape[-1]


def _listed(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """The distances that occur, int64 ascending, found for some queries at a time."""
    listed = query_positions.new_zeros(0)
    for i in query_positions.split(ROWS, dim=-1):
        listed = torch.cat([listed, distances(i, key_positions).flatten()]).unique()
    return listed


def _bounds(positions: Tensor) -> tuple[int, int]:
    """The least and the largest of some positions; 0 where there are none."""
    if not positions.numel():
        return 0, 0
    least, most = positions.aminmax()
    return int(least), int(most)
