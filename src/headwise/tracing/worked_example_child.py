"""Worked example child: runs a target for `headwise steps` in the child process and returns plain data."""

from __future__ import annotations

from typing import Any

from headwise.errors import InputError
from headwise.targets import load, parse, read
from headwise.tracing.child import error_text
from headwise.tracing.entry_point import as_trace, planned
from headwise.tracing.worked_example import worked

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A target's trace and its run: {"target", "init", "call", "lang"} -> {"trace": {...}, "worked": {...}}.

    A failure is {"refused": a sentence}.
    """
    lang = str(request.get("lang", "en"))
    try:
        target = parse(str(request["target"]))
        loaded = load(target, read(target))
        options = {name: request.get(name) for name in ("init", "call", "cross")}
        plan, probe = planned(
            loaded.object, namespace=loaded.namespace, files=loaded.spoken, options=options, lang=lang
        )
        title, texts = f"{target.path}:{target.name}", loaded.source.texts
        trace = as_trace(plan, probe, title=title, texts=texts, supplied=loaded.supplied, lang=lang)
        return {"trace": trace.to_dict(), "worked": worked(plan, trace, files=loaded.spoken)}
    except InputError as error:
        return {"refused": error_text(error, lang)}
