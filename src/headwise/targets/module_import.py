"""Module import: the object of a target in an importable module."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from headwise.errors import AttentionError
from headwise.targets.child.command import started_in
from headwise.targets.loaded_target import Loaded, attribute, not_run, unnamed
from headwise.targets.locations import user_modules
from headwise.targets.source_file import Source
from headwise.targets.target import Target
from headwise.wording import refusal

__all__ = ["file_of_module", "imported"]


def imported(target: Target, source: Source) -> Loaded:
    """The object of a target of the kind "module". Its file is the one that defines the object."""
    if not target.name:
        raise unnamed(target, source)
    file, root = str(file_of_module(target.path) or ""), target.name.partition(".")[0]
    try:
        module = importlib.import_module(target.path)
        # a package may load its names lazily
        lazy = {root: getattr(module, root)} if hasattr(module, root) else {}
    except ModuleNotFoundError as error:
        missing = str(error.name)
        raise refusal("refuse.target_package", name=missing, package=missing.partition(".")[0]) from error
    except AttentionError:
        raise
    except Exception as error:
        raise not_run(error, target, file, 1) from error
    value = attribute({**vars(module), **lazy}, target, source)
    home = sys.modules.get(getattr(value, "__module__", None) or target.path, module)
    home_file = getattr(home, "__file__", None) or ""
    top = Path(home_file).parents[home.__name__.count(".")] if home_file else Path()
    spoken = user_modules((top,)) if home_file else {}
    if home_file.endswith(".py"):
        spoken |= {home_file: target.path if home is module else home.__name__}
    texts = {name: "".join(linecache.getlines(each)) for each, name in spoken.items()}
    return Loaded(value, dict(vars(home)), tuple(spoken), spoken, (), replace(source, texts=source.texts | texts))


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
