"""Child: what the child process does to trace what a person named, and answers as plain data."""

from __future__ import annotations

from typing import Any

from headwise.errors import InputError
from headwise.targets import Target, load, parse, read
from headwise.tracing.entry_point import traced
from headwise.wording import Refusal

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The traces of a request: {"target", "init", "call", "cross", "aten", "all", "lang"} -> {"traces": [...]}.

    What cannot be traced is {"refused": a sentence}; with "all", what of several cannot, by its name.
    """
    lang = str(request.get("lang", "en"))
    try:
        target = parse(str(request["target"]))
        if not request.get("all"):
            return {"traces": [_traced(target, request)]}
        source = read(target)
        traces, refused = [], {}
        for each in source.definitions:
            try:
                traces.append(_traced(Target(target.path, each.name, target.kind), request))
            except InputError as error:
                refused[each.name] = said(error, lang)
        return {"traces": traces, "refused_each": refused}
    except InputError as error:
        return {"refused": said(error, lang)}


def said(error: InputError, lang: str) -> str:
    """An error in a language, where it can be said in several."""
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
