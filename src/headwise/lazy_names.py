"""Lazy names: the public names of a package, each imported from its file when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, home: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package (PEP 562) that import a name when it is first used.

    package: its `__name__`. home: the file below the package that defines each name: {"Plan": "plan"}. modules: files
    or packages below it that are public as a whole. Any other name is an AttributeError.

    Type checkers read the same names from imports under `if TYPE_CHECKING`, and must not see this `__getattr__`, which
    would let any misspelt name pass.
    """

    def load(name: str) -> object:
        if name in home:
            value = getattr(import_module(f"{package}.{home[name]}"), name)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"{package} has no public name {name!r}: dir({package}) lists them all")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted([*home, *modules])

    return load, names
