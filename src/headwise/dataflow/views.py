"""Views: what is written into a part of a tensor is held by the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow.provenance import Marks

__all__ = ["Views"]

# parts of parts of parts are followed so far up
DEEPEST = 8


@dataclass(frozen=True)
class View:
    """A part of a tensor. whole: its number, and its shape; function, args, options: what gave the part."""

    whole: int
    shape: tuple[int, ...]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass
class Views:
    """Parts by their numbers."""

    known: dict[int, View] = field(default_factory=dict)

    def note(
        self, part: int, whole: int, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """That an operation gave a tensor which may be a part of its first argument."""
        if args and isinstance(args[0], Tensor) and part != whole:
            self.known[part] = View(whole, tuple(args[0].shape), function, args[1:], dict(options))

    def written(self, number: int, marks: dict[int, Marks]) -> None:
        """Let what holds a tensor that was written into hold its marks as well."""
        for _ in range(DEEPEST):
            view = self.known.get(number)
            if view is None or number not in marks:
                return
            held = _held(view, marks.get(view.whole), marks[number])
            if held is None:
                return
            number = view.whole
            marks[number] = held


def _held(view: View, before: Marks | None, part: Marks) -> Marks | None:
    """The marks of the whole with those of a part; None: what was called a part is a copy, or is of another kind."""
    if part.kind == "lost" or (before is not None and before.kind != part.kind):
        return None
    arrays = {}
    for name, each in part.arrays.items():
        array = torch.full(view.shape, -1) if before is None else before.arrays[name].clone()
        place = view.function(array, *view.args, **view.options)
        is_part = isinstance(place, Tensor) and place.untyped_storage().data_ptr() == array.untyped_storage().data_ptr()
        if not is_part or place.shape != each.shape:
            return None
        place.copy_(each)
        arrays[name] = array
    return Marks(part.kind, arrays)
