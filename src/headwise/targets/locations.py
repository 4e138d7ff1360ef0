"""Locations: the file, folders and package of a target, and the names of its code objects."""

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

__all__ = ["Location", "user_modules", "location_of"]


@dataclass(frozen=True)
class Location:
    """The location of a target. file: the full path; path: as the user wrote it. module: the name that its code runs
    under, package: its package, or "". folders: of its neighbour modules.
    """

    file: Path
    path: str
    module: str
    package: str
    folders: tuple[Path, ...]

    def file_of(self, path: str) -> str:
        """The file name for code objects of a file of Source.texts: the full path, and "…/BOOK.ipynb[3]" for a cell."""
        return f"{self.file}{path.removeprefix(self.path)}"

    def remember(self, source: Source) -> None:
        """Put the lines of the code into linecache, for tracebacks and spans."""
        joined: dict[str, list[str]] = {}
        for cell in source.cells:
            lines = cell.code.split("\n")
            merged = joined.setdefault(self.file_of(cell.file), [""] * len(lines))
            for at, line in enumerate(lines):
                if line.strip() and not (line == OPENING and merged[at]):
                    merged[at] = line
        for file, lines in joined.items():
            linecache.cache[file] = (len("\n".join(lines)), None, [f"{line}\n" for line in lines], file)

    def namespace(self, file: str) -> dict[str, Any]:
        """The namespace of a new module at this location, whose neighbour modules can be imported from now on.

        file: the file name of its code objects, where `inspect` looks for the source of its classes.
        """
        at = next((i for i, each in enumerate(sys.path) if each in _packages()), len(sys.path))
        for folder in self.folders:
            if str(folder) not in sys.path:
                # after the standard library, which a user's random.py must not shadow
                sys.path.insert(at, str(folder))
        module = types.ModuleType(self.module)
        sys.modules[self.module] = module
        module.__package__ = self.package
        module.__file__ = file
        return vars(module)

    def user_files(self, source: Source) -> tuple[dict[str, str], dict[str, str]]:
        """The display name of each user file that has run, and the texts of those that were imported."""
        spoken = {self.file_of(path): path for path in source.texts}
        imported = user_modules(self.folders, is_absolute=Path(self.path).is_absolute())
        modules = {file: path for file, path in imported.items() if file not in spoken}
        return spoken | modules, {path: "".join(linecache.getlines(file)) for file, path in modules.items()}


def user_modules(folders: Sequence[Path], *, is_absolute: bool = False) -> dict[str, str]:
    """The imported modules in some folders, without libraries: the display name of each file."""
    here = started_in().resolve()
    names = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_library(file):
            continue
        if any(Path(file).is_relative_to(folder) for folder in folders):
            is_here = not is_absolute and Path(file).is_relative_to(here)
            names[file] = str(Path(file).relative_to(here)) if is_here else file
    return names


def location_of(target: Target) -> Location:
    """The location of a target. Parent folders that are packages, or that relative imports reach, are its package."""
    file = target.file.resolve()
    if target.kind != "python":
        return Location(file, target.path, _name(file), "", (file.parent,))
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
    return Location(file, target.path, name, package, folders)


def _levels(file: Path) -> int:
    """The number of parent folders that the relative imports of a file reach; 0: it has none."""
    try:
        tree = parsed(text_of(file, file.name, is_python=True))
    except (SyntaxError, Refusal):
        return 0
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


def _name(file: Path) -> str:
    # not the stem itself: a neighbour may import the whole file by it
    return f"headwise_target_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}"


def _packages() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths["purelib"], paths["platlib"]}
