"""Output file: where look writes, how large that may be, and whether it may replace another."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OutputFile"]

# where the page goes when nobody says
NAME = "look"


@dataclass(frozen=True)
class OutputFile:
    """The file that is written, the most million bytes it may have, and whether it may replace another."""

    file: Path
    max_mb: float
    force: bool

    @staticmethod
    def named(file: Path | None, max_mb: float, force: bool) -> OutputFile:
        """The file that a person names, None: one that is not there yet."""
        return OutputFile(file if file is not None else _free_name(), max_mb, force)


def _free_name() -> Path:
    """look.html here, or the first of look-2.html, look-3.html ... that is not there yet."""
    names = itertools.chain([NAME], (f"{NAME}-{n}" for n in itertools.count(2)))
    return next(file for name in names if not (file := Path(f"{name}.html")).exists())
