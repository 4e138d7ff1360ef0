"""Memory: the keys and values of cross-attention, projected once and read by many queries."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.errors import ShapeError
from headwise.layer.owner import LayerOwner, Owners, claimed, owners_of_copy
from headwise.masks import Mask
from headwise.shapes import pick_samples


@dataclass(frozen=True, eq=False, repr=False)
class Memory:
    """Projected keys k (B, Hk, Lk, D) and values v (B, Hk, Lk, Dv) with the mask that goes with them.

    Made by `MultiHeadAttention.memory`, used as `attn(query, memory)`. mask: None: every key may be seen. It holds
    the graph of its projections, so gradients flow through it. It belongs to the layer that made it, as a cache does,
    and any other one is refused; where a transform takes it for its tensors (export, vmap), by their sizes only.

    >>> import torch, headwise as hw
    >>> attn = hw.MultiHeadAttention(8, 2, kdim=6)
    >>> memory = attn.memory(torch.randn(3, 5, 6))
    >>> memory
    Memory(k=(3, 2, 5, 4), v=(3, 2, 5, 4), mask=None)
    >>> attn(torch.randn(3, 4, 8), memory).shape
    torch.Size([3, 4, 8])
    """

    k: Tensor
    v: Tensor
    mask: Mask | None = None
    owners: Owners = ()

    def check_layer(self, layer: LayerOwner, Hk: int) -> None:
        """Raise CacheError where the layer of this identity did not make it, ShapeError where the sizes are not its.

        Hk: how many key/value heads the layer computes here.
        """
        if self.owners:
            claimed("memory", self.owners, layer)
        w = layer.widths
        if (self.k.shape[1], self.k.shape[-1], self.v.shape[-1]) != (Hk, w.D, w.Dv):
            raise ShapeError(
                f"a memory must hold keys (B, Hk={Hk}, Lk, D={w.D}) and values (B, Hk={Hk}, Lk, Dv={w.Dv}) for "
                f"this layer, but it holds {tuple(self.k.shape)} and {tuple(self.v.shape)}: make it with memory(key)"
            )

    def __repr__(self) -> str:
        return f"Memory(k={tuple(self.k.shape)}, v={tuple(self.v.shape)}, mask={self.mask!r})"

    def reorder(self, index: Tensor) -> Memory:
        """The same memory with its samples picked by index (B',), as beam search needs it."""
        mask = None if self.mask is None else self.mask.reorder(index)
        return Memory(pick_samples(self.k, index), pick_samples(self.v, index), mask, self.owners)

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        k, v, mask = copy.deepcopy((self.k, self.v, self.mask), memo)
        return Memory(k, v, mask, owners_of_copy(self.owners, memo))


def _with_keys(memory: Memory) -> tuple[list[tuple[Any, Any]], None]:
    # a mask of None is no child: transforms would take it for a tensor; the owners are none, since an exported program
    # could not be saved with them
    named = [("k", memory.k), ("v", memory.v), ("mask", memory.mask)]
    return [(pytree.GetAttrKey(name), value) for name, value in named if value is not None], None


pytree.register_pytree_node(
    Memory,
    lambda memory: ([value for _, value in _with_keys(memory)[0]], None),
    lambda values, _: Memory(*values),
    serialized_type_name="headwise.layer.Memory",
    flatten_with_keys_fn=_with_keys,
)
# so that an exported program that was shown a memory loads with weights_only
torch.serialization.add_safe_globals([Memory])
