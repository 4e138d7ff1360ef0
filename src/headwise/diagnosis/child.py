"""Child: what the child process does to examine what a person named, and answers as plain data."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.diagnosis.patches.trials import LONG, SHORT, Again, with_patches
from headwise.diagnosis.plans.user_arguments import check_said
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.target_diagnosis import diagnosed
from headwise.errors import InputError
from headwise.source import Edit, applied
from headwise.targets import Loaded, Source, Target, load, parse, read
from headwise.wording import Refusal

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The diagnosis of a request: {"target", "init", "call", "lang"} -> {"diagnosis", "texts"} or {"refused"}."""
    lang = str(request.get("lang", "en"))
    try:
        target = parse(str(request["target"]))
        source = read(target)
        loaded = load(target, source)
        check_said(loaded.object, request.get("init"), request.get("call"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            diagnosis = _diagnosis(target, loaded, request, lang)
            again = _again(target, source, request, lang)
            effort = LONG if request.get("fix") else SHORT
            diagnosis = with_patches(diagnosis, loaded.source.texts, again, effort=effort, lang=lang)
    except InputError as error:
        return {"refused": error.said(lang) if isinstance(error, Refusal) else str(error)}
    return {"diagnosis": diagnosis.to_dict(), "texts": dict(source.texts)}


def _diagnosis(target: Target, loaded: Loaded, request: Mapping[str, Any], lang: str) -> Diagnosis:
    return diagnosed(
        loaded.object,
        title=f"{target.path}:{target.name}",
        namespace=loaded.namespace,
        files=loaded.spoken,
        init=request.get("init"),
        call=request.get("call"),
        lang=lang,
        loaded=loaded,
    )


def _again(target: Target, source: Source, request: Mapping[str, Any], lang: str) -> Again:
    """Loads a target's source in memory, with edits in it, and examines it again."""

    def again(edits: Mapping[str, Sequence[Edit]]) -> Diagnosis | None:
        if target.kind == "module" or not set(edits) <= {cell.file for cell in source.cells}:
            return None
        cells = tuple(replace(cell, code=_edited(cell.code, edits.get(cell.file, ()))) for cell in source.cells)
        lines = dict(linecache.cache)
        try:
            loaded = load(target, replace(source, cells=cells))
            return _diagnosis(target, loaded, request, lang)
        except Exception:  # noqa: BLE001  whatever the mended source raises, it does not help
            return None
        finally:
            linecache.cache.update(lines)

    return again


def _edited(code: str, edits: Sequence[Edit]) -> str:
    """The code of a cell with those edits that are in it: its lines stand at their places, and the others are empty."""
    lines = code.split("\n")
    return applied(code, [edit for edit in edits if edit.line <= len(lines) and lines[edit.line - 1].strip()])
