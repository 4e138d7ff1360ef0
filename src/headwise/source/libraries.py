"""Libraries: whether a file is user code, part of an installed package, or part of Python."""

from __future__ import annotations

import os
import sysconfig
from functools import lru_cache
from pathlib import Path

__all__ = ["is_installed", "is_library"]

# of any environment: a project folder may hold one, and the home folder holds the user site
PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(file: str) -> bool:
    """Whether a file is part of an installed package.

    >>> is_installed("/me/.venv/lib/python3.11/site-packages/torch/overrides.py"), is_installed("/me/own.py")
    (True, False)
    """
    return file.startswith(_folders(("purelib", "platlib"))) or any(folder in file for folder in PACKAGES)


@lru_cache(maxsize=1 << 14)
def is_library(file: str) -> bool:
    """Whether a file is part of the standard library or of an installed package."""
    return file.startswith(_folders(("stdlib", "platstdlib"))) or is_installed(file)


@lru_cache(maxsize=2)
def _folders(names: tuple[str, ...]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = dict.fromkeys(folder for name in names for folder in (paths[name], str(Path(paths[name]).resolve())))
    return tuple(f"{folder}{os.sep}" for folder in folders)
