"""One head as a heat map in the terminal: numbers where they fit, shades where they do not, colour if there is any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from headwise.wording import say
from headwise.wording.screen import columns, fit

__all__ = ["Heat", "pooled"]

# from this weight on, this shade
SHADES = ((0.7, "█"), (0.4, "▓"), (0.2, "▒"), (0.05, "░"), (0.0, " "))
# five points of viridis, which is even in brightness and safe for colour-blind eyes
VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
# what stands for a weight that is NaN, and its colour
NAN, NAN_COLOUR = "!", "#cd3c14"
LABEL, HEADER = 14, 9


@dataclass(frozen=True)
class Heat:
    """A heat map that rich prints to the width it finds.

    weights (L, L), rows are queries; names: of the tokens; marked: the rows to point at.
    """

    weights: Sequence[Sequence[float]]
    names: Sequence[str]
    marked: Sequence[int]
    lang: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_coloured = console.color_system is not None and not console.no_color
        label = min(LABEL, max(columns(name) for name in self.names))
        room = options.max_width - label - 7
        cell = next((width for width in (4, 2, 1) if width * len(self.names) <= room), 1)
        block = -(-len(self.names) // max(room, 1)) if cell == 1 else 1
        rows = pooled(self.weights, block)
        yield from self._header(label + 7, cell, block, len(rows))
        for n, row in enumerate(rows):
            first = n * block
            is_marked = any(first <= mark < first + block for mark in self.marked)
            line = Text(f"{'▸' if is_marked else ' '}{first:>4} {fit(self.names[first], label)} ", no_wrap=True)
            line.stylize("bold" if is_marked else "")
            line.append_text(_cells(row, cell, is_coloured))
            yield line
        yield Text(self._key(cell, block, is_coloured), style="dim")

    def _header(self, indent: int, cell: int, block: int, count: int) -> Iterator[Text]:
        """The names of the columns, read downwards, or only their numbers where a column is too narrow."""
        if cell == 1:
            numbers = "".join(f"{n * block:<10}" for n in range(0, count, 10))
            yield Text(" " * indent + numbers[: max(count, 1)].rstrip(), style="dim", no_wrap=True)
            return
        names = [name if len(name) <= HEADER else f"{name[: HEADER - 1]}…" for name in self.names]
        height = max(map(len, names))
        for line in range(height):
            letters = (name[line - height + len(name)] if line >= height - len(name) else " " for name in names)
            yield Text(" " * indent + "".join(f"{'':{cell - 2}}{fit(c, 2)}" for c in letters).rstrip(), no_wrap=True)

    def _key(self, cell: int, block: int, is_coloured: bool) -> str:
        parts = [say("look.map.percent", lang=self.lang)] if cell == 4 else []
        if not is_coloured:
            parts.append(say("look.map.shades", lang=self.lang))
        if cell < 4 and any(math.isnan(weight) for row in self.weights for weight in row):
            parts.append(say("look.map.nan", lang=self.lang, sign=NAN))
        if block > 1:
            parts.append(say("look.map.pooled", lang=self.lang, block=block))
        return " · ".join(parts)


def _cells(row: Sequence[float], cell: int, is_coloured: bool) -> Text:
    line = Text(no_wrap=True)
    for weight in row:
        if math.isnan(weight):
            style = Style(color="#ffffff", bgcolor=NAN_COLOUR) if is_coloured else ""
            line.append("NaN " if cell == 4 else NAN * cell, style=style)
            continue
        shade = next(sign for least, sign in SHADES if weight >= least)
        percent = f"{100 * weight:3.0f}" if weight >= 0.005 else "   "
        if is_coloured:
            line.append(f"{percent} "[-cell:] if cell == 4 else " " * cell, style=_style(weight))
        else:
            line.append(f"{percent}{shade}" if cell == 4 else shade * cell)
    return line


def _style(weight: float) -> Style:
    place = min(max(weight, 0.0), 1.0) * (len(VIRIDIS) - 1)
    below = min(int(place), len(VIRIDIS) - 2)
    share = place - below
    red, green, blue = (
        round(low + (high - low) * share) for low, high in zip(VIRIDIS[below], VIRIDIS[below + 1], strict=True)
    )
    ink = "#000000" if weight > 0.55 else "#ffffff"
    return Style(color=ink, bgcolor=Color.from_rgb(red, green, blue).name)


def pooled(weights: Sequence[Sequence[float]], block: int) -> list[list[float]]:
    """The largest weight of each block × block square, NaN where one is; the last ones may be smaller."""
    if block == 1:
        return [list(row) for row in weights]
    starts = range(0, len(weights), block)
    return [
        [
            _largest([weight for row in weights[top : top + block] for weight in row[left : left + block]])
            for left in starts
        ]
        for top in starts
    ]


def _largest(weights: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, weights)) else max(weights)
