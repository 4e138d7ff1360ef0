"""Child: traces a target in the child process and returns plain data."""

from __future__ import annotations

from typing import Any

from headwise.errors import InputError
from headwise.targets import Target, load, parse, read
from headwise.tracing.entry_point import traced
from headwise.wording import Refusal

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The traces of a request: {"target", "init", "call", "cross", "aten", "all", "lang"} -> {"traces": [...]}.

    A failure is {"refused": a sentence}; with "all", "refused_each" has the failures by name.
    """
    lang = str(request.get("lang", "en"))
    try:
        target = parse(str(request["target"]))
        if not request.get("all"):
            return {"traces": [_traced(target, request)]}
        source = read(target)
        traces, refused = [], {}
        for definition in source.definitions:
            try:
                traces.append(_traced(Target(target.path, definition.name, target.kind), request))
            except InputError as error:
                refused[definition.name] = error_text(error, lang)
        return {"traces": traces, "refused_each": refused}
    except InputError as error:
        return {"refused": error_text(error, lang)}


def error_text(error: InputError, lang: str) -> str:
    """The text of an error, in a language where it is a Refusal."""
    return error.said(lang) if isinstance(error, Refusal) else str(error)


def _traced(target: Target, request: dict[str, Any]) -> dict[str, Any]:
    source = read(target)
    loaded = load(target, source)
    trace = traced(
        loaded.object,
        title=f"{target.path}:{target.name}",
        namespace=loaded.namespace,
        files=loaded.spoken,
        texts=loaded.source.texts,
        supplied=loaded.supplied,
        init=request.get("init"),
        call=request.get("call"),
        cross=request.get("cross"),
        kernels=bool(request.get("aten")),
        lang=str(request.get("lang", "en")),
    )
    return trace.to_dict()
