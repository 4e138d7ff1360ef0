"""Locations: where the code of a target lies: its folder, its package, and what Python calls its files."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import sysconfig
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.source import is_library
from headwise.targets.child.command import started_in
from headwise.targets.python_lines import OPENING
from headwise.targets.source_file import Source, parsed
from headwise.targets.target import Target
from headwise.targets.text_files import text_of
from headwise.wording import Refusal

__all__ = ["Place", "own_modules", "place_of"]


@dataclass(frozen=True)
class Place:
    """file: the target's, in full. said: what the person calls it. module: the name its code runs under, package: the
    package it is in, or "". folders: where its own modules are."""

    file: Path
    said: str
    module: str
    package: str
    folders: tuple[Path, ...]

    def file_of(self, said: str) -> str:
        """What code objects are to call a file of Source.texts: the whole path, and "…/BOOK.ipynb[3]" for a cell."""
        return f"{self.file}{said.removeprefix(self.said)}"

    def remember(self, source: Source) -> None:
        """Let tracebacks and spans find the lines of the code."""
        joined: dict[str, list[str]] = {}
        for cell in source.cells:
            lines = cell.code.split("\n")
            own = joined.setdefault(self.file_of(cell.file), [""] * len(lines))
            for at, line in enumerate(lines):
                if line.strip() and not (line == OPENING and own[at]):
                    own[at] = line
        for file, lines in joined.items():
            linecache.cache[file] = (len("\n".join(lines)), None, [f"{line}\n" for line in lines], file)

    def namespace(self, file: str) -> dict[str, Any]:
        """The names that a module at this place begins with; from here on its own modules can be imported.

        file: what its code objects call it, where `inspect` looks for the source of its classes.
        """
        at = next((i for i, each in enumerate(sys.path) if each in _packages()), len(sys.path))
        for folder in self.folders:
            if str(folder) not in sys.path:
                # after Python's own modules, which a random.py of the person's must not replace
                sys.path.insert(at, str(folder))
        module = types.ModuleType(self.module)
        sys.modules[self.module] = module
        module.__package__ = self.package
        module.__file__ = file
        return vars(module)

    def own_files(self, source: Source) -> tuple[dict[str, str], dict[str, str]]:
        """What the person calls each of their files that has been run, and the texts of those that were imported."""
        spoken = {self.file_of(said): said for said in source.texts}
        imported = own_modules(self.folders, is_absolute=Path(self.said).is_absolute())
        more = {file: said for file, said in imported.items() if file not in spoken}
        return spoken | more, {said: "".join(linecache.getlines(file)) for file, said in more.items()}


def own_modules(folders: Sequence[Path], *, is_absolute: bool = False) -> dict[str, str]:
    """The files in some folders, but in no library, that have been imported, and what the person calls each of them."""
    here = started_in().resolve()
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_library(file):
            continue
        if any(Path(file).is_relative_to(folder) for folder in folders):
            is_here = not is_absolute and Path(file).is_relative_to(here)
            found[file] = str(Path(file).relative_to(here)) if is_here else file
    return found


def place_of(target: Target) -> Place:
    """Where a target lies. Folders around it that are packages, or that its relative imports reach, are its package."""
    file = target.file.resolve()
    if target.kind != "python":
        return Place(file, target.path, _name(file), "", (file.parent,))
    parts: list[str] = []
    folder = file.parent
    deep = _levels(file)
    while (folder / "__init__.py").is_file() or len(parts) < deep:
        if folder == folder.parent:
            break
        parts.insert(0, folder.name)
        folder = folder.parent
    folders = (file.parent, folder) if parts else (file.parent,)
    package = ".".join(parts)
    name = f"{package}.{_name(file)}" if package else _name(file)
    return Place(file, target.path, name, package, folders)


def _levels(file: Path) -> int:
    """How many folders up the relative imports of a file reach; 0 where it has none."""
    try:
        tree = parsed(text_of(file, file.name, is_python=True))
    except (SyntaxError, Refusal):
        return 0
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


def _name(file: Path) -> str:
    # not the file's own name, by which the code of a neighbour may import the whole of it
    return f"headwise_target_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}"


def _packages() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths["purelib"], paths["platlib"]}
