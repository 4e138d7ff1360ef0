"""Loaded target: the result of loading a target, and the refusals of loading."""

from __future__ import annotations

import ast
import difflib
import inspect
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
    """A loaded target. namespace: of its file; files: the user files, by the names in their code objects.

    spoken: the display name of each of these; supplied: unbound names that headwise defined; source: the text that was
    read, with the imported user files. early: where supplied names are read at loading; form: "file", "open" or
    "fragment", see `form_of`.
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
    """The value of a target's dotted name in a namespace."""
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
    """The refusal of an unknown name, with similar names, or those that the target defines or, a module, exports.

    namespace: None: it was not loaded. Submodules, constants and private names of a module are no candidates.
    """
    names = [definition.name for definition in source.definitions]
    public = [
        name
        for name, value in (namespace or {}).items()
        if inspect.isclass(value) or inspect.isroutine(value)
        if not name.startswith("_")
    ]
    if target.kind == "module":
        names = sorted({*names, *public}, key=str.lower)
    if not names and not public:
        return _nothing(target)
    values = {"path": target.path, "name": target.name, "known": _listed(names)}
    near = difflib.get_close_matches(target.name, {*names, *public}, n=3, cutoff=0.6)
    if near:
        return refusal("refuse.target_near", near=", ".join(near), **values)
    return refusal("refuse.target_no_name", **values)


def _nothing(target: Target) -> Refusal:
    """The refusal of a target without definitions, or of a note without code."""
    if target.kind == "note":
        return refusal("refuse.target_no_code", path=target.path)
    return refusal("refuse.target_no_definition", path=target.path)


def unnamed(target: Target, source: Source) -> Refusal:
    """The refusal of a whole file where one name in it is needed."""
    names = [definition.name for definition in source.definitions]
    if not names:
        return _nothing(target)
    return refusal("refuse.target_unnamed", path=target.path, known=_listed(names), first=names[0])


def not_run(error: BaseException, target: Target, file: str, line: int) -> Refusal:
    """The refusal of a target whose line raised an error at loading. line: where the traceback has none of the file."""
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
