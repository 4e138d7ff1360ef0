"""Head table: a number for each head of a model, layers by heads, and its picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.wording import refusal

__all__ = ["HeadTable", "checked_count", "heat_map", "plain_number"]


@dataclass(frozen=True, eq=False)
class HeadTable:
    """The layers of a model and how many heads each has.

    names: of the modules, in running order. heads: how many each has.
    """

    names: tuple[str, ...]
    heads: tuple[int, ...]

    def places(self) -> Iterator[tuple[str, int]]:
        """Name and number of every head, in running order."""
        return ((name, head) for name, count in zip(self.names, self.heads, strict=True) for head in range(count))

    def _filled(self, values: Mapping[tuple[str, int], float]) -> Tensor:
        """(layers, most heads), float64; NaN where a layer has fewer heads, or nothing is known."""
        out = torch.full((len(self.names), max(self.heads, default=0)), math.nan, dtype=torch.float64)
        for n, (name, count) in enumerate(zip(self.names, self.heads, strict=True)):
            for head in range(count):
                out[n, head] = values.get((name, head), math.nan)
        return out

    def _rows_filled(self, rows: Sequence[Tensor]) -> Tensor:
        """The same of the numbers (heads,) of each layer."""
        out = torch.full((len(self.names), max(self.heads, default=0)), math.nan, dtype=torch.float64)
        for n, row in enumerate(rows):
            out[n, : row.numel()] = row.double().cpu()
        return out


def heat_map(values: Tensor, names: Sequence[str], *, label: str, has_sign: bool, ax: Any = None) -> Any:
    """Numbers (layers, heads) on matplotlib's `ax`, None: on axes of its own; those axes. has_sign: red is positive."""
    if find_spec("matplotlib") is None:
        raise refusal("refuse.extra", package="matplotlib", extra="plot")
    import matplotlib.pyplot as plt

    if ax is None:
        size = (1.5 + 0.45 * values.shape[1], 1.2 + 0.35 * values.shape[0])
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    known = values.nan_to_num()
    limit = float(known.abs().max()) if values.numel() else 1.0
    # a table of zeros has a scale too
    limit = limit or 1.0
    colours = {"cmap": "RdBu_r", "vmin": -limit} if has_sign else {"cmap": "viridis", "vmin": 0.0}
    image = ax.imshow(values.numpy(), vmax=limit, aspect="auto", **colours)
    ax.figure.colorbar(image, ax=ax, label=label)
    ax.set_xticks(range(values.shape[1]))
    ax.set_yticks(range(values.shape[0]), names)
    ax.set_xlabel("head")
    return ax


def checked_count(k: int) -> int:
    """How many rows are asked for; ArgumentError where that is no count."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ArgumentError(f"k must be an integer >= 0, but {k!r} came")
    return k


def plain_number(number: float) -> float | None:
    """A number as JSON has it, None where it is not known."""
    return None if math.isnan(number) else number
