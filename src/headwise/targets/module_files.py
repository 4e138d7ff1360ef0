"""Module files: the file of a module, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from headwise.targets.child.command import started_in
from headwise.wording import refusal

__all__ = ["file_of_module"]


def file_of_module(module: str) -> Path | None:
    """The source file of a module; None: it has none. Errors: Refusal for a missing module."""
    spec = _spec_of(module)
    if spec is None:
        raise refusal("refuse.target_module", module=module)
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _spec_of(module: str) -> ModuleSpec | None:
    """The spec of a module; None: there is no such module. No parent package is imported."""
    _with_folder()
    first, *rest = module.split(".")
    # a loaded module may have changed its own spec
    spec = PathFinder.find_spec(first)
    if spec is None:
        try:
            spec = importlib.util.find_spec(first)
        except (ImportError, ValueError):
            return None
    name = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _with_folder() -> None:
    """Add the working folder of the user to the end of the search path."""
    folder = str(started_in())
    if folder not in sys.path:
        sys.path.append(folder)
