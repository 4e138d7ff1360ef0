"""LayerOwner: which layer a cache or a memory belongs to, through copies and pickles of either."""

from __future__ import annotations

import copy
from typing import Any

from headwise.errors import CacheError
from headwise.layer.sizes import Widths

# the layers that may use a cache: more than one only in a copy that no layer has used yet
Owners = tuple["LayerOwner", ...]


class LayerOwner:
    """The identity of a layer, as an object that its caches refer to; widths: those of the layer.

    Identity is compared by `is`, which torch.compile guards as a relation of its inputs: one graph serves all layers
    of a kind. An object, not a number: a deep copy of a layer gets another one, and a copy of a layer together with
    its cache gets one for both, since each copying keeps account of what it has copied. is_claimed: whether a layer
    has this identity; false in a copy until the copied layer takes it, so always where a cache is copied alone.

    >>> widths = Widths(8, 2, 2, 4, 4, 8, 8, 8)
    >>> first = LayerOwner(widths)
    >>> copy.deepcopy((first, first))[0] is first, copy.deepcopy(first).is_claimed
    (False, False)
    """

    def __init__(self, widths: Widths) -> None:
        self.widths = widths
        self.is_claimed = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.widths, self.is_claimed = state["widths"], False


def owners_of_copy(owners: Owners, memo: dict[int, Any]) -> Owners:
    """Who may use a deep copy: the layers that may use the original, and their copies of the same memo."""
    claimed_owners = tuple(owner for owner in owners if owner.is_claimed)
    return (*(copy.deepcopy(owner, memo) for owner in claimed_owners), *claimed_owners) if claimed_owners else owners


def claimed(kind: str, owners: Owners, layer: LayerOwner) -> Owners:
    """The owners once `layer` has used what is theirs: itself alone; CacheError where it is none of them.

    kind: "cache" or "memory". Without a claimed owner, as after it was pickled without its layer, what is theirs
    belongs to the first layer of the same widths that uses it.
    """
    for owner in owners:
        if owner is layer:
            return owners if len(owners) == 1 else (layer,)
    if layer.widths == owners[0].widths and not any(owner.is_claimed for owner in owners):
        return (layer,)
    made_for, came = (_described(owner.widths) for owner in (owners[0], layer))
    which = f"another of the same widths ({came})" if made_for == came else f"one of {came}"
    maker = f"the layer that made it, of {made_for}" if made_for != came else "the layer that made it"
    raise CacheError(
        f"a {kind} belongs to {maker}, but {which} was given it: give every layer the {kind} that its own "
        f"{kind}() made, or copy both in one deepcopy"
    )


def _described(w: Widths) -> str:
    head = f"head_dim={w.D}" + ("" if w.Dv == w.D else f", v_head_dim={w.Dv}")
    return f"embed_dim={w.E}, num_heads={w.Hq}, num_kv_heads={w.Hk}, {head}"
