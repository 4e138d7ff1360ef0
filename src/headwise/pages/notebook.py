"""Notebook: maps as a still picture, which is there at once, and the page itself in a frame, on request."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.pages.colours import OUTSIDE, Colour, deep
from headwise.pages.encode_maps import thumbs
from headwise.pages.png import as_data, png
from headwise.pages.weight_codes import EMPTY, FIRST, MASKED, NAN, ZERO, decoded
from headwise.wording import say

if TYPE_CHECKING:
    from headwise.pages.page import Page

__all__ = ["Frame", "picture"]

# a picture of more weights than this takes too long to be shown unasked
MOST_WEIGHTS = 1 << 28
SIDE, GAP = 40, 4
# colours beside the scale: white between the maps, masked, rows that see nothing, NaN
BESIDE: tuple[Colour, ...] = ((255, 255, 255), *OUTSIDE["light"].values())
BLANK, HIDDEN, NOTHING, NONE = range(4)


class Frame:
    """A page in a notebook, apart from it, so many pixels high."""

    def __init__(self, page: str, height: int) -> None:
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        inside = html.escape(self.page)
        style = f"width:100%;height:{self.height}px;border:1px solid #ccc;border-radius:8px"
        sandbox = "allow-scripts allow-downloads allow-modals"
        return f'<iframe sandbox="{sandbox}" style="{style}" srcdoc="{inside}"></iframe>'


def picture(page: Page) -> str:
    """All heads of a page as one small picture with a line of words; words alone where that would take long."""
    weights = sum(math.prod(layer.map.shape[1:]) for layer in page.layers)
    words = f"{page!r}<br>" if weights > MOST_WEIGHTS or not page.layers else ""
    caption = f"{html.escape(page.title)} · {html.escape(say('page.notebook', lang=page.lang))}"
    small = f'<small style="color:#6b6875">{caption}</small>'
    if words:
        return f"<div>{html.escape(repr(page))}<br>{small}</div>"
    source = as_data(png(_grid(page), (*BESIDE, *deep()[: 256 - len(BESIDE)])))
    names = html.escape(", ".join(layer.name for layer in page.layers[:8]))
    return f'<div><img src="{source}" alt="{names}" style="max-width:100%;image-rendering:pixelated"><br>{small}</div>'


def _grid(page: Page) -> list[list[int]]:
    """The numbers of colours of the whole picture: a row of heads for each layer."""
    widest = max(layer.map.shape[1] for layer in page.layers)
    step = SIDE + GAP
    canvas = torch.full((len(page.layers) * step + GAP, widest * step + GAP), BLANK, dtype=torch.long)
    for n, layer in enumerate(page.layers):
        for head, codes in enumerate(thumbs(layer.map, page.sample)):
            top, left = GAP + n * step, GAP + head * step
            canvas[top : top + SIDE, left : left + SIDE] = _stretched(_coloured(codes))
    return [[int(value) for value in row] for row in canvas.tolist()]


def _coloured(codes: Tensor) -> Tensor:
    """Codes as numbers of colours, on a logarithmic scale from 0.001 on."""
    places = (1 + decoded(codes).clamp(min=1e-9).log10() / 3).clamp(0, 1).nan_to_num()
    colours = len(BESIDE) + (places * (255 - len(BESIDE))).round().long()
    for code, colour in ((EMPTY, NOTHING), (MASKED, HIDDEN), (NAN, NONE)):
        colours = colours.masked_fill(codes == code, colour)
    return colours.masked_fill((codes >= ZERO) & (codes <= FIRST), len(BESIDE))


def _stretched(colours: Tensor) -> Tensor:
    """A picture of any size as SIDE × SIDE, each pixel that of the place it lies in."""
    rows, columns = colours.shape
    i = torch.arange(SIDE) * rows // SIDE
    j = torch.arange(SIDE) * columns // SIDE
    return colours[i[:, None], j]
