"""Heads as a picture: one panel for each, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.wording import say

if TYPE_CHECKING:
    from headwise.pages.text_look import Look

__all__ = ["fonts_for", "save"]

# fonts that have Chinese, Japanese and Korean, on Linux, macOS and Windows
CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Droid Sans Fallback", "AR PL UMing CN", "PingFang SC", "Hiragino Sans GB", "Heiti TC", "Arial Unicode MS",
    "Microsoft YaHei", "SimHei", "SimSun", "Yu Gothic", "Malgun Gothic",
)  # fmt: skip
PLAIN_FONT = "DejaVu Sans"
# more tokens than this are numbered by steps, and their weights not written into the cells
MOST_LABELS, MOST_NUMBERS = 64, 20
DPI = 150
NAN_COLOUR = "#cd3c14"


def save(look: Look, file: Path, form: str) -> str:
    """Draw every chosen head of a look into a file of this form; the characters for which no font was found."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [token.text for token in look.tokens]
    titles, axes_said, fonts = _texts(look, look.lang)
    lacking = _lacking("".join(names), fonts)
    if lacking:
        # numbered, so that the tokens of boxes alone can be distinguished
        boxes = {ord(character): "□" for character in lacking}
        names = [f"{n} {name.translate(boxes)}" for n, name in enumerate(names)]
    wide = math.ceil(math.sqrt(len(look.drawn)))
    tall = math.ceil(len(look.drawn) / wide)
    side = min(max(0.36 * len(names), 3.2), 14.0)
    figure = Figure(figsize=(wide * (side + 2.6), tall * (side + 1.8)), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(tall, wide, squeeze=False).flat)
    for panel, place, title in zip(panels, look.drawn, titles, strict=False):
        _draw(panel, look, place, names, fonts)
        panel.set_title(title, fontfamily=fonts, parse_math=False, pad=10)
        panel.set_ylabel(axes_said[0], fontfamily=fonts)
        panel.set_xlabel(axes_said[1], fontfamily=fonts)
        bar = figure.colorbar(panel.images[0], ax=panel, shrink=0.8, pad=0.02)
        bar.set_label(axes_said[2], fontfamily=fonts)
        bar.outline.set_visible(False)
    for panel in panels[len(look.drawn) :]:
        panel.remove()
    # without a date, and with names that are not random, the same look gives the same file
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with rc_context({"svg.hashsalt": "headwise"}):
        figure.savefig(file, format=form, metadata=undated, bbox_inches="tight", pad_inches=0.15)
    return "".join(lacking)


def _texts(look: Look, lang: str) -> tuple[list[str], list[str], list[str]]:
    """Titles, what stands beside the axes, and the fonts for them; English where no font can write this language."""
    titles = [say("picture.title", lang=lang, model=look.model, layer=layer, head=head) for layer, head in look.drawn]
    axes = [say(key, lang=lang) for key in ("picture.query", "picture.key", "picture.weight")]
    fonts = _fonts()
    if lang != "en" and _lacking("".join([*titles, *axes]), fonts):
        return _texts(look, "en")
    return titles, axes, fonts


def _draw(panel: Any, look: Look, place: tuple[int, int], names: Sequence[str], fonts: Sequence[str]) -> None:
    layer, head = place
    weights = look.weights[layer][head].tolist()
    panel.imshow(weights, cmap=_colours(), vmin=0.0, vmax=_brightest(weights), aspect="equal")
    step = -(-len(names) // MOST_LABELS)
    ticks = range(0, len(names), step)
    labels = [names[n] if len(names[n]) <= 14 else f"{names[n][:13]}…" for n in ticks]
    panel.set_xticks(ticks, labels, rotation=90, fontfamily=fonts, parse_math=False)
    panel.set_yticks(ticks, labels, fontfamily=fonts, parse_math=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    if step == 1:
        between = [n - 0.5 for n in range(1, len(names))]
        panel.set_xticks(between, minor=True)
        panel.set_yticks(between, minor=True)
        panel.grid(which="minor", color="white", linewidth=0.4, alpha=0.25)
        panel.tick_params(which="minor", length=0)
        for row in look.queried:
            panel.axhspan(row - 0.5, row + 0.5, fill=False, edgecolor="red", linewidth=1.2)
    else:
        edge = [-0.008 * len(names)] * len(look.queried)
        panel.scatter(edge, look.queried, marker=">", color="red", s=14, clip_on=False)
    for label, n in zip(panel.get_yticklabels(), ticks, strict=True):
        if n in look.queried:
            label.set(color="firebrick")
    if len(names) <= MOST_NUMBERS:
        _write_numbers(panel, weights)


def _write_numbers(panel: Any, weights: Sequence[Sequence[float]]) -> None:
    brightest = _brightest(weights)
    for row, line in enumerate(weights):
        for column, weight in enumerate(line):
            if math.isnan(weight):
                panel.text(column, row, "NaN", ha="center", va="center", color="white", fontsize=6)
            elif weight >= 0.05:
                ink = "black" if weight > 0.6 * brightest else "white"
                text = f"{weight:.2f}".lstrip("0")
                panel.text(column, row, text, ha="center", va="center", color=ink, fontsize=7)


def _brightest(weights: Sequence[Sequence[float]]) -> float:
    """The largest weight; 1 where there is none."""
    return max((weight for line in weights for weight in line if weight > 0), default=1.0)


def _colours() -> Any:
    """The scale, with a red for NaN that it does not have."""
    from matplotlib import colormaps

    return colormaps["viridis"].with_extremes(bad=NAN_COLOUR)


def _fonts() -> list[str]:
    """The fonts to use, in order: one for most of the world's letters, then those installed that have Chinese."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [PLAIN_FONT, *(name for name in CJK_FONTS if name in installed)]


def fonts_for(text: str) -> list[str]:
    """The fonts to use for a text, as few as it needs."""
    fonts = _fonts()
    return fonts if _lacking(text, fonts[:1]) else fonts[:1]


def _lacking(text: str, fonts: Sequence[str]) -> list[str]:
    """The characters of the text that none of the fonts can draw."""
    from matplotlib.font_manager import FontProperties, fontManager
    from matplotlib.ft2font import FT2Font

    lacking = sorted(set(text))
    for name in fonts:
        font = FT2Font(fontManager.findfont(FontProperties(family=name)))
        lacking = [character for character in lacking if not font.get_char_index(ord(character))]
    return lacking
