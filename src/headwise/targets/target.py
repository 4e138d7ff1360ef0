"""Target: code that a user names, as FILE:NAME, FILE, or package.module:NAME."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headwise.targets.child.command import started_in
from headwise.wording import refusal

__all__ = ["Target", "parse"]

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
PYTHON = (".py", ".pyw", ".pyi")
NOTEBOOK = (".ipynb",)


@dataclass(frozen=True)
class Target:
    """Code to examine. path: as the user wrote it; name: of a definition there, "" for all; kind: how to read it.

    kind: "python", "note", "notebook" or "module" (then path is the module's dotted name).
    """

    path: str
    name: str
    kind: str

    @property
    def file(self) -> Path:
        """The file: a relative path begins at the working folder of the user, in a child process too."""
        return started_in() / Path(self.path)


def parse(text: str) -> Target:
    """The target that a text names: "FILE:NAME", "FILE" or "package.module:NAME".

    An existing path is a file, whose suffix gives the kind (.py, .ipynb, anything else is a note); its name may contain
    a colon. NAME may be dotted: "Outer.Inner"; "Outer.forward" is Outer, which is examined by its forward. Errors:
    Refusal for a text that names nothing.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".md") as note:
    ...     target = parse(f"{note.name}:MultiHeadAttention")
    >>> target.name, target.kind
    ('MultiHeadAttention', 'note')
    """
    text = text.strip()
    if not text or text.startswith(":"):
        raise refusal("refuse.target_empty")
    path, colon, name = text.rpartition(":")
    if colon and not name and _is_there(path):
        return Target(path, "", _kind(path))
    if not colon or not NAME.fullmatch(name) or _is_there(text):
        path, name = text, ""
    name = name.removesuffix(".forward")
    if _is_there(path):
        return Target(path, name, _kind(path))
    is_module = NAME.fullmatch(path) and not path.endswith((*PYTHON, *NOTEBOOK, ".md", ".txt"))
    if is_module and (name or "." in path):
        return Target(path, name, "module")
    raise refusal("refuse.target_missing", path=path)


def _is_there(path: str) -> bool:
    try:
        return Target(path, "", "").file.exists()
    except (OSError, ValueError):
        # a name too long for the system, or with a byte 0 in it
        return False


def _kind(path: str) -> str:
    suffix = Path(path).suffix.lower()
    return "python" if suffix in PYTHON else "notebook" if suffix in NOTEBOOK else "note"
