"""A picture of where the network looks in a text while it writes each sign of the date."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from torch import Tensor

import headwise as hw

from .model import ISO_LENGTH, DateReader, iso_ids, read_dates

CELL = 0.36
SHADES = LinearSegmentedColormap.from_list("ink", ["#eef1f6", "#6fa3d8", "#0f2a63"])
CHINESE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Droid Sans Fallback", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei",
)  # fmt: skip
# how the signs are said, for machines without any of these fonts
PINYIN = {
    "〇": "líng", "一": "yī", "二": "èr", "三": "sān", "四": "sì", "五": "wǔ", "六": "liù", "七": "qī", "八": "bā",
    "九": "jiǔ", "十": "shí", "年": "nián", "月": "yuè", "日": "rì", "星": "xīng", "期": "qī", "，": ",",
}  # fmt: skip


def alignment(model: DateReader, text: str) -> tuple[str, Tensor]:
    """The date in the text, and the cross-attention weights (H, 10, L) of its signs over those of the text."""
    date = read_dates(model, [text])[0]
    memory = model.read(model.encode([text]))
    with torch.inference_mode(), hw.watch(model, only="decoder.cross") as seen:
        # a sign is chosen at the one before it, so the last is left out
        model.write(iso_ids([date])[:, :-1], memory)
    return date, seen["decoder.cross"][0]


def save_alignment(model: DateReader, texts: list[str], file: Path) -> None:
    """Draw the weights of each text, their mean over the heads, side by side."""
    widths = [len(text) for text in texts]
    size = CELL * (sum(widths) + 3 * len(widths) + 1), CELL * (ISO_LENGTH + 3.4)
    figure = Figure(figsize=size, layout="constrained", dpi=200)
    figure.suptitle("Where the decoder looks in a date while it writes each sign of its ISO form", fontsize=13)
    panels = list(figure.subplots(1, len(texts), squeeze=False, width_ratios=widths).flat)
    for panel, text in zip(panels, texts, strict=True):
        draw(panel, text, *alignment(model, text))
    bar = figure.colorbar(panels[0].images[0], ax=panels, shrink=0.9, aspect=22, pad=0.015)
    bar.set_label("weight, mean of the heads", fontsize=9)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.outline.set_visible(False)
    figure.savefig(file, bbox_inches="tight", pad_inches=0.15)


def draw(panel: Axes, text: str, date: str, weights: Tensor) -> None:
    """One row for each sign of the date, one column for each of the text, weights (H, 10, L) as shades."""
    panel.imshow(weights.mean(0).tolist(), cmap=SHADES, vmin=0.0, vmax=1.0, aspect="equal")
    panel.xaxis.tick_top()
    label_signs(panel, text)
    panel.set_yticks(range(len(date)), date, fontfamily="DejaVu Sans Mono", fontsize=12)
    panel.set_xticks([n - 0.5 for n in range(1, len(text))], minor=True)
    panel.set_yticks([n - 0.5 for n in range(1, len(date))], minor=True)
    panel.grid(which="minor", color="white", linewidth=1.5)
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)


def label_signs(panel: Axes, text: str) -> None:
    """Write the text above its columns, Chinese in a font that has it, or as it is said where none is installed."""
    ticks, fonts = range(len(text)), [font for font in fontManager.ttflist if font.name in CHINESE_FONTS]
    if text.isascii():
        panel.set_xticks(ticks, list(text), fontfamily="DejaVu Sans Mono", fontsize=12)
    elif fonts:
        # the weight that the font has: asking for another is answered with a warning
        font = min(fonts, key=lambda font: abs(font.weight - 400))
        panel.set_xticks(ticks, list(text), fontfamily=font.name, fontweight=font.weight, fontsize=12)
    else:
        panel.set_xticks(ticks, [PINYIN.get(sign, sign) for sign in text], fontsize=8)


def save_losses(alone: list[float], spread: list[float], file: Path) -> None:
    """Draw the loss of every step in one process and on several, and how far they are apart."""
    figure = Figure(figsize=(8, 5), layout="constrained", dpi=150)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    steps = range(1, len(alone) + 1)
    above.plot(steps, alone, color="#6fa3d8", linewidth=5, label="one process")
    above.plot(steps, spread, color="#0f2a63", linewidth=1.5, label="4 processes: heads over 2, tokens over 2, FSDP2")
    above.set_title("Learning to read dates: the loss of one process, and of 4", fontsize=12)
    above.set_ylabel("loss, nats a sign")
    above.set_ylim(bottom=0)
    above.legend(frameon=False)
    below.plot(steps, [abs(a - b) for a, b in zip(alone, spread, strict=True)], color="#0f2a63", linewidth=1.2)
    # differences of 0 have no logarithm
    below.set_yscale("symlog", linthresh=1e-7)
    below.set_ylim(bottom=0)
    below.set_ylabel("difference")
    below.set_xlabel("step")
    for panel in (above, below):
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(0, len(alone) + 1)
    figure.savefig(file)
