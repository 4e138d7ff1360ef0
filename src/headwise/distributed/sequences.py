"""Sequences over ranks: what layers ask of a spread, or of one sequence whose queries attend to the keys of another."""

from __future__ import annotations

from contextvars import Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from headwise.distributed.layouts import Layout
from headwise.distributed.rank_axis import RankAxis
from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.ops.active_spread import activate, deactivate
from headwise.ops.spread_attention import spread_attention

if TYPE_CHECKING:
    from headwise.distributed.spread import Spread


class Sequences:
    """Queries of a spread sequence, `queries`, and the keys they attend to, those of `source`.

    source: None: keys that every rank holds whole. `Spread` is its own queries and source.
    """

    if TYPE_CHECKING:

        @property
        def queries(self) -> Spread: ...
        @property
        def source(self) -> Spread | None: ...
        @property
        def crossed(self) -> SpreadPair: ...
        @property
        def length(self) -> int: ...
        @property
        def mask(self) -> Mask | None: ...
        @property
        def _entered(self) -> list[Token[Any]]: ...

    @property
    def moved(self) -> Spread:
        """`source`, for ways that move keys; ArgumentError where every rank holds them whole."""
        if self.source is None:
            raise ArgumentError('every rank holds the keys whole, so that none need move: take way="gather"')
        return self.source

    @property
    def tokens(self) -> Tensor:
        """The queries of this rank, int64 ascending (L of this rank,)."""
        return self.queries.own

    @property
    def positions(self) -> Tensor:
        """Where this rank's queries sit in the whole sequence: `tokens`, by the name that layers know."""
        return self.tokens

    @property
    def rows(self) -> RankAxis:
        """The queries of the whole sequence, as the rows of a map that all ranks read."""
        return _axis_of(self.queries)

    @property
    def columns(self) -> RankAxis | None:
        """The keys of the whole sequence; None: every rank holds them whole."""
        return None if self.source is None else _axis_of(self.source)

    def key_tokens(self, held: int) -> Tensor:
        """Which keys of the whole this rank holds, int64 (held,)."""
        return torch.arange(held) if self.source is None else self.source.own

    def map_sizes(self, held: int) -> tuple[int, int]:
        """Lq and Lk of the whole map, where this rank holds so many keys."""
        return self.queries.length, held if self.source is None else self.source.length

    def check_keys(self, count: int) -> None:
        """Raise ArgumentError where so many keys may be the query's own tokens, and these would give other numbers.

        Self-attention that is called as attn(x, x, x) would attend to x by the places of other keys.
        """
        mine, source = self.queries.layout, self.source
        if self.queries.ranks == 1 or (source is not None and mine.length != source.length):
            return
        if source is None and count in map(len, mine.tokens):
            raise ArgumentError(
                f"key holds {count} tokens, as many as a rank holds of the query's {mine.length}, so that it may be "
                "the query's own: leave key= out for self-attention, or give this layer a key of its own and "
                "spread=spread.with_keys(None)"
            )
        if source is not None and any(map(_differ, mine.tokens, source.layout.tokens)):
            raise ArgumentError(
                f"the query and the keys are of one length, {mine.length}, in two layouts, {mine.name} and "
                f"{source.layout.name}, so that key may be the query's own: leave key= out for "
                "self-attention, make both spreads in one layout, or give this layer a key of its own and spread="
            )

    def attention(self, q: Tensor, k: Tensor, v: Tensor, *, way: str = "auto", **rules: Any) -> Tensor:
        """`headwise.distributed.attention` of this rank's q, k and v; first_head and seed as in `SpreadSequence`."""
        return spread_attention(q, k, v, spread=self, way=way, **rules)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, way: str, **rules: Any) -> Tensor:
        """The same, unheard by a watch, which hears the call around it."""
        from headwise.distributed.attention import attend_spread

        return attend_spread(q, k, v, self, way, **rules)

    def keys(self, k: Tensor, mask: Mask | None, *, heads: int) -> Tensor:
        """The keys of the whole sequence that this rank's rows of a map need, 0 in the place of others."""
        from headwise.distributed.map_keys import gathered_keys

        return gathered_keys(k, mask, self, heads=heads)

    def __enter__(self) -> Self:
        """Have each MultiHeadAttention that runs from here on take its sequence for one that is spread like this.

        hw.attention and drop-ins, which would attend to this rank's tokens alone, raise ArgumentError meanwhile.
        """
        self._entered.append(activate(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        deactivate(self._entered.pop())


@dataclass(frozen=True, eq=False, repr=False)
class SpreadPair(Sequences):
    """Queries of one spread sequence that attend to another's keys; made by `Spread.with_keys`, which see."""

    queries: Spread
    source: Spread | None
    _entered: list[Token[Any]] = field(default_factory=list)

    @property
    def crossed(self) -> SpreadPair:
        """What cross-attention takes: itself."""
        return self

    @property
    def length(self) -> int:
        """How many queries the whole sequence has."""
        return self.queries.length

    @property
    def mask(self) -> Mask | None:
        """The mask of the queries' own sequence, for which it was spread."""
        return self.queries.mask

    @property
    def layout(self) -> Layout:
        """Which queries each rank holds."""
        return self.queries.layout

    @property
    def rank(self) -> int:
        """This rank."""
        return self.queries.rank

    @property
    def ranks(self) -> int:
        """How many ranks share the sequences."""
        return self.queries.ranks

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The ranks; None: this process alone."""
        return self.queries.group

    def __repr__(self) -> str:
        keys = "keys that each holds whole" if self.source is None else repr(self.source)
        return f"<{self.queries!r} with {keys}>"


def _differ(first: Tensor, second: Tensor) -> bool:
    return not torch.equal(first, second)


def _axis_of(spread: Spread) -> RankAxis:
    call = f"a reading of the map of {spread.length} tokens"
    return RankAxis(spread.layout, spread.rank, spread.group, call)
