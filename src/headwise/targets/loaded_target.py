"""Loaded target: what loading a target gives."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from headwise.targets.source_file import Source
from headwise.targets.target import Target
from headwise.wording import Refusal, refusal

__all__ = ["Loaded", "attribute", "no_name", "not_run", "unnamed"]

WORDS = 300


@dataclass(frozen=True)
class Loaded:
    """What was loaded. namespace: of its file; files: what its code objects call the person's own files.

    spoken: what the person calls each of these; supplied: names that the code uses and that headwise gave; source:
    what was read, with the texts of own files that were imported. early: where names that were given are read as it is
    loaded; form: "file", "open" or "fragment", as `form_of` says.
    """

    object: Any
    namespace: dict[str, Any]
    files: tuple[str, ...]
    spoken: dict[str, str]
    supplied: tuple[str, ...]
    source: Source
    early: Mapping[str, tuple[str, ast.Name]] = field(default_factory=dict)
    form: str = "open"


def attribute(namespace: Mapping[str, Any], target: Target, source: Source) -> Any:
    """What the dotted name of a target is in a namespace."""
    root, *inner = target.name.split(".")
    if root not in namespace:
        raise no_name(target, source, namespace)
    value = namespace[root]
    for name in inner:
        if not hasattr(value, name):
            raise no_name(target, source, namespace)
        value = getattr(value, name)
    return value


def no_name(target: Target, source: Source, namespace: Mapping[str, Any] | None = None) -> Refusal:
    """That a target has no such name, with the names like it, and those it defines."""
    names = [each.name for each in source.definitions]
    if not names and not namespace:
        return _nothing(target)
    values = {"path": target.path, "name": target.name, "known": _listed(names)}
    near = difflib.get_close_matches(target.name, {*names, *(namespace or ())}, n=3, cutoff=0.6)
    if near:
        return refusal("refuse.target_near", near=", ".join(near), **values)
    return refusal("refuse.target_no_name", **values)


def _nothing(target: Target) -> Refusal:
    """That a target defines nothing: of a note, that no code was found in it."""
    if target.kind == "note":
        return refusal("refuse.target_no_code", path=target.path)
    return refusal("refuse.target_no_definition", path=target.path)


def unnamed(target: Target, source: Source) -> Refusal:
    """That a target names a whole file where one thing in it is meant."""
    names = [each.name for each in source.definitions]
    if not names:
        return _nothing(target)
    return refusal("refuse.target_unnamed", path=target.path, known=_listed(names), first=names[0])


def not_run(error: BaseException, target: Target, file: str, line: int) -> Refusal:
    """That a line of a target raised an error as it was loaded. line: where none of the file is in the traceback."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    text = " ".join(f"{type(error).__name__}: {error}".split())[:WORDS]
    return refusal("refuse.target_not_run", path=target.path, name=target.name, line=line, error=text)


def _listed(names: Sequence[str]) -> str:
    most = 20
    return ", ".join(names[:most]) + (f" … ({len(names)})" if len(names) > most else "") if names else "–"
