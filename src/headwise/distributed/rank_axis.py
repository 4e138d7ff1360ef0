"""RankAxis: an axis of a map whose entries ranks share, and how their parts of a result become the whole on all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers the operations
from torch import Tensor

from headwise.distributed.exchange import counting
from headwise.distributed.layouts import RankShare
from headwise.distributed.rank_failure import lost
from headwise.errors import ArgumentError, DistributedError


@dataclass(frozen=True, eq=False)
class RankAxis(RankShare):
    """The entries of an axis that this rank computes, by a layout, and those of the other ranks of a group.

    call: what it is for, which an error names.
    """

    call: str

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @torch.no_grad()
    def agree(self, reading: str) -> None:
        if self.ranks == 1:
            return
        digest = hashlib.blake2b(reading.encode(), digest_size=8).digest()
        mine = torch.tensor([int.from_bytes(digest, "little", signed=True)], device=self._device())
        came = self._gathered(mine).tolist()
        others = [rank for rank, each in enumerate(came) if each != came[0]]
        if others:
            raise DistributedError(
                f"every rank must make the same readings of a map in the same order, but rank {others[0]} made another "
                f"than rank 0, and this rank {self.rank} asked for {reading}: read a rank's own rows by .local"
            )

    def holds(self, index: Tensor) -> Tensor:
        return self.layout.owner[index.cpu()] == self.rank

    def slots(self, index: Tensor) -> Tensor:
        return self.layout.slot[index.cpu()]

    @torch.no_grad()
    def joined(self, t: Tensor, dim: int, index: Tensor | None = None) -> Tensor:
        if self.ranks == 1:
            return t
        owner = self.layout.owner if index is None else self.layout.owner[index.cpu()]
        counts = owner.bincount(minlength=self.ranks).tolist()
        local, rest = t.movedim(dim, 0), t.shape[:dim] + t.shape[dim + 1 :]
        if local.shape[0] != counts[self.rank]:
            raise ArgumentError(
                f"rank {self.rank} must give its {counts[self.rank]} of {len(owner)} entries along dim={dim}, but came "
                f"with {tuple(t.shape)}"
            )
        if len(owner) == 0 or math.prod(rest) == 0:
            return local.new_empty((len(owner), *rest)).movedim(0, dim)
        if max(counts) == len(owner):
            return self._sent_by(int(owner[0]), local, (len(owner), *rest)).movedim(0, dim)
        # all ranks must send as much: those that have less fill up
        most = max(counts)
        padded = torch.cat([local, local.new_zeros(most - local.shape[0], *rest)]).contiguous()
        whole = self._gathered(padded)
        slot = torch.empty_like(owner)
        for rank, count in enumerate(counts):
            slot[owner == rank] = torch.arange(count)
        return whole.index_select(0, (owner * most + slot).to(t.device)).movedim(0, dim)

    @torch.no_grad()
    def total(self, t: Tensor, how: str) -> Tensor:
        if self.ranks == 1 or t.numel() == 0:
            return t
        numbers = _as_numbers(t).flatten()
        # each rank reduces one piece, in the order of ranks, so that all have the same bits
        size = -(-len(numbers) // self.ranks)
        padded = torch.cat([numbers, numbers.new_zeros(size * self.ranks - len(numbers))])
        came = self._dealt(padded).view(self.ranks, size)
        mine = came.sum(0, dtype=came.dtype) if how == "sum" else came.amax(0)
        return self._gathered(mine)[: len(numbers)].view(t.shape).to(t.dtype)

    def _gathered(self, t: Tensor) -> Tensor:
        """The tensors of all ranks, one below the other."""
        self._count(t.numel() * t.element_size() * (self.ranks - 1), self.ranks - 1)
        numbers = _as_numbers(t)
        gathered = self._run(lambda name: torch.ops._c10d_functional.all_gather_into_tensor(numbers, self.ranks, name))
        return gathered.to(t.dtype)

    def _dealt(self, t: Tensor) -> Tensor:
        """Of t (n,), the piece for this rank from each rank."""
        sizes = [t.numel() // self.ranks] * self.ranks
        self._count(sizes[0] * (self.ranks - 1) * t.element_size(), self.ranks - 1)
        return self._run(lambda name: torch.ops._c10d_functional.all_to_all_single(t, sizes, sizes, name))

    def _sent_by(self, owner: int, t: Tensor, size: tuple[int, ...]) -> Tensor:
        """The tensor of one rank, on all."""
        # written to in place where it is received, and handed on as it is where it is sent
        sent = _as_numbers(t).contiguous() if owner == self.rank else _as_numbers(t.new_empty(size))
        if owner == self.rank:
            self._count(sent.numel() * sent.element_size() * (self.ranks - 1), self.ranks - 1)
        try:
            dist.broadcast(sent, group=self.group, group_src=owner)
        except RuntimeError as error:
            raise lost(error, self.group, self.call) from error
        return sent.to(t.dtype)

    def _run(self, collective: Callable[[str], Tensor]) -> Tensor:
        if self.group is None:
            raise ArgumentError(f"{self.call} over {self.ranks} ranks needs their process group: give spread() one")
        try:
            result: Tensor = torch.ops._c10d_functional.wait_tensor(collective(self.group.group_name))
        except RuntimeError as error:
            raise lost(error, self.group, self.call) from error
        return result

    def _device(self) -> torch.device:
        is_nccl = self.group is not None and dist.get_backend(self.group) == "nccl"
        return torch.device("cuda" if is_nccl else "cpu")

    def _count(self, size: int, messages: int) -> None:
        if (traffic := counting()) is not None:
            traffic.bytes += size
            traffic.messages += messages


def _as_numbers(t: Tensor) -> Tensor:
    """What collectives know how to send."""
    return t.to(torch.uint8) if t.dtype is torch.bool else t
