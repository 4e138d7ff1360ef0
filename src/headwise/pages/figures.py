"""Figures: a head or all heads of a page drawn with matplotlib, for a paper: axes in, axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps import HeadMean
from headwise.pages.colours import OUTSIDE, deep
from headwise.pages.encode_maps import Map, closed, thumbs
from headwise.pages.models import is_installed
from headwise.pages.picture import fonts_for
from headwise.pages.weight_codes import MASKED, decoded
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from headwise.pages.models import Progress
    from headwise.pages.page import Page

__all__ = ["SCALES", "check", "draw_all", "draw_head", "figure_of", "heading", "label", "tokens_of"]

# how weights become colours: as they are, or by their logarithm from 0.001 on
SCALES = ("linear", "log")
LEAST = 1e-3
MOST_CELLS, MOST_LABELS, LONGEST_LABEL = 1024, 48, 16
HIDDEN, NONE, EMPTY = ("#{:02x}{:02x}{:02x}".format(*OUTSIDE["light"][kind]) for kind in ("masked", "nan", "empty"))


def draw_head(page: Page, *, layer: int, head: int | None, scale: str, ax: Any = None) -> Any:
    """One head of a layer as a heat map on matplotlib's `ax`, None: on axes of its own; those axes.

    head: None is the mean of all. scale: "linear" or "log". What is masked is grey, NaN red.
    """
    check(page, layer, head, scale)
    shown = page.layers[layer]
    attention = shown.map.mean_heads() if head is None else shown.map
    weights, hidden = _weights(attention, page.sample, head or 0)
    if ax is None:
        ax = figure_of((4.6, 4.2)).subplots()
    _image(ax, weights, hidden, scale)
    names = tokens_of(page, layer)
    fonts = fonts_for("".join(token for side in names for token in side))
    for axis, side, length in zip((ax.yaxis, ax.xaxis), names, attention.shape[2:], strict=True):
        label(axis, side, length, weights.shape[0 if axis is ax.yaxis else 1], fonts)
    ax.tick_params(axis="x", rotation=90)
    title = say("picture.mean", lang=page.lang) if head is None else f"{say('page.head', lang=page.lang)} {head}"
    ax.set_title(heading(page, layer, title), fontfamily=fonts_for(title), parse_math=False, fontsize=10)
    bar = ax.figure.colorbar(ax.images[0], ax=ax, shrink=0.8, pad=0.02)
    bar.set_label(say("picture.weight", lang=page.lang), fontfamily=fonts)
    bar.outline.set_visible(False)
    return ax


def draw_all(page: Page, *, scale: str, tell: Progress) -> Any:
    """Every head of every layer as a small map: a matplotlib Figure."""
    check(page, 0, None, scale)
    heads = max(layer.map.shape[1] for layer in page.layers)
    count = len(page.layers)
    figure = figure_of((0.62 * heads + 0.8, 0.62 * count + 0.7))
    axes = figure.subplots(count, heads, squeeze=False)
    codes_of_all = []
    for n, layer in enumerate(page.layers):
        tell("step.maps", {"done": n, "total": count})
        codes_of_all.append(thumbs(layer.map, page.sample))
    for n, (codes, row) in enumerate(zip(codes_of_all, axes, strict=True)):
        for head, ax in enumerate(row):
            ax.set_axis_off()
            if head < len(codes):
                _image(ax, decoded(codes[head]), codes[head] <= MASKED, scale)
            if n == 0:
                ax.set_title(f"H{head}", fontsize=7)
        row[0].text(-0.2, 0.5, f"L{n}", transform=row[0].transAxes, ha="right", va="center", fontsize=7)
    bar = figure.colorbar(axes[0, 0].images[0], ax=list(axes.flat), shrink=0.7, pad=0.02)
    bar.set_label(say("picture.weight", lang="en"), fontsize=8)
    bar.outline.set_visible(False)
    return figure


def heading(page: Page, layer: int, title: str) -> str:
    """What a figure shows: the layer, its part, and the sample where there are several."""
    several = page.layers[layer].map.shape[0] > 1
    sample = f" · {say('page.sample', lang=page.lang)} {page.sample}" if several else ""
    return f"{say('page.layer', lang=page.lang)} {layer} · {title}{sample}"


def tokens_of(page: Page, layer: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of the rows and columns of a layer, in the sample that is drawn."""
    shown = page.layers[layer]
    return page.sides[shown.queries].of(page.sample).tokens, page.sides[shown.keys].of(page.sample).tokens


def check(page: Page, layer: int, head: int | None, scale: str) -> None:
    """Refuse what cannot be drawn."""
    if not is_installed("matplotlib"):
        raise refusal("refuse.extra", package="matplotlib", extra="plot")
    if scale not in SCALES:
        raise ArgumentError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    count = len(page.layers)
    if not count:
        raise ArgumentError("a figure must show maps, but this page has none, only steps: save it as .html instead")
    if not 0 <= layer < count:
        raise refusal("refuse.layer", model=page.title, last=count - 1, count=count, got=layer)
    heads = page.layers[layer].map.shape[1]
    if head is not None and not 0 <= head < heads:
        raise refusal("refuse.head", layer=layer, last=heads - 1, count=heads, got=head)


def figure_of(size: tuple[float, float]) -> Any:
    """A figure of its own, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


@torch.no_grad()
def _weights(attention: Map, sample: int, head: int) -> tuple[Tensor, Tensor]:
    """The weights of a head and where none may be, pooled by their maximum where there are more than can be drawn."""
    Lq, Lk = attention.shape[2:]
    if max(Lq, Lk) > MOST_CELLS:
        weights = attention.pooled(min(Lq, MOST_CELLS), min(Lk, MOST_CELLS), how="max")[sample, head].float().cpu()
        return weights, weights == 0
    weights = attention[sample, head].float().cpu()
    return weights, _hidden(attention, sample, head, weights)


def _hidden(attention: Map, sample: int, head: int, weights: Tensor) -> Tensor:
    if isinstance(attention, HeadMean):
        return weights == 0
    return closed(weights, attention.logits[sample, head].cpu())


def _image(ax: Any, weights: Tensor, hidden: Tensor, scale: str) -> None:
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    colours = ListedColormap([(r / 255, g / 255, b / 255) for r, g, b in deep()]).with_extremes(bad=HIDDEN)
    norm = Normalize(0.0, 1.0) if scale == "linear" else LogNorm(LEAST, 1.0, clip=True)
    shown = weights.clamp(min=LEAST if scale == "log" else 0.0).masked_fill(hidden, float("nan"))
    ax.imshow(shown.tolist(), cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
    none = (weights.isnan() & ~hidden).nonzero().tolist()
    if none:
        ax.scatter([j for _, j in none], [i for i, _ in none], marker="x", color=NONE, s=9, linewidths=0.8)
    ax.spines[:].set_visible(False)


def label(axis: Any, names: Sequence[str], length: int, cells: int, fonts: Sequence[str]) -> None:
    """Name the tokens along an axis, as many as have room; cells: how many entries are drawn for them."""
    step = -(-length // MOST_LABELS)
    ticks = range(0, length, step)
    labels = [
        name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…" for name in (names[n] for n in ticks)
    ]
    axis.set_ticks(
        [(n + 0.5) * cells / length - 0.5 for n in ticks], labels, fontfamily=fonts, parse_math=False, fontsize=7
    )
    axis.set_tick_params(length=0)
