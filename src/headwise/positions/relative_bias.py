"""T5's relative bias: a learned number for each head and each bucket of distances."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.errors import ArgumentError
from headwise.positions.constants import FixedNumbers
from headwise.positions.distances import distances
from headwise.shapes import check_count, check_flag


def relative_buckets(
    distance: Tensor, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Tensor:
    """The bucket of each distance (key position minus query position): near ones their own, far ones shared.

    distance: whole numbers, any shape -> int64, the same shape. Half of the buckets hold one distance each, the others
    grow logarithmically up to max_distance, beyond which all distances share the last. bidirectional: keys after the
    query have buckets of their own, half of all; else they share bucket 0. Numbers out of range raise ArgumentError.
    Raffel et al. 2020, arXiv:1910.10683, section 2.1, and Mesh TensorFlow's `_relative_position_bucket`.

    >>> relative_buckets(torch.tensor([-200, -9, -1, 0, 1, 9]), num_buckets=32, max_distance=128, bidirectional=True)
    tensor([15,  8,  1,  0, 17, 24])
    """
    _check_buckets(num_buckets, max_distance, bidirectional)
    one_side = num_buckets // 2 if bidirectional else num_buckets
    exact = one_side // 2
    steps = distance.abs() if bidirectional else (-distance).clamp(min=0)
    # the order of these float32 operations decides the bucket at the edges, so it is that of trained models
    growth = torch.log(steps.clamp(min=exact).float() / exact) / math.log(max_distance / exact) * (one_side - exact)
    bucket = torch.where(steps < exact, steps, (exact + growth.long()).clamp(max=one_side - 1))
    return bucket + (distance > 0) * one_side if bidirectional else bucket


@dataclass(frozen=True, kw_only=True)
class RelativeBias:
    """A learned bias for each bucket of distances between query and key, one for each head.

    num_buckets, max_distance, bidirectional: see `relative_buckets`. shared: a table that another layer has built, for
    this one to use as well, as T5's layers do; the other arguments are then the table's, and one that says otherwise
    raises ArgumentError. None: a table of its own.
    Raffel et al. 2020, arXiv:1910.10683, section 2.1.

    >>> first = RelativeBias(num_buckets=8, max_distance=20).build(6)
    >>> RelativeBias(shared=first).build(6) is first
    True
    """

    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True
    shared: RelativeBiasTable | None = None

    def __post_init__(self) -> None:
        check_flag("bidirectional", self.bidirectional)
        if self.shared is not None:
            if not isinstance(self.shared, RelativeBiasTable):
                raise ArgumentError(
                    f"shared must be a table that another layer has built, such as attn.position, or None, but "
                    f"{type(self.shared).__name__} came: leave it out for a table of its own"
                )
            self._adopt(self.shared)
        _check_buckets(self.num_buckets, self.max_distance, self.bidirectional)

    def _adopt(self, table: RelativeBiasTable) -> None:
        for field in fields(self)[:3]:
            mine, shared = getattr(self, field.name), getattr(table, field.name)
            if mine not in (field.default, shared):
                raise ArgumentError(
                    f"{field.name}={mine} must be the shared table's {field.name}={shared}: leave it out"
                )
            object.__setattr__(self, field.name, shared)

    def build(
        self, num_heads: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> RelativeBiasTable:
        """The module that gives the bias of num_heads heads, or the shared one, whose heads, device and dtype must fit.

        device, dtype: None: torch's default, or the shared table's.

        >>> RelativeBias().build(6)
        RelativeBiasTable(num_heads=6, num_buckets=32, max_distance=128, bidirectional=True)
        """
        if self.shared is None:
            return RelativeBiasTable(self, num_heads, device=device, dtype=dtype)
        weight = self.shared.weight
        asked = torch.empty(0, device=weight.device if device is None else device, dtype=dtype or weight.dtype)
        if (num_heads, asked.dtype, asked.device) != (self.shared.num_heads, weight.dtype, weight.device):
            raise ArgumentError(
                f"the shared table has {self.shared.num_heads} heads in {weight.dtype} on {weight.device}, but "
                f"{num_heads} heads in {asked.dtype} on {asked.device} are asked for: share it among equals"
            )
        return self.shared


class RelativeBiasTable(FixedNumbers):
    """Gives the learned bias of each head; `weight` is (num_buckets, num_heads).

    >>> table = RelativeBias(num_buckets=8, max_distance=20).build(6)
    >>> table(torch.arange(5), torch.arange(7)).shape, list(table.state_dict())
    (torch.Size([1, 6, 5, 7]), ['weight'])
    """

    def __init__(
        self,
        spec: RelativeBias,
        num_heads: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if num_heads < 1:
            raise ArgumentError(f"RelativeBias needs num_heads >= 1, got num_heads={num_heads}: give the query heads")
        self.num_buckets, self.max_distance, self.bidirectional = (
            spec.num_buckets,
            spec.max_distance,
            spec.bidirectional,
        )
        reach = torch.arange(-spec.max_distance, spec.max_distance + 1, device="cpu")
        buckets = relative_buckets(
            reach, num_buckets=spec.num_buckets, max_distance=spec.max_distance, bidirectional=spec.bidirectional
        )
        super().__init__(buckets, device)
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(spec.num_buckets, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight from a normal distribution of standard deviation 0.02.

        T5 takes the inverse root of the model's width, which a bias does not know; for the usual widths that is 0.02 to
        0.04: small next to the scores, so that a new layer starts by attending to content.
        """
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(Lq,) or (B, Lq), and (Lk,) or (B, Lk), whole numbers -> (B|1, H, Lq, Lk) in the weight's dtype."""
        far = self.max_distance
        steps = distances(query_positions, key_positions)[:, 0].clamp(-far, far) + far
        # distances beyond `far` share a bucket, so one short row holds every bias there is
        row = F.embedding(self.numbers(self.weight.device), self.weight)
        bias: Tensor = row.t().index_select(1, steps.flatten()).unflatten(1, steps.shape)
        return bias.transpose(0, 1)

    def extra_repr(self) -> str:
        return (
            f"num_heads={self.num_heads}, num_buckets={self.num_buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )


def _check_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    check_count("num_buckets", num_buckets, 0)
    check_count("max_distance", max_distance, 0)
    sides = 2 if bidirectional else 1
    if num_buckets < 2 * sides or num_buckets % sides:
        wanted = "even and at least 4" if bidirectional else "at least 2"
        raise ArgumentError(
            f"num_buckets must be {wanted} when bidirectional={bidirectional}, got num_buckets={num_buckets}: "
            f"each direction needs a bucket for near and one for far"
        )
    exact = num_buckets // sides // 2
    if max_distance <= exact:
        raise ArgumentError(
            f"max_distance={max_distance} must be over {exact}, for {exact} of num_buckets={num_buckets} hold one "
            f"distance each: give a larger one, or fewer buckets"
        )
