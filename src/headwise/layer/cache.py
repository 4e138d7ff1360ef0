"""KVCache: the keys and values of the tokens so far, for decoding step by step with the numbers of one pass."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError, CacheError, MaskError, ShapeError
from headwise.layer.cache_stores import Counter, GrowingStore, RingStore, Rows, StaticStore, Store
from headwise.layer.owner import LayerOwner, Owners, claimed, owners_of_copy
from headwise.masks import Mask, keys, prefix, window
from headwise.masks.coordinates import Sizes
from headwise.ops import additive_attention, attention
from headwise.ops.call import check_bias
from headwise.shapes import check_count, pick_samples


class Stretch(NamedTuple):
    """What the queries of one step attend to."""

    k: Tensor
    v: Tensor
    mask: Mask | None
    # None: one after another from 0
    key_positions: Tensor | None
    # which token each slot holds, where that is not its own number
    tokens: Tensor | None


class KVCache:
    """The keys and values of the tokens that self-attention has seen; made by `MultiHeadAttention.cache`.

    It is handed to each call, `attn(x, mask=hw.causal(), cache=cache)`, and gives the numbers of one call on the whole
    sequence with the same mask. Masks speak of all tokens so far: `keys(keep)` is (B, tokens so far), the new ones
    included. Padding that `keys` or `lengths` once hid stays hidden, on either side. New tokens sit one position
    after the last one, or where `positions=` says. Needs gradients off.

    It belongs to the layer that made it, and any other one is refused. A copy belongs to that layer too, and to the
    copy of the layer where both were copied at once; pickled alone, to the first layer of its widths that uses it.

    >>> import torch, headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    >>> cache = attn.cache()
    >>> with torch.no_grad():
    ...     steps = [attn(x[:, t : t + 1], mask=hw.causal(), cache=cache) for t in range(3)]
    ...     torch.allclose(torch.cat(steps, dim=1), attn(x, mask=hw.causal()), atol=1e-6)
    True
    >>> cache
    KVCache(growing, seen=3)
    """

    def __init__(self, owner: LayerOwner, store: Store, cursor: Counter | int, *, batch: int | None = None) -> None:
        self._owners: Owners = (owner,)
        self._store = store
        self._cursor = cursor
        # None: as many samples as come first
        self._batch = batch

    @property
    def seen(self) -> int:
        """How many tokens have been appended, the dropped ones of a window included."""
        return self._cursor if isinstance(self._cursor, int) else self._cursor.number

    @property
    def _at(self) -> Tensor | int:
        """The same without a read of the device."""
        return self._cursor if isinstance(self._cursor, int) else self._cursor.tensor

    def reorder(self, index: Tensor) -> None:
        """Pick samples by index (B',), as beam search needs it."""
        self._store.rows = {name: pick_samples(row, index) for name, row in self._store.rows.items()}
        self._batch = index.shape[0]

    def crop(self, length: int) -> None:
        """Forget all tokens but the first `length`, as speculative decoding needs it."""
        check_count("length", length, 0, error=CacheError)
        count = self.seen
        if not 0 <= length <= count:
            raise CacheError(f"crop(length) must lie in 0..{count}, the tokens seen; got {length}")
        if length == 0:
            return self.reset()
        store = self._store
        if isinstance(store, RingStore) and count > store.sinks + store.window and length < count:
            raise CacheError(
                f"a window of {store.window} keys has dropped tokens after seeing {count}, so crop({length}) cannot "
                "bring them back: use attn.cache() without window"
            )
        self._move(length)
        return None

    def reset(self) -> None:
        """Forget all tokens; static buffers stay where they are."""
        self._move(0)
        for name in ("keep", "position"):
            self._store.rows.pop(name, None)
        if not isinstance(self._store, StaticStore):
            self._store.rows.clear()
            self._batch = None

    def check_layer(self, layer: LayerOwner) -> None:
        """Raise CacheError where the layer of this identity is not the one that this cache belongs to."""
        owners = claimed("cache", self._owners, layer)
        if owners is not self._owners:
            self._owners = owners

    def next_positions(self, steps: int, device: torch.device) -> Tensor:
        """The positions of the next tokens by default, (steps,) or (B, steps): one after the last."""
        positions, ahead = self._store.rows.get("position"), torch.arange(steps, device=device)
        if positions is None:
            return self._at + ahead
        last = torch.as_tensor(self._at, device=device).reshape(1) - 1
        return positions.index_select(1, last) + 1 + ahead

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        """The outputs of the queries of a step, over what `extend` has let them attend to."""
        return (additive_attention if "weight" in rules else attention)(q, k, v, **rules)

    def extend(
        self,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Tensor | None,
        positions: Tensor,
        *,
        placed: bool,
        heads: int,
    ) -> Stretch:
        """Append k (B, Hk, L, D) and v (B, Hk, L, Dv) at `positions`; what their queries may attend to.

        bias: attn_bias over all tokens so far. placed: whether the caller gave the positions. heads: Hq. What is
        refused is refused before anything is appended.
        """
        whole = self._checked(k, v, mask, bias, placed=placed, heads=heads)
        self._batch, steps, before = k.shape[0], k.shape[2], self._at
        if isinstance(before, Tensor):
            # compiled steps, and rings, count on the device; other slots are cut out by number
            is_cut = isinstance(self._store, StaticStore) and not torch.compiler.is_compiling()
            before = self.seen if is_cut else before.clone()
        rows = self._store.put(self._new_rows(k, v, mask, positions, placed=placed, whole=whole), before, whole=whole)
        if isinstance(self._cursor, int):
            self._cursor += steps
        else:
            self._cursor.add(steps)
        return self._stretch(rows, mask, positions, before, whole=whole)

    def _checked(
        self, k: Tensor, v: Tensor, mask: Mask | None, bias: Tensor | None, *, placed: bool, heads: int
    ) -> bool:
        """Refuse what cannot be appended, before anything is written; else whether queries attend to all slots."""
        store = self._store
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise CacheError("a cache keeps no graph, but gradients are on: call inside torch.no_grad()")
        if placed and isinstance(store, RingStore):
            raise CacheError("a window cache counts tokens, so it takes no positions=: use attn.cache() without window")
        if self._batch not in (None, k.shape[0]):
            raise ShapeError(
                f"the cache is for B={self._batch} samples, but B={k.shape[0]} came: make another, or reorder(index)"
            )
        stored = store.rows.get("k")
        if stored is not None and stored.dtype is not k.dtype:
            raise CacheError(
                f"the cache holds {stored.dtype}, but {k.dtype} came: keep one dtype, and one autocast, throughout"
            )
        if torch.compiler.is_compiling():
            # how many tokens it has seen is a value there
            if isinstance(store, StaticStore) and k.shape[2] > store.length:
                raise CacheError(
                    f"a static cache of length {store.length} cannot take {k.shape[2]} tokens at once: make it with "
                    f"length={k.shape[2]} or more"
                )
            return isinstance(store, StaticStore)
        total = self.seen + k.shape[2]
        if isinstance(store, StaticStore) and total > store.slots(0):
            raise CacheError(
                f"a static cache of length {store.slots(0)} has seen {self.seen} tokens and cannot take {k.shape[2]} "
                f"more: make it with length={total} or more"
            )
        sizes, whole = Sizes(k.shape[0], heads, k.shape[2], total), False
        if isinstance(store, StaticStore) and not _fit(mask, bias, sizes):
            # a mask or bias over all slots, as compiled steps take it, covers all of them
            whole = _fit(mask, bias, sizes._replace(Lk=store.length))
            sizes = sizes._replace(Lk=store.length if whole else total)
        if mask is not None:
            mask.check(sizes)
        if bias is not None:
            check_bias(bias, sizes)
        return whole

    def _new_rows(
        self, k: Tensor, v: Tensor, mask: Mask | None, positions: Tensor, *, placed: bool, whole: bool
    ) -> Rows:
        """The rows of new tokens: with padding and position, where this cache has had to keep them or has to now."""
        (B, _, steps, _), rows, slots = k.shape, self._store.rows, self._store.slots(self._at)
        new = {"k": k, "v": v}
        keep = self._padding(mask, steps, whole=whole)
        if keep is not None or "keep" in rows:
            if "keep" not in rows:
                rows["keep"] = torch.ones(B, slots, dtype=torch.bool, device=k.device)
            fresh = torch.ones(1, steps, dtype=torch.bool, device=k.device) if keep is None else keep
            new["keep"] = fresh.expand(B, steps)
        if placed or "position" in rows:
            if "position" not in rows:
                rows["position"] = torch.arange(slots, device=k.device).repeat(B, 1)
            new["position"] = positions.expand(B, steps)
        return new

    def _padding(self, mask: Mask | None, steps: int, *, whole: bool) -> Tensor | None:
        """Which of the new tokens are real, bool (B, steps); None: all."""
        if mask is None:
            return None
        if whole:
            keep = mask.padding(self._store.slots(0))
            if keep is None:
                return None
            return keep.index_select(1, self._at + torch.arange(steps, device=keep.device))
        keep = mask.padding(self.seen + steps)
        return None if keep is None else keep[:, -steps:]

    def _stretch(self, rows: Rows, mask: Mask | None, i: Tensor, cursor: Tensor | int, *, whole: bool) -> Stretch:
        store, slots, device = self._store, rows["k"].shape[2], rows["k"].device
        j, tokens = rows.get("position"), None
        if isinstance(store, RingStore):
            of_slots = store.tokens(torch.as_tensor(self._at, device=device))
            if i.shape[-1] > 1:
                of_slots = torch.cat([store.tokens(torch.as_tensor(cursor, device=device)), i])
            j, tokens = of_slots, of_slots.clamp(min=0)
            # keys out of the window are masked; whether later ones are is for the caller's mask to say
            near = window(before=store.window - 1, after=slots) | prefix(store.sinks)
            placed = (
                near.at(i, of_slots) if mask is None else near.at(i, of_slots) & mask.at(i, of_slots, columns=tokens)
            )
            mask = placed & keys((of_slots >= 0)[None])
        else:
            if mask is not None and (whole or j is not None):
                mask = mask.at(i, torch.arange(slots, device=device) if j is None else j)
            if whole:
                filled = keys((torch.arange(slots, device=device) < self._at)[None])
                mask = filled if mask is None else mask & filled
        if "keep" in rows:
            mask = keys(rows["keep"]) if mask is None else mask & keys(rows["keep"])
        return Stretch(rows["k"], rows["v"], mask, j, tokens)

    def _move(self, length: int) -> None:
        if isinstance(self._cursor, int):
            self._cursor = length
        else:
            self._cursor.move(length)

    def __deepcopy__(self, memo: dict[int, Any]) -> KVCache:
        again = type(self).__new__(type(self))
        memo[id(self)] = again
        rest = {name: part for name, part in vars(self).items() if name != "_owners"}
        again.__dict__.update(copy.deepcopy(rest, memo), _owners=owners_of_copy(self._owners, memo))
        return again

    def __repr__(self) -> str:
        store = self._store
        kind = "growing"
        if isinstance(store, StaticStore):
            kind = f"length={store.slots(0)}"
        elif isinstance(store, RingStore):
            kind = f"window={store.window}, sinks={store.sinks}"
        return f"KVCache({kind}, seen={self.seen})"


def make_cache(
    owner: LayerOwner, device: torch.device, *, length: int | None, batch: int | None, window: int | None, sinks: int
) -> KVCache:
    """An empty cache for the layer of this identity; for the rest see `MultiHeadAttention.cache`."""
    if (length is None) != (batch is None):
        raise ArgumentError(f"a static cache needs length= and batch=, but got length={length} and batch={batch}")
    if length is not None and window is not None:
        raise ArgumentError(f"length={length} and window={window} are two kinds of cache: give one of them")
    for name, count, least in (("length", length, 1), ("batch", batch, 0), ("window", window, 1)):
        if count is not None:
            check_count(name, count, least)
    check_count("sinks", sinks, 0)
    if sinks and window is None:
        raise ArgumentError(f"sinks={sinks} are what a window keeps besides, so they need window=")
    if window is not None:
        return KVCache(owner, RingStore(window, sinks), Counter(device))
    if length is not None:
        return KVCache(owner, StaticStore(length), Counter(device), batch=batch)
    return KVCache(owner, GrowingStore(), 0)


def _fit(mask: Mask | None, bias: Tensor | None, sizes: Sizes) -> bool:
    try:
        if mask is not None:
            mask.check(sizes)
        if bias is not None:
            check_bias(bias, sizes)
    except (MaskError, ShapeError):
        return False
    return True
