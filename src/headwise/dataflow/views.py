"""Views: a write into a view changes the marks of the whole tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow.provenance import Marks

__all__ = ["Views"]

# the most levels of nested views
DEEPEST = 8


@dataclass(frozen=True)
class View:
    """A view of a tensor. whole, shape: the number and shape of the tensor; function, args, options: of the view."""

    whole: int
    shape: tuple[int, ...]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass
class Views:
    """The views of a run. parts: by number."""

    parts: dict[int, View] = field(default_factory=dict)

    def note(
        self, part: int, whole: int, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Note an operation whose result may be a view of its first argument."""
        if args and isinstance(args[0], Tensor) and part != whole:
            self.parts[part] = View(whole, tuple(args[0].shape), function, args[1:], dict(options))

    def written(self, number: int, marks: dict[int, Marks]) -> None:
        """Copy the marks of a written tensor into the tensors of which it is a view."""
        for _ in range(DEEPEST):
            view = self.parts.get(number)
            if view is None or number not in marks:
                return
            whole_marks = _whole_marks(view, marks.get(view.whole), marks[number])
            if whole_marks is None:
                return
            number = view.whole
            marks[number] = whole_marks


def _whole_marks(view: View, before: Marks | None, part: Marks) -> Marks | None:
    """The marks of the whole with those of a part; None: the part is a copy, or of another kind."""
    if part.kind == "lost" or (before is not None and before.kind != part.kind):
        return None
    arrays = {}
    for name, part_array in part.arrays.items():
        array = torch.full(view.shape, -1) if before is None else before.arrays[name].clone()
        place = view.function(array, *view.args, **view.options)
        is_part = isinstance(place, Tensor) and place.untyped_storage().data_ptr() == array.untyped_storage().data_ptr()
        if not is_part or place.shape != part_array.shape:
            return None
        place.copy_(part_array)
        arrays[name] = array
    return Marks(part.kind, arrays)
