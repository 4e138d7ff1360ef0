"""Layouts: which tokens of a sequence each rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.masks.simplification import runs
from headwise.shapes import check_count


@dataclass(frozen=True, eq=False)
class Layout:
    """Which tokens each rank holds: tokens[r], int64 ascending (L_r,), each token of the sequence once; some hold none.

    >>> zigzag(8, 2)
    Layout(zigzag: 0-1 6-7 | 2-5)
    """

    name: str
    tokens: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        for rank, index in enumerate(self.tokens):
            is_index = index.dtype is torch.long and index.is_cpu and index.ndim == 1
            if not is_index or not bool((index.diff() > 0).all()):
                raise ArgumentError(
                    f"the tokens of a rank are int64 (L_r,) on the CPU, ascending, but those of rank {rank} came as "
                    f"{index.dtype} {tuple(index.shape)} on {index.device}, from {index.flatten()[:4].tolist()}: sort "
                    "them"
                )
        every = torch.cat(self.tokens).sort().values
        if not torch.equal(every, torch.arange(len(every))):
            raise ArgumentError(
                f"a layout holds each token of its sequence once, but {len(every)} tokens came that are not 0 to "
                f"{len(every) - 1}: give every token to one rank"
            )

    @property
    def ranks(self) -> int:
        """How many ranks share the sequence."""
        return len(self.tokens)

    @cached_property
    def length(self) -> int:
        """How many tokens the sequence has."""
        return sum(map(len, self.tokens))

    @cached_property
    def owner(self) -> Tensor:
        """The rank that holds each token, int64 (L,)."""
        counts = torch.tensor([len(index) for index in self.tokens])
        return self._by_token(torch.arange(self.ranks).repeat_interleave(counts))

    @cached_property
    def slot(self) -> Tensor:
        """Where in its rank each token stands, int64 (L,)."""
        return self._by_token(torch.cat([torch.arange(len(index)) for index in self.tokens]))

    @cached_property
    def order(self) -> Tensor:
        """Of the tokens of all ranks, one rank after the other, where each token of the sequence stands: (L,)."""
        return torch.cat(self.tokens).argsort()

    def listed(self, rank: int, most: int = 6) -> str:
        """The tokens of a rank as runs: "0-127 896-1023"; none: "none"."""
        stretches = runs(self.tokens[rank])
        shown = [str(r.start) if r.stop - r.start == 1 else f"{r.start}-{r.stop - 1}" for r in stretches[:most]]
        return " ".join([*shown, *(["..."] if len(stretches) > most else [])]) or "none"

    def _by_token(self, values: Tensor) -> Tensor:
        return torch.empty(self.length, dtype=torch.long).scatter_(0, torch.cat(self.tokens), values)

    def __repr__(self) -> str:
        listed = " | ".join(self.listed(rank) for rank in range(min(self.ranks, 8)))
        return f"Layout({self.name}: {listed}{' | ...' if self.ranks > 8 else ''})"


@dataclass(frozen=True, eq=False)
class RankShare:
    """What one rank holds of what a layout shares out over a group; group: None where one rank holds all."""

    layout: Layout
    rank: int
    group: dist.ProcessGroup | None

    @property
    def length(self) -> int:
        """How many entries there are in all, such as the tokens of the whole sequence."""
        return self.layout.length

    @property
    def ranks(self) -> int:
        """How many ranks share them."""
        return self.layout.ranks

    @property
    def own(self) -> Tensor:
        """Those of this rank, int64 ascending (L of this rank,)."""
        return self.layout.tokens[self.rank]


def contiguous(length: int, ranks: int) -> Layout:
    """One run of neighbours to each rank.

    >>> contiguous(10, 4)
    Layout(contiguous: 0-2 | 3-5 | 6-7 | 8-9)
    """
    _check(length, ranks)
    return Layout("contiguous", tuple(torch.arange(length).tensor_split(ranks)))


def zigzag(length: int, ranks: int) -> Layout:
    """One run from the front and one from the back to each rank, which shares a causal mask out evenly.

    zhuzilin/ring-flash-attention, zigzag; Megatron's context parallelism cuts so too.
    """
    _check(length, ranks)
    return _dealt("zigzag", length, [*range(ranks), *reversed(range(ranks))], ranks)


def striped(length: int, ranks: int) -> Layout:
    """Every ranks-th token to each rank. Brandon et al. 2023, arXiv:2311.09431.

    >>> striped(7, 3)
    Layout(striped: 0 3 6 | 1 4 | 2 5)
    """
    _check(length, ranks)
    return Layout("striped", tuple(torch.arange(length)[rank::ranks] for rank in range(ranks)))


def balanced(work: Tensor, ranks: int, *, pieces: int = 2) -> Layout:
    """Equal tokens and nearly equal work to each rank: of ranks * pieces equal runs, each rank holds some.

    work: (L,), that of each token. pieces: how many runs a rank holds: more are more even, fewer keep neighbours
    together. The better of two starts, balanced largest differencing (Yakir 1996, Mathematics of Operations Research
    21) and a random one, after runs have changed ranks while the slowest gains. Equal arguments give equal layouts.

    >>> import torch
    >>> balanced(torch.arange(8.0), 2)
    Layout(balanced: 2-5 | 0-1 6-7)
    """
    length = len(work)
    _check(length, ranks)
    check_count("pieces", pieces, 1, error=ArgumentError)
    bounds = torch.tensor([0, *(len(run) for run in torch.arange(length).tensor_split(ranks * pieces))]).cumsum(0)
    before = torch.cat([work.new_zeros(1), work.cumsum(0)]).double()
    of_piece = before[bounds].diff()
    by_chance = torch.randperm(len(of_piece), generator=torch.Generator().manual_seed(0)) % ranks
    candidates = [_improved(start, of_piece, ranks) for start in (_differenced(of_piece, ranks), by_chance)]
    owner, _ = min(candidates, key=lambda candidate: candidate[1])
    return _dealt("balanced", length, owner.tolist(), ranks)


def _differenced(work: Tensor, ranks: int) -> Tensor:
    """The rank of each piece: pieces of like work are dealt one to each rank, and the deals joined crosswise."""
    # shares of all ranks, (loads, pieces of each); those that differ most are joined first
    shares = [(work[at], at[:, None]) for at in work.argsort(descending=True, stable=True).split(ranks)]
    while len(shares) > 1:
        shares.sort(key=lambda share: float(share[0].max() - share[0].min()))
        (loads, pieces), (other_loads, other_pieces) = shares.pop(), shares.pop()
        most, least = loads.argsort(descending=True, stable=True), other_loads.argsort(stable=True)
        shares.append((loads[most] + other_loads[least], torch.cat([pieces[most], other_pieces[least]], dim=1)))
    owner = torch.empty(len(work), dtype=torch.long)
    for rank, pieces in enumerate(shares[0][1]):
        owner[pieces] = rank
    return owner


def _improved(owner: Tensor, work: Tensor, ranks: int) -> tuple[Tensor, float]:
    """The rank of each piece, after the slowest rank changed pieces while that helps, and the work of the slowest."""
    loads = torch.zeros(ranks, dtype=work.dtype).index_add_(0, owner, work)
    for _ in range(4 * ranks):
        slowest = int(loads.argmax())
        slow_pieces, others = (owner == slowest).nonzero()[:, 0], (owner != slowest).nonzero()[:, 0]
        if not len(others):
            break
        # what the slowest rank gives away, and so what the other one gains
        difference = work[slow_pieces][:, None] - work[others][None, :]
        after = torch.maximum(loads[slowest] - difference, loads[owner[others]][None, :] + difference)
        best = int(after.argmin())
        sent, received = slow_pieces[best // len(others)], others[best % len(others)]
        if after.flatten()[best] >= loads[slowest] * (1 - 1e-9):
            break
        receiver = int(owner[received])
        owner[sent], owner[received] = receiver, slowest
        loads[slowest] -= work[sent] - work[received]
        loads[receiver] += work[sent] - work[received]
    return owner, float(loads.max())


def _dealt(name: str, length: int, owner: list[int], ranks: int) -> Layout:
    """The layout in which equal runs of a sequence go to these ranks."""
    runs_of_rank: list[list[Tensor]] = [[torch.empty(0, dtype=torch.long)] for _ in range(ranks)]
    for rank, run in zip(owner, torch.arange(length).tensor_split(len(owner)), strict=True):
        runs_of_rank[rank].append(run)
    return Layout(name, tuple(map(torch.cat, runs_of_rank)))


def _check(length: int, ranks: int) -> None:
    check_count("length", length, 0, error=ArgumentError)
    check_count("ranks", ranks, 1, error=ArgumentError)
