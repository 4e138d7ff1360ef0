"""Files: written whole or not at all, their form chosen by their suffix."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.atomic_write import check_place, write_whole
from headwise.pages.models import Progress, is_installed, silent
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from headwise.pages.encoder_decoder import EncoderDecoderLook
    from headwise.pages.generation import Generation
    from headwise.pages.image_look import ImageLook
    from headwise.pages.page import Page
    from headwise.pages.text_look import Look
    from headwise.pages.user_code import CodeLook

__all__ = [
    "MAX_MB",
    "PAGE_SUFFIXES",
    "SUFFIXES",
    "check_output",
    "save_figure",
    "write",
    "write_code",
    "write_page",
    "write_text",
]

# how many million bytes a page may have unasked
MAX_MB = 12.0

MOST_LISTED = 20
# a long text is written in parts of so many bytes
PART = 1 << 20


def _html(look: Look, file: Path, _: str, *, max_mb: float = MAX_MB, tell: Progress = silent) -> tuple[str, ...]:
    write_text(look.page().html(max_mb=max_mb, progress=tell), file, tell)
    return ()


def _picture(look: Look, file: Path, form: str) -> tuple[str, ...]:
    from headwise.pages.picture import save

    missing = save(look, file, form)
    if not missing:
        return ()
    listed = " ".join(missing[:MOST_LISTED]) + (" …" if len(missing) > MOST_LISTED else "")
    return (say("look.no_glyph", lang=look.lang, characters=listed),)


def _json(look: Look | CodeLook | Generation | EncoderDecoderLook | ImageLook, file: Path, _: str) -> tuple[str, ...]:
    file.write_text(json.dumps(look.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return ()


def _text(look: Look | CodeLook | Generation | EncoderDecoderLook | ImageLook, file: Path, _: str) -> tuple[str, ...]:
    file.write_text(f"{look}\n", encoding="utf-8")
    return ()


# each form a file can have, and what writes it and gives notes about it
_WRITERS: dict[str, Callable[[Look, Path, str], tuple[str, ...]]] = {
    ".html": _html,
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _json,
    ".txt": _text,
}
SUFFIXES = tuple(_WRITERS)
PAGE_SUFFIXES = (".html", ".png", ".svg", ".pdf")


def check_output(file: Path, *, force: bool, of_maps: bool = False) -> Path:
    """The file, if it may be written; else a Refusal, before any slow work is done in vain.

    of_maps: what is written is made of maps alone, without a text.
    """
    suffixes = PAGE_SUFFIXES if of_maps else SUFFIXES
    if file.suffix.lower() not in suffixes:
        raise refusal("refuse.suffix", suffixes=", ".join(suffixes), file=file)
    if _WRITERS[file.suffix.lower()] is _picture and not is_installed("matplotlib"):
        raise refusal("refuse.extra", package="matplotlib", extra="plot")
    return check_place(file, force=force)


def write(look: Look, file: Path, *, force: bool, max_mb: float = MAX_MB, tell: Progress = silent) -> Look:
    """Write a look to a file, whole or not at all; the look with notes on how that went.

    max_mb: the most million bytes that a page may have. tell: reports how far it is.
    """
    form = file.suffix.lower()
    writer = functools.partial(_html, max_mb=max_mb, tell=tell) if form == ".html" else _WRITERS[form]
    notes: list[str] = []
    write_whole(file, lambda unfinished: notes.extend(writer(look, unfinished, form.removeprefix("."))), force=force)
    return dataclasses.replace(look, notes=(*look.notes, *notes, say("look.wrote", lang=look.lang, file=file)))


def write_page(
    page: Page, file: Path, *, force: bool, max_mb: float = MAX_MB, scale: str = "log", tell: Progress = silent
) -> None:
    """Write a page of maps: whole as .html, else as a figure of all its heads. tell: reports how far it is."""
    form = file.suffix.lower()
    if form == ".html":
        page.save(file, force=force, max_mb=max_mb, progress=tell)
        return
    figure = page.plot_all(scale=scale, progress=tell)
    page.write_once(file, lambda: save_figure(figure, file, force=force))


def write_code(
    look: CodeLook | Generation | EncoderDecoderLook | ImageLook,
    file: Path,
    *,
    force: bool,
    max_mb: float = MAX_MB,
    tell: Progress = silent,
) -> None:
    """Write maps of code or of a generation: the page, a figure of all heads, data or text, as the suffix says."""
    form = file.suffix.lower()
    tell("step.writing", {"file": file})
    if form in PAGE_SUFFIXES:
        write_page(look.page(), file, force=force, max_mb=max_mb, tell=tell)
        return
    writer = _json if form == ".json" else _text

    def fill(unfinished: Path) -> None:
        writer(look, unfinished, form)

    write_whole(file, fill, force=force)


def write_effects(page: Page, file: Path, *, force: bool, max_mb: float = MAX_MB, tell: Progress = silent) -> None:
    """Write a page with effects: whole as .html, else as the figure of their tables."""
    if file.suffix.lower() == ".html":
        page.save(file, force=force, max_mb=max_mb, progress=tell)
        return
    save_figure(page.plot_all(view="effects", progress=tell), file, force=force)


def write_text(text: str, unfinished: Path, tell: Progress) -> None:
    """Write a long text in parts, and report each."""
    data = text.encode("utf-8")
    with unfinished.open("wb") as out:
        for start in range(0, len(data), PART):
            tell("step.bytes", {"done": start, "total": len(data)})
            out.write(data[start : start + PART])


def save_figure(figure: Any, file: Path, *, force: bool) -> None:
    """Write a figure of matplotlib, the same figure as the same file."""
    from matplotlib import rc_context

    form = file.suffix.lower().removeprefix(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)

    def fill(unfinished: Path) -> None:
        with rc_context({"svg.hashsalt": "headwise"}):
            figure.savefig(unfinished, format=form, metadata=undated, bbox_inches="tight", pad_inches=0.1)

    write_whole(file, fill, force=force)
