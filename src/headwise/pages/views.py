"""Views: each view of the page drawn with matplotlib: lines between tokens, one row, sums and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.pages.colours import HEADS, deep
from headwise.pages.encode_maps import NOTHING, entropies, mean_of_some
from headwise.pages.figures import EMPTY, HIDDEN, NONE, check, draw_all, draw_head, figure_of, heading, label, tokens_of
from headwise.pages.number_tables import TABLE_VIEWS
from headwise.pages.picture import fonts_for
from headwise.wording import say

if TYPE_CHECKING:
    from headwise.pages.models import Progress
    from headwise.pages.page import Page

__all__ = ["VIEWS", "VIEWS_OF_ALL", "draw_view", "draw_view_of_all"]

# of one layer, and of all
VIEWS = ("map", "heads", "row", "entropy", "received")
VIEWS_OF_ALL = ("overview", "statistics")
# lines are told apart up to so many tokens, and weaker ones are not drawn
MOST_LINES, FAINTEST = 160, 0.01
# of no more heads is the colour named
MOST_NAMED = 16
SOFT, BAR = "#6b6875", "#5b86b5"


def draw_view(
    page: Page, view: str, *, layer: int, head: int | None, token: int | None, scale: str, ax: Any = None
) -> Any:
    """One view of a layer on matplotlib's `ax`; see `Page.plot`."""
    if view not in VIEWS:
        raise ArgumentError(f"view must be one of {', '.join(VIEWS)} to be drawn on axes; got {view!r}")
    if token is not None and view not in ("heads", "row"):
        raise ArgumentError(f'a token is of the views "heads" and "row"; got token={token} with {view!r}')
    if view == "map":
        return draw_head(page, layer=layer, head=head, scale=scale, ax=ax)
    if view == "row":
        return draw_row(page, layer=layer, head=head, token=token, scale=scale, ax=ax)
    if scale != "linear":
        raise ArgumentError(f"only a map or a row has a scale; got scale={scale!r} with {view!r}")
    if view == "heads":
        return draw_lines(page, layer=layer, head=head, token=token, ax=ax)
    return draw_sums(page, view=view, layer=layer, head=head, ax=ax)


def draw_view_of_all(page: Page, view: str, *, scale: str, tell: Progress) -> Any:
    """One view of all layers as a matplotlib Figure; see `Page.plot_all`."""
    if view not in (*VIEWS_OF_ALL, *TABLE_VIEWS):
        raise ArgumentError(
            f"view must be one of {', '.join((*VIEWS_OF_ALL, *TABLE_VIEWS))} for all layers; got {view!r}"
        )
    if view in TABLE_VIEWS:
        return draw_tables(page, view)
    return draw_all(page, scale=scale, tell=tell) if view == "overview" else draw_statistics(page, tell=tell)


@torch.no_grad()
def draw_lines(page: Page, *, layer: int, head: int | None, token: int | None, ax: Any = None) -> Any:
    """Lines from each token to those it attends to, thicker for more weight, on matplotlib's `ax`; those axes.

    head: None is all of them, each in its colour. token: the one whose lines are drawn; None: every one's.
    """
    check(page, layer, head, "linear")
    attention = page.layers[layer].map
    H, Lq, Lk = attention.shape[1:]
    if max(Lq, Lk) > MOST_LINES:
        raise ArgumentError(
            f"lines are drawn between at most {MOST_LINES} tokens, but {max(Lq, Lk)} came: plot the map"
        )
    rows = range(Lq) if token is None else [_row(token, Lq)]
    names = tokens_of(page, layer)
    fonts = fonts_for("".join((*names[0], *names[1])))
    tall = max(Lq, Lk)
    ax = ax if ax is not None else figure_of((4.6, max(2.4, 0.22 * tall + 0.8))).subplots()
    for h in range(H) if head is None else [head]:
        weights = attention[page.sample, h].float().cpu()
        for i in rows:
            _lines(ax, i, weights[i], HEADS[h % len(HEADS)])
    for x, side, align in ((-0.04, names[0], "right"), (1.04, names[1], "left")):
        for n, name in enumerate(side):
            ink = "black" if align == "left" or n in rows else SOFT
            ax.text(
                x, n, _short(name), ha=align, va="center", fontsize=8, fontfamily=fonts, parse_math=False, color=ink
            )
    for x, key, align in ((-0.04, "page.query", "right"), (1.04, "page.key", "left")):
        ax.text(
            x, -1.1, say(key, lang=page.lang), ha=align, va="center", fontsize=7, color=SOFT, fontfamily=_fonts(page)
        )
    ax.set_xlim(-0.6, 1.6)
    ax.set_ylim(tall + 0.4, -1.6)
    ax.set_axis_off()
    if head is None and 1 < H <= MOST_NAMED:
        for h in range(H):
            place = (h + 0.5) / H * 1.6 - 0.3
            ax.text(place, tall, f"H{h}", ha="center", va="center", fontsize=7, color=HEADS[h % len(HEADS)])
    of_head = f"{say('page.head', lang=page.lang)} {head}"
    title = say("picture.all", lang=page.lang) if head is None else of_head
    ax.set_title(heading(page, layer, title), fontsize=10, fontfamily=_fonts(page))
    return ax


@torch.no_grad()
def draw_row(page: Page, *, layer: int, head: int | None, token: int | None, scale: str, ax: Any = None) -> Any:
    """What one token attends to, a bar for each key, on matplotlib's `ax`; those axes. head: None is their mean."""
    check(page, layer, head, scale)
    shown = page.layers[layer]
    row = _row(token if token is not None else int(page.opening.get("token", 0)), shown.map.shape[2])
    attention = shown.map.mean_heads() if head is None else shown.map
    names = tokens_of(page, layer)
    weights = attention[page.sample, head or 0, row].float().cpu()
    ax = _bars(page, weights, names[1], say("picture.weight", lang=page.lang), ax)
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(1e-4, 1.0)
    title = say("picture.mean", lang=page.lang) if head is None else f"{say('page.head', lang=page.lang)} {head}"
    fonts = fonts_for(names[0][row] + title)
    title = heading(page, layer, f"{title} · {row} {_short(names[0][row])}")
    ax.set_title(title, fontsize=10, fontfamily=fonts, parse_math=False)
    return ax


@torch.no_grad()
def draw_sums(page: Page, *, view: str, layer: int, head: int | None, ax: Any = None) -> Any:
    """The entropy of each query, or the weight that each key gets from all, as bars; the axes.

    view: "entropy" or "received". head: None is the mean over the heads.
    """
    check(page, layer, head, "linear")
    attention = page.layers[layer].map
    sums = entropies(attention, page.sample) if view == "entropy" else attention.received()[page.sample].float().cpu()
    values = mean_of_some(sums, 0) if head is None else sums[head]
    key = "page.entropy.each" if view == "entropy" else "page.received"
    ax = _bars(page, values, tokens_of(page, layer)[0 if view == "entropy" else 1], say(key, lang=page.lang), ax)
    title = say("picture.mean", lang=page.lang) if head is None else f"{say('page.head', lang=page.lang)} {head}"
    ax.set_title(heading(page, layer, title), fontsize=10, fontfamily=_fonts(page))
    return ax


@torch.no_grad()
def draw_statistics(page: Page, *, tell: Progress) -> Any:
    """The mean entropy and the mean distance of every head, as two tables: a matplotlib Figure."""
    check(page, 0, None, "linear")
    means = []
    for n, layer in enumerate(page.layers):
        tell("step.maps", {"done": n, "total": len(page.layers)})
        means.append(mean_of_some(entropies(layer.map, page.sample), 1))
    distances = [layer.map.distance()[page.sample].float().cpu() for layer in page.layers]
    # a head that attends to nothing has neither
    entropy = [mean.where(mean != NOTHING, math.inf).tolist() for mean in means]
    distance = [each.where(mean != NOTHING, math.inf).tolist() for each, mean in zip(distances, means, strict=True)]
    heads = max(map(len, entropy))
    figure = figure_of((2 * (0.36 * heads + 0.9), 0.26 * len(entropy) + 0.9))
    for ax, key, table in zip(figure.subplots(1, 2), ("entropy.mean", "distance"), (entropy, distance), strict=True):
        _table(ax, [row + [math.nan] * (heads - len(row)) for row in table], [len(row) for row in table])
        ax.set_title(say(f"page.{key}", lang=page.lang), fontsize=9, fontfamily=_fonts(page))
    return figure


def draw_tables(page: Page, view: str) -> Any:
    """The tables of one view beside each other: a matplotlib Figure."""
    tables = [table for table in page.tables if table.view == view]
    if not tables:
        maker = "hw.compare" if view == "compare" else "hw.head_effects"
        raise ArgumentError(f'the view "{view}" shows what {maker} gave: put it beside the maps by page.with_table')
    heads = max(len(row) for row in tables[0].values)
    figure = figure_of((len(tables) * (0.42 * heads + 0.9), 0.26 * len(tables[0].values) + 0.9))
    for ax, table in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        rows = [[value if math.isfinite(value) else math.inf for value in row] for row in table.values]
        lengths = [len(row) for row in rows]
        padded = [row + [math.nan] * (heads - len(row)) for row in rows]
        _table(ax, padded, lengths, has_sign=table.has_sign, write=table.form.write)
        ax.set_title(table.caption(page.lang), fontsize=9, fontfamily=fonts_for(table.caption(page.lang)))
    about = tables[0].heading.said(page.lang)
    figure.suptitle(about, fontsize=8, fontfamily=fonts_for(about), parse_math=False, wrap=True)
    return figure


def _table(
    ax: Any,
    table: Sequence[Sequence[float]],
    lengths: Sequence[int],
    *,
    has_sign: bool = False,
    write: Callable[[float], str] = "{:.1f}".format,
) -> None:
    """Numbers as coloured cells. has_sign: in red above 0 and in blue below, else on the scale of weights from 0."""
    from matplotlib import colormaps
    from matplotlib.colors import Colormap, ListedColormap

    finite = [value for row in table for value in row if math.isfinite(value)]
    low, high = min(0.0, *finite, 0.0), max(1e-9, *finite, 1e-9)
    colours: Colormap = ListedColormap([(r / 255, g / 255, b / 255) for r, g, b in deep()])
    if has_sign:
        high = max(high, -low)
        low, colours = -high, colormaps["RdBu_r"]
    colours = colours.with_extremes(bad="white")
    shown = [[value if math.isfinite(value) else math.nan for value in row] for row in table]
    ax.imshow(shown, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for n, row in enumerate(table):
        for head, value in enumerate(row[: lengths[n]]):
            at = (value - low) / (high - low)
            is_dark = abs(at - 0.5) > 0.32 if has_sign else at >= 0.42
            text = "NaN" if math.isnan(value) else "–" if math.isinf(value) else write(value)
            ink = NONE if math.isnan(value) else "white" if is_dark and not math.isinf(value) else "black"
            ax.text(head, n, text, ha="center", va="center", fontsize=6, color=ink)
    ax.set_xticks(range(len(table[0])), [f"H{n}" for n in range(len(table[0]))], fontsize=6)
    ax.set_yticks(range(len(table)), [f"L{n}" for n in range(len(table))], fontsize=6)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _bars(page: Page, values: Tensor, names: Sequence[str], ylabel: str, ax: Any) -> Any:
    count = len(values)
    ax = ax if ax is not None else figure_of((min(12.0, max(3.6, 0.2 * count + 1)), 2.8)).subplots()
    none, empty = values.isnan(), (values == NOTHING).nonzero().flatten().tolist()
    ax.bar(
        range(count),
        values.nan_to_num(0.0, 0.0, 0.0).clamp(min=0.0).tolist(),
        color=BAR,
        width=0.8 if count <= 200 else 1.0,
    )
    if bool(none.any()):
        ax.scatter(none.nonzero().flatten().tolist(), [0.0] * int(none.sum()), marker="x", color=NONE, s=14, zorder=3)
    if empty:
        # a row that may attend to nothing is no bar of 0
        ax.scatter(empty, [0.0] * len(empty), marker="s", color=EMPTY, edgecolor=SOFT, s=14, linewidths=0.5, zorder=3)
    label(ax.xaxis, names, count, count, fonts_for("".join(names)))
    ax.tick_params(axis="x", rotation=90)
    ax.tick_params(axis="y", labelsize=7)
    ax.set_ylabel(ylabel, fontsize=7, fontfamily=_fonts(page))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(HIDDEN)
    ax.set_xlim(-0.6, count - 0.4)
    return ax


def _lines(ax: Any, i: int, weights: Tensor, colour: str) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    for j, weight in enumerate(weights.nan_to_num(0.0).tolist()):
        if weight >= FAINTEST:
            path = Path([(0, i), (0.42, i), (0.58, j), (1, j)], codes)
            thick, alpha = 0.4 + 3.6 * weight, min(1.0, 0.15 + 0.8 * math.sqrt(weight))
            ax.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=thick, alpha=alpha))


def _row(token: int, Lq: int) -> int:
    if not 0 <= token < Lq:
        raise ArgumentError(f"token must lie in 0..{Lq - 1}, since there are {Lq} queries; got {token}")
    return token


def _fonts(page: Page) -> list[str]:
    """Fonts for the texts of the page."""
    return fonts_for(say("page.received", lang=page.lang))


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"
