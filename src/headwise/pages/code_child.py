"""Code child: what the child process does to watch user code, answered as plain data."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.pages.code_call import watched_call
from headwise.targets import load, parse, read
from headwise.wording import Refusal

__all__ = ["answer"]

# within the folder of the child
MAPS = Path("maps.safetensors")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The maps of one call: {"target", "init", "call", "lang"} -> {"maps", "unseen", "sizes", "init", "call"}.

    "maps" is a file of maps in base64, "" where none was seen. What cannot be run is {"refused": a sentence}.
    """
    lang, title = str(request.get("lang", "en")), str(request["target"])
    try:
        target = parse(title)
        loaded = load(target, read(target))
        watched = watched_call(
            loaded.object, title=title, namespace=loaded.namespace, files=tuple(loaded.spoken),
            init=request.get("init"), call=request.get("call"),
        )  # fmt: skip
        if len(watched.maps):
            watched.maps.save(MAPS)
        return {
            "maps": base64.b64encode(MAPS.read_bytes()).decode() if len(watched.maps) else "",
            "unseen": watched.unseen,
            "sizes": dict(watched.sizes),
            "init": dict(watched.plan.init),
            "call": dict(watched.plan.call),
        }
    except InputError as error:
        return {"refused": error.said(lang) if isinstance(error, Refusal) else str(error)}
