"""Index maps: the source index of each entry of a moved tensor, by moving numbered entries the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Moved", "is_movement", "moved", "of_marks"]

# by the last part of torch's name: these rearrange entries and compute none
MOVEMENTS = frozenset({
    "view", "reshape", "view_as", "reshape_as", "_unsafe_view", "transpose", "swapaxes", "swapdims", "permute",
    "movedim", "moveaxis", "t", "T", "mT", "H", "mH", "adjoint", "squeeze", "unsqueeze", "flatten", "unflatten",
    "ravel", "contiguous", "clone", "expand", "expand_as", "broadcast_to", "repeat", "tile", "repeat_interleave",
    "chunk", "split", "split_with_sizes", "tensor_split", "unbind", "narrow", "select", "__getitem__", "unfold",
    "as_strided", "diagonal", "detach", "alias", "hsplit", "vsplit", "dsplit", "__iter__", "atleast_2d",
    "atleast_3d", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "index_select", "roll",
})  # fmt: skip
# layouts of more levels than this do not occur in user code
DEEPEST = 5


@dataclass(frozen=True)
class Moved:
    """The layout of one result of a movement over its source in one run.

    axes: for each axis its digits (size, stride) from slow to fast, None: the layout is not of this form. is_whole: it
    has every entry of the source exactly once. start: the offset of its first entry.
    """

    axes: tuple[tuple[tuple[int, int], ...], ...] | None
    is_whole: bool
    start: int = 0


def is_movement(function: str) -> bool:
    """Whether torch's function of this full name only moves entries."""
    return function.rpartition(".")[2] in MOVEMENTS


def of_marks(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A movement of torch's full name as one of marks: where patches of an image are filled up, they are not known."""
    if name.rpartition(".")[::2] != ("torch.nn.functional", "unfold"):
        return function

    def patches(marks: Tensor, *args: Any, **options: Any) -> Tensor:
        # torch has it for floating-point numbers alone, and fills up with 0
        out: Tensor = function((marks + 1).double(), *args, **options)
        return out.long() - 1

    return patches


def moved(
    function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], source: Tensor
) -> tuple[Moved, ...] | None:
    """The layouts of the results of a call over `source`, its moved tensor; None: unknown."""
    numbers = torch.arange(source.numel(), dtype=torch.float64, device="cpu").reshape(source.shape)

    def instead(value: Any) -> Any:
        if value is source:
            return numbers
        if isinstance(value, tuple | list) and any(isinstance(tensor, Tensor) for tensor in value):
            return type(value)([instead(each) for each in value])
        return value

    try:
        with torch.no_grad():
            result = function(
                *(instead(argument) for argument in args), **{name: instead(v) for name, v in options.items()}
            )
    except Exception:  # noqa: BLE001  a call that refuses the numbered entries has no layout
        return None
    results = list(result) if isinstance(result, tuple | list) else [result]
    if not all(isinstance(each, Tensor) and each.dtype == torch.float64 for each in results):
        return None
    return tuple(_laid(each.long(), source.numel()) for each in results)


def _laid(places: Tensor, count: int) -> Moved:
    """The layout of source indices, of any shape, over `count` entries."""
    is_whole = places.numel() == count and bool(
        torch.zeros(count, dtype=torch.bool).index_fill(0, places.flatten(), True).all()
    )
    if places.numel() == 0:
        return Moved(None, is_whole)
    origin = (0,) * places.ndim
    rebuilt = places[origin].clone()
    axes = []
    for axis in range(places.ndim):
        line = places[tuple(slice(None) if at == axis else 0 for at in range(places.ndim))] - places[origin]
        rebuilt = rebuilt + line.reshape([-1 if at == axis else 1 for at in range(places.ndim)])
        digits = _digits(line.tolist(), DEEPEST)
        if digits is None:
            return Moved(None, is_whole)
        axes.append(tuple(digits))
    if not torch.equal(rebuilt.expand(places.shape), places):
        return Moved(None, is_whole)
    return Moved(tuple(axes), is_whole, int(places[origin]))


def _digits(line: list[int], deepest: int) -> list[tuple[int, int]] | None:
    """Indices from 0 as digits (size, stride), from slow to fast; []: a single index; None: they have no such form."""
    if len(line) == 1:
        return []
    if deepest == 0:
        return None
    stride = line[1]
    size = next((at for at, place in enumerate(line) if place != at * stride), len(line))
    if len(line) % size:
        return None
    for start in range(0, len(line), size):
        if any(line[start + at] - line[start] != at * stride for at in range(size)):
            return None
    slow = _digits(line[::size], deepest - 1)
    return None if slow is None else [*slow, (size, abs(stride))]
