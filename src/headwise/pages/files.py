"""Files: written whole or not at all, their form chosen by their suffix."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.pages.models import is_installed
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from headwise.pages.looking import Look

__all__ = ["SUFFIXES", "check_output", "write"]


MOST_LISTED = 20


def _picture(look: Look, file: Path, form: str) -> tuple[str, ...]:
    from headwise.pages.picture import save

    missing = save(look, file, form)
    if not missing:
        return ()
    listed = " ".join(missing[:MOST_LISTED]) + (" …" if len(missing) > MOST_LISTED else "")
    return (say("look.no_glyph", lang=look.lang, characters=listed),)


def _json(look: Look, file: Path, _: str) -> tuple[str, ...]:
    file.write_text(json.dumps(look.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return ()


def _text(look: Look, file: Path, _: str) -> tuple[str, ...]:
    file.write_text(f"{look}\n", encoding="utf-8")
    return ()


# each form a file can have, and what writes it and gives notes about it
_WRITERS: dict[str, Callable[[Look, Path, str], tuple[str, ...]]] = {
    ".png": _picture,
    ".svg": _picture,
    ".pdf": _picture,
    ".json": _json,
    ".txt": _text,
}
SUFFIXES = tuple(_WRITERS)


def check_output(file: Path, *, force: bool) -> Path:
    """The file, if it may be written; else a Refusal, before any slow work is done in vain."""
    if file.suffix.lower() not in _WRITERS:
        raise refusal("refuse.suffix", suffixes=", ".join(SUFFIXES), file=file)
    if _WRITERS[file.suffix.lower()] is _picture and not is_installed("matplotlib"):
        raise refusal("refuse.extra", package="matplotlib", extra="plot")
    if not file.parent.is_dir():
        raise refusal("refuse.output_folder", folder=file.parent)
    if file.is_dir():
        raise refusal("refuse.is_folder", file=file)
    if file.exists() and not force:
        raise refusal("refuse.exists", file=file)
    return file


def write(look: Look, file: Path, *, force: bool) -> Look:
    """Write a look to a file under another name, then give it its own; the look with notes on how that went."""
    form = file.suffix.lower()
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        notes = _WRITERS[form](look, unfinished, form.removeprefix("."))
        check_output(file, force=force)
        unfinished.replace(file)
    except OSError as error:
        raise refusal("refuse.unwritable", file=file, reason=error.strerror or type(error).__name__) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return dataclasses.replace(look, notes=(*look.notes, *notes, say("look.wrote", lang=look.lang, file=file)))
