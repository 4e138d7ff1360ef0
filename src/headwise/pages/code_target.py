"""Code target: whether a text names code, as FILE:NAME or package.module:NAME do, or is a text."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

__all__ = ["code_target"]

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
# a file of these that is not there is a mistake, no text
CODE = (".py", ".pyw", ".pyi", ".ipynb", ".md")


def code_target(text: str) -> str | None:
    """The text where it names code; None: it is a text, such as any that merely holds a colon.

    Code is a file that is there, or one without spaces and with the suffix of code, or a dotted module that can be
    found, and behind a colon a name; or a file of code that is there, alone. Nothing is imported to know that.

    >>> code_target("Note: this is a sentence"), code_target("attention.py:MultiHeadAttention")
    (None, 'attention.py:MultiHeadAttention')
    """
    if text.strip().lower().endswith(CODE) and _is_file(text.strip()):
        return text.strip()
    path, colon, name = text.strip().rpartition(":")
    if not colon or not NAME.fullmatch(name):
        return None
    is_code = _is_file(path) or (path.lower().endswith(CODE) and not any(map(str.isspace, path)))
    return text.strip() if is_code or _is_module(path) else None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        # a name too long for the system, or with a byte 0 in it
        return False


def _is_module(path: str) -> bool:
    """Whether a dotted name is that of a module inside of a package."""
    if "." not in path or not NAME.fullmatch(path):
        return False
    top, *rest = path.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    inner = [Path(folder, *rest) for folder in folders]
    return any(place.is_dir() or any(place.parent.glob(f"{place.name}.*")) for place in inner)
