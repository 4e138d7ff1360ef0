"""Child: what the child process does to examine what a person named, and answers as plain data."""

from __future__ import annotations

import warnings
from typing import Any

from headwise.diagnosis.diagnosing import diagnosed
from headwise.errors import InputError
from headwise.recording.targets import load, parse, read
from headwise.wording import Refusal

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The diagnosis of a request: {"target", "init", "call", "lang"} -> {"diagnosis", "texts"} or {"refused"}."""
    lang = str(request.get("lang", "en"))
    try:
        target = parse(str(request["target"]))
        source = read(target)
        loaded = load(target, source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = diagnosed(
                loaded.object,
                title=f"{target.path}:{target.name}",
                namespace=loaded.namespace,
                files=loaded.spoken,
                init=request.get("init"),
                call=request.get("call"),
                lang=lang,
            )
    except InputError as error:
        return {"refused": error.said(lang) if isinstance(error, Refusal) else str(error)}
    return {"diagnosis": found.to_dict(), "texts": dict(source.texts)}
