"""SharedMap: the map of a call whose rows or heads ranks share: read whole, and alike, on every rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps import shared_entries
from headwise.maps.all_heads import may_differ_by_head, of_all_heads
from headwise.maps.indices import Taken
from headwise.maps.logits import Logits
from headwise.maps.map import AttentionMap
from headwise.maps.map_mask import shown, tiles_of
from headwise.maps.result_cache import Answer, Question, ResultCache
from headwise.maps.score_tiles import wide_type
from headwise.maps.shared_entries import Read, SharedAxes
from headwise.maps.shared_logits import SharedLogits
from headwise.maps.shared_mean import SharedMean
from headwise.maps.spread_rows import call_of_rows, joined_call
from headwise.maps.statistics import Flow, Largest, MapPart, Picture, Statistic, rows_in_use
from headwise.maps.strips import exact
from headwise.maps.transforms import refuse_in_torch_func
from headwise.maps.versions import Versions, lasting
from headwise.maps.weights import Sums
from headwise.ops.active_spread import SpreadSequence
from headwise.ops.call import Call
from headwise.ops.shared_axis import SharedHeads
from headwise.positions.distance_bias import DistanceBias


class WholeStatistics(NamedTuple):
    """What one pass gives of every row, on all ranks: see `Summary`; lse (B, Hq, Lq)."""

    entropy: Tensor
    peak: Tensor
    mass: Tensor
    lse: Tensor
    received: Tensor


class SharedMap(AttentionMap):
    """The weights (B, Hq, Lq, Lk) of a call that ranks share, by its rows, by its heads or by both; `watch` makes it.

    It is read as any map is, and gives the same bits on every rank. Each reading is collective: all ranks make it, with
    the same arguments and in the same order; `shape`, `repr`, `tiles()` of a mask that heads share and what has been
    read before move nothing. The first reading gathers the keys that this rank's queries may attend to, which are kept
    while the map lives; after that only results move, O(Lq) of them for each head, or what was asked for. Queries
    and values stay where they are, but for `save`, and for `mean_heads` where heads are shared.

    `local` are the rows and heads of this rank, an ordinary map: it is read without the others, once its keys are here.
    A row `m[0, 1, 10]` comes from the rank that has it. No reading leads back to q and k. Ranks that read apart get
    DistributedError, one that does not come is named at the timeout.

    >>> import headwise as hw
    >>> attn, spread = hw.MultiHeadAttention(8, 2), hw.distributed.spread(5, mask=hw.causal())
    >>> with torch.no_grad(), hw.watch(attn) as seen:
    ...     _ = attn(torch.randn(1, 5, 8), mask=hw.causal(), spread=spread)
    >>> seen[""]
    SharedMap((1, 2, 5, 5), float32, cpu, mask=causal(), 5 of 5 rows here)
    >>> seen[""].entropy().shape, seen[""].local
    (torch.Size([1, 2, 5]), AttentionMap((1, 2, 5, 5), float32, cpu, mask=causal(), lse known))
    """

    def __init__(
        self,
        call: Call,
        lse: Tensor | None,
        *,
        spread: SpreadSequence | None,
        heads: SharedHeads | None,
        distance_bias: DistanceBias | None = None,
    ) -> None:
        """A call of this rank's queries and keys, its lse or None, and what is shared; None: not.

        Of a spread, q and k are this rank's; mask, attn_bias and distance_bias (added to it) are of the whole map.
        """
        self._part_call, self._passed_lse = lasting(call, lse)
        self._versions = Versions(self._part_call, self._passed_lse)
        self._sequence, self._heads, self._by_distance = spread, heads, distance_bias
        self._shared = SharedAxes(None if heads is None else heads.axis, None if spread is None else spread.rows)
        self._kept: dict[str, Any] = {}
        B, _, _, Lk = self.shape
        Hk = self._part_call.k.shape[1] if heads is None else heads.Hk
        # as much on every rank, since what is forgotten is asked of all again
        self._answers = ResultCache(B * Hk * Lk * self._part_call.k.shape[3] * self._part_call.k.element_size())

    @property
    def axes(self) -> SharedAxes:
        return self._shared

    @property
    def shape(self) -> torch.Size:
        B, h, Lq, Lk = self._part_call.sizes
        H = h if self._heads is None else self._heads.axis.length
        return torch.Size((B, H, Lq, Lk) if self._sequence is None else (B, H, *self._sequence.map_sizes(Lk)))

    @property
    def dtype(self) -> torch.dtype:
        return wide_type(self._part_call)

    @property
    def device(self) -> torch.device:
        return self._part_call.q.device

    @property
    def local(self) -> AttentionMap:
        self._ready()
        return self._part

    @property
    def logits(self) -> Logits:
        return SharedLogits(self)

    @property
    def lse(self) -> Tensor:
        return self._whole().lse.clone()

    def max_logit(self) -> Tensor:
        peak = self._whole().peak
        return peak.new_full(peak.shape[:2], float("-inf")) if 0 in self.shape else peak.amax(-1)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, keys = self.reduce((Largest, self._checked_k(k)))[0]
        return values, keys

    def pooled(self, h: int, w: int, *, how: str = "mean") -> Tensor:
        return self.reduce((Picture, *self._checked_picture(h, w, how)))[0][0]

    def reduce(self, *questions: Question) -> list[Answer]:
        self._ready()
        answers = {question: self._answers.get(question) for question in questions}
        with exact(self._part_call):
            missing = [question for question, answer in answers.items() if answer is None]
            if missing:
                self.axes.agree(f"statistics {[(kind.__name__, *asked) for kind, *asked in missing]}")
            statistics = [self._statistic(*question) for question in missing]
            if statistics:
                self._part._read(statistics)
            for question, statistic in zip(missing, statistics, strict=True):
                answer = answers[question] = self._joined(statistic)
                self._answers.put(question, answer)
        return [answer for answer in answers.values() if answer is not None]

    def weighted_rows(self, factors: Tensor) -> Tensor:
        self._ready()
        with exact(self._part_call):
            self.axes.agree("weighted_rows()")
            local = factors.detach().to(self.dtype)
            if self.axes.rows is not None:
                local = local.index_select(1, self.axes.rows.own.to(local.device))
            rows, within = rows_in_use(local)
            flow = Flow(self._part._call, local, within)
            if rows.stop > rows.start:
                self._part._read([flow], rows)
            return self._joined(flow)[0]

    def needs_gradient(self) -> bool:
        return False

    def mean_heads(self) -> SharedMean:
        self._ready()
        return SharedMean(self)

    def check(self) -> float:
        self._ready()
        self.axes.agree("check()")
        return self.axes.maximum(self._part.check(), self.device)

    def detach(self) -> SharedMap:
        return self

    def to(self, device: torch.device | str) -> SharedMap:
        if torch.device(device) == self.device:
            return self
        raise ArgumentError(
            f"a map that ranks share stays on {self.device}, where they exchange what is read, but device={device} "
            "came: move what is read of it"
        )

    def stored(self) -> tuple[Call, Tensor | None]:
        """What a file keeps of the whole map, on every rank; queries and keys are gathered for it."""
        self._ready()
        with exact(self._part_call):
            self.axes.agree(f"all of it, {'' if 'whole' in self._kept else 'not '}read before")
            call = replace(self._part_call, q=self._part_call.q.detach(), k=self._part_call.k.detach(), prepared={})
            if self._sequence is not None:
                call = joined_call(call, self._sequence, self._by_distance)
            call = of_all_heads(call, self._heads)
            return call, self.lse if "whole" in self._kept else None

    def with_all_heads(self) -> AttentionMap:
        """This rank's rows of all heads, from the queries and keys of the ranks that have the others."""
        self._ready()
        if self._heads is None:
            return self._part
        with exact(self._part_call):
            self.axes.agree("mean_heads()")
            return AttentionMap(of_all_heads(self._part._call, self._heads))

    def __repr__(self) -> str:
        terms = [str(tuple(self.shape)), str(self.dtype).removeprefix("torch."), str(self.device)]
        terms += [] if self._part_call.mask is None else [shown(self._part_call.mask)]
        for name, axis in zip(("heads", "rows"), self.axes, strict=True):
            terms += [] if axis is None else [f"{len(axis.own)} of {axis.length} {name} here"]
        return f"SharedMap({', '.join(terms)})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(f"{self!r} belongs to the ranks that share it, and is not pickled: save it to a file")

    @property
    def _part(self) -> AttentionMap:
        """The rows and heads of this rank; every rank must ask for it the first time, for its keys."""
        # no cached_property: that of Python 3.11 lets one thread of a process in, and ranks may be threads
        if "part" not in self._kept:
            self._kept["part"] = self._made_part()
        part: AttentionMap = self._kept["part"]
        return part

    def _made_part(self) -> AttentionMap:
        call, spread = self._part_call, self._sequence
        if spread is None:
            return AttentionMap(call, self._passed_lse)
        with exact(call):
            self.axes.agree("this rank's rows")
            return AttentionMap(call_of_rows(call, spread, self._by_distance))

    def _ready(self) -> None:
        self._versions.check()
        refuse_in_torch_func("a map that ranks share")

    def _whole(self) -> WholeStatistics:
        """What one pass gives, moved once and kept."""
        self._ready()
        if "whole" not in self._kept:
            with exact(self._part_call):
                self.axes.agree("lse, entropy, received")
                summary, lse = self._part._summary(), self._part._known_sums().lse
                rows = self.axes.all_rows(torch.stack((summary.entropy, summary.peak, summary.mass, lse), -1))
                received = self.axes.total(summary.received.double(), "sum").to(self.dtype)
                entropy, peak, mass, lse = rows.unbind(-1)
                self._kept["whole"] = WholeStatistics(entropy, peak, mass, lse, received)
        whole: WholeStatistics = self._kept["whole"]
        return whole

    def _sums(self) -> Sums:
        whole = self._whole()
        return Sums(whole.entropy, whole.mass, whole.received)

    def _read_sums(self) -> Sums:
        return Sums(*(t.clone() for t in self._sums()))

    def _is_transformed(self) -> bool:
        return False

    def _statistic(self, kind: type[Statistic], *asked: Any) -> Statistic:
        """A statistic of this rank's part of the map."""
        if not kind.joins:
            raise ArgumentError(f"{kind.__name__} is a statistic of a whole map, but ranks share this one: read .local")
        rows = self.axes.rows
        # its keywords are those of a Statistic that parts have
        make: Any = kind
        statistic: Statistic = make(self._part._call, *asked, part=rows and MapPart(rows.own, rows.length))
        return statistic

    def _joined(self, statistic: Statistic) -> Answer:
        """What a statistic of each rank's part says of the whole."""
        parts = zip(statistic.totals(), statistic.joins, strict=True)
        totals = (self.axes.all_rows(t) if how == "rows" else self.axes.total(t, how) for t, how in parts)
        return statistic.concluded(tuple(totals))

    def _tiles(self, block: tuple[int, int]) -> Tensor:
        B, _, Lq, Lk = self.shape
        h = self._part_call.q.shape[1]
        kinds = tiles_of(self._part_call.mask, (B, h, Lq, Lk), block, self.device)
        if self._heads is None or not may_differ_by_head(self._part_call.mask):
            return kinds
        return self.axes.all_heads(kinds.expand(-1, h, -1, -1))

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        return self._entries("weights", taken, self._part._block)

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        return self._pairs("weights", at, self._part._points)

    def _entries(self, name: str, taken: tuple[Taken, ...], read: Read) -> Tensor:
        """What is taken from each axis, of what `read` gives of this rank's part."""
        self.axes.agree(f"{name} at {taken}")
        return shared_entries.block(self.axes, self.shape, taken, read, self._empty())

    def _pairs(self, name: str, at: tuple[Tensor, ...], read: Read) -> Tensor:
        """Single pairs, of what `read` gives of this rank's part."""
        self.axes.agree(f"{name} at {[t.tolist() for t in at]}")
        return shared_entries.points(self.axes, at, read, self._empty())

    def _empty(self) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)
