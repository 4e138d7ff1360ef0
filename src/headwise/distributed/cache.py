"""SpreadCache: the keys and values of decoding, each rank's share of the tokens, and attention to all of them."""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from headwise.distributed.agreement import compare, digest, exchanged
from headwise.distributed.partial_attention import forward, packed, unpacked
from headwise.distributed.rank_failure import lost
from headwise.distributed.spread import group_of
from headwise.errors import CacheError, DistributedError
from headwise.layer import MultiHeadAttention
from headwise.layer.cache import KVCache, Stretch
from headwise.layer.cache_stores import GrowingStore, Rows
from headwise.layer.owner import LayerOwner
from headwise.masks import Mask, keys
from headwise.masks.selection import Picked, picked
from headwise.ops.call import Call, cast_by_autocast, checked
from headwise.ops.spread_attention import shared_keys_attention

# what ranks compare before the first step of a shape
SIZES = ("B", "Hq", "Hk", "D", "Dv", "the number of new tokens", "the number of tokens seen")
OTHERS = ("the dtype of q, k and v", "the mask", "attn_bias", "weight", "scale", "softcap", "sink")


def cache(layer: MultiHeadAttention, group: DeviceMesh | dist.ProcessGroup | None = None) -> KVCache:
    """An empty cache for a layer's decoding whose tokens are shared out over ranks: token t is held by rank t % W.

    Every rank gives the layer the same new tokens, `attn(x, mask=hw.causal(), cache=cache)`, and gets the same outputs,
    the numbers of one process on any number of ranks. A rank computes the projections of all new tokens, holds 1/W of
    the keys and values, and attends to these; of each query, Dv + 2 numbers a head move. group: a process group, or a
    mesh of one dimension; None: the default group, or this process alone.

    Raises DistributedError where ranks disagree at the first step of a shape, or one does not come.

    >>> import headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    >>> held = hw.distributed.cache(attn)
    >>> with torch.no_grad():
    ...     steps = [attn(x[:, t : t + 1], mask=hw.causal(), cache=held) for t in range(3)]
    ...     torch.allclose(torch.cat(steps, dim=1), attn(x, mask=hw.causal()), atol=1e-6)
    True
    >>> held
    SpreadCache(rank 0 of 1, seen=3, held=3)
    """
    return SpreadCache(layer._owner, Members(group_of(group)[0]))


class Members:
    """The ranks of a group, None: this process alone; one object for a cache and its copies."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.ranks = 1 if group is None else dist.get_world_size(group)
        # the shapes of steps that all have been asked about
        self.agreed_shapes: set[Hashable] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Members:
        return self


class SharedRows(GrowingStore):
    """Rows of which keys and values are this rank's, and what is known of tokens is of all."""

    def __init__(self, held_by: Members) -> None:
        super().__init__()
        self.members = held_by

    def tokens(self, seen: int) -> Tensor:
        """Which of so many tokens this rank holds, (S,)."""
        return torch.arange(min(self.members.rank, seen), seen, self.members.ranks)

    def put(self, new: Rows, cursor: Tensor | int, *, whole: bool) -> Rows:
        used = int(cursor)
        total = used + new["k"].shape[2]
        count = len(self.tokens(used))
        fresh = (self.tokens(total)[count:] - used).to(new["k"].device)
        local = {name: new[name].index_select(2, fresh) for name in ("k", "v")}
        of_all = {name: entries for name, entries in new.items() if name not in local}
        return {**self._put(local, count, count + len(fresh)), **self._put(of_all, used, total)}


class SpreadCache(KVCache):
    """The share of one rank of the keys and values that self-attention has seen; made by `hw.distributed.cache`."""

    def __init__(self, owner: LayerOwner, held_by: Members) -> None:
        super().__init__(owner, SharedRows(held_by), 0)

    @property
    def _shared(self) -> SharedRows:
        store = self._store
        if not isinstance(store, SharedRows):
            raise TypeError(f"rows over ranks are SharedRows, but {type(store).__name__} came")
        return store

    @property
    def _members(self) -> Members:
        return self._shared.members

    def extend(self, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Stretch:
        try:
            return super().extend(k, v, *rest, **options)
        except Exception:
            self._tell_refusal(k)
            raise

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        """The outputs of all queries (B, Hq, L, Dv), of the keys of all ranks: alike on each of them."""
        try:
            return shared_keys_attention(q, k, v, attend=self._attended, **rules)
        except Exception:
            # what was refused is as if it had not come
            self._move(self.seen - q.shape[2])
            raise

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        try:
            call = checked(*cast_by_autocast(q, k, v), **rules)
            if call.dropout:
                raise CacheError(
                    f"a cache over ranks is for decoding, but the layer drops weights, dropout={call.dropout}: "
                    "call layer.eval()"
                )
        except Exception:
            self._tell_refusal(k)
            raise
        self._agree(call)
        call.sink, sink = None, call.sink
        part = forward(call)
        if self._members.ranks > 1:
            # in the order of ranks, so that all of them round alike
            part = reduce(type(part).joined, map(unpacked, self._of_all(packed(part))))
        return part.with_sink(sink).out.to(q.dtype)

    def _tell_refusal(self, like: Tensor) -> None:
        """Tell the other ranks, which are about to compare what they were given, that this one refuses its step."""
        if self._members.ranks > 1 and not self._members.agreed_shapes:
            self._exchanged([1, *[0] * len(SIZES + OTHERS)], like)

    def _of_all(self, mine: Tensor) -> list[Tensor]:
        """What each rank sends of a step, each with the number of tokens that it has seen."""
        sent = torch.cat([mine.reshape(-1), mine.new_tensor([self.seen])])
        came, at = [torch.empty_like(sent) for _ in range(self._members.ranks)], f"decoding after {self.seen} tokens"
        try:
            dist.all_gather(came, sent, group=self._members.group)
        except RuntimeError as error:
            raise lost(error, self._members.group, at) from error
        odd = [rank for rank, each in enumerate(came) if int(each[-1]) != int(came[0][-1])]
        if odd:
            raise DistributedError(
                f"ranks must have seen the same tokens, but rank 0 has seen {int(came[0][-1])} and rank {odd[0]} "
                f"{int(came[odd[0]][-1])}: crop or reset the caches of all ranks alike"
            )
        return [each[:-1].view(mine.shape) for each in came]

    def _agree(self, call: Call) -> None:
        """Compare what ranks were given, before the first step of a shape."""
        tensors = (call.attn_bias, call.weight, call.sink, call.mask)
        rules = (call.scale, call.softcap, *(t is None for t in tensors))
        (B, Hq, L, D), (_, Hk, _, Dv) = call.q.shape, call.v.shape
        shape = (B, Hq, Hk, L, D, Dv, call.q.dtype, rules)
        if self._members.ranks == 1 or shape in self._members.agreed_shapes:
            return
        arguments = (
            call.q.dtype, call.mask.mask if isinstance(call.mask, Picked) else None, call.attn_bias is None,
            call.weight is None, call.scale, call.softcap, call.sink is None,
        )  # fmt: skip
        compare(self._exchanged([0, B, Hq, Hk, D, Dv, L, self.seen, *map(digest, arguments)], call.q), SIZES, OTHERS)
        self._members.agreed_shapes.add(shape)

    def _exchanged(self, mine: list[int], like: Tensor) -> list[list[int]]:
        held_by = self._members
        return exchanged(mine, held_by.group, held_by.ranks, like.device, "the first step of decoding of a shape")

    def _stretch(self, rows: Rows, mask: Mask | None, i: Tensor, cursor: Tensor | int, *, whole: bool) -> Stretch:
        k, total, j = rows["k"], self.seen, rows.get("position")
        tokens = self._shared.tokens(total).to(k.device)
        if mask is not None and j is not None:
            mask = mask.at(i, j)
        if "keep" in rows:
            mask = keys(rows["keep"]) if mask is None else mask & keys(rows["keep"])
        steps = total - int(cursor)
        mask = picked(mask, torch.arange(steps, device=k.device), tokens, sizes=(steps, total))
        return Stretch(k, rows["v"], mask, tokens if j is None else j[:, tokens], tokens)

    def __repr__(self) -> str:
        count = len(self._shared.tokens(self.seen))
        return f"SpreadCache(rank {self._members.rank} of {self._members.ranks}, seen={self.seen}, held={count})"
