"""Module files: where an installed module lies, found without importing it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from headwise.targets.child.command import started_in
from headwise.wording import refusal

__all__ = ["file_of_module"]


def file_of_module(module: str) -> Path | None:
    """The file of a module's source; None where it has none. A module that is not there is a Refusal."""
    spec = _spec_of(module)
    if spec is None:
        raise refusal("refuse.target_module", module=module)
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _spec_of(module: str) -> ModuleSpec | None:
    """What is known of a module, None where there is none; no parent of it is imported."""
    _with_folder()
    first, *rest = module.split(".")
    # one that is loaded already may have changed what it says of itself
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
    """Let modules be found in the folder where the person is, after all others."""
    folder = str(started_in())
    if folder not in sys.path:
        sys.path.append(folder)
