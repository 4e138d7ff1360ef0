"""Host tiles: what is certain of a mask's tiles on the host, for which no device is read."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from headwise.masks.coordinates import Sizes
from headwise.masks.leaves import Ruled, values_are_at_hand
from headwise.masks.mask import Mask
from headwise.masks.tiles import TileGrid


@dataclass(frozen=True, eq=False, repr=False)
class Unread(Mask):
    """In the place of a mask whose values are on a device: any tile of it may be mixed."""

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        none = tiles.i[0].new_zeros((1, 1, 1, 1), dtype=torch.bool)
        return ~none, none


def host_tiles(mask: Mask, sizes: Sizes, block: tuple[int, int], device: torch.device) -> Tensor | None:
    """`Mask.tiles` for a call on `device`, on the CPU; None where nothing is known of any tile.

    Where the mask's tensors are on the CPU, or it has none, nothing is left out. Parts with tensors on a device, and
    functions, which run where the call does, leave tiles mixed: of `causal() & documents(ids)` with ids on a GPU it
    knows what causal() hides. Under torch.func, a compiler or a mode of fake tensors values are not known either.
    """
    readable = host_part(mask, device)
    if isinstance(readable, Unread):
        return None
    tiles = TileGrid.whole(sizes, block, torch.device("cpu"))
    kinds = tiles.classify(readable.spans(tiles))
    return kinds if values_are_at_hand(kinds) else None


def host_part(mask: Mask, device: torch.device) -> Mask:
    """The mask with `Unread` in the place of each part that cannot be asked on the host for a call on `device`."""
    values = {field.name: getattr(mask, field.name) for field in fields(mask)}
    if any(isinstance(value, Tensor) and not values_are_at_hand(value) for value in values.values()):
        return Unread()
    if isinstance(mask, Ruled):
        return mask if device.type == "cpu" else Unread()
    parts = {name: host_part(value, device) for name, value in values.items() if isinstance(value, Mask)}
    is_same = all(part is values[name] for name, part in parts.items())
    return mask if is_same else replace(mask, **parts)
