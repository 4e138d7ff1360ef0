"""Script: the script of the page, joined from its modules in assets/source."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

__all__ = ["joined", "script"]

IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([a-z]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const |let |class |function |async )", re.MULTILINE)
NAMED = re.compile(r"^(?:const|let|class|function|async function) ([A-Za-z_$][\w$]*)", re.MULTILINE)
NOTE = "// Joined from headwise/pages/assets/source/*.js.\n"


@cache
def script() -> str:
    """The script as a page holds it."""
    return joined(files("headwise.pages").joinpath("assets", "source"))


def joined(folder: Traversable) -> str:
    """All modules that main.js needs as one script, each after those that it imports from.

    ValueError: they import in a circle, or use a form that is not known here, or a name stands in two of them.
    """
    texts: dict[str, str] = {}
    _visit(folder, "main.js", texts, [])
    bodies = {name: EXPORT.sub("", IMPORT.sub("", text)) for name, text in texts.items()}
    _check(bodies)
    parts = (f"// {name}\n{body.strip()}\n" for name, body in bodies.items())
    return NOTE + '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _visit(folder: Traversable, name: str, texts: dict[str, str], above: list[str]) -> None:
    if name in above:
        raise ValueError(f"modules must not import in a circle, but these do: {above}")
    if name in texts:
        return
    text = folder.joinpath(name).read_text(encoding="utf-8")
    for _, imported in IMPORT.findall(text):
        _visit(folder, imported, texts, [*above, name])
    texts[name] = text


def _check(bodies: dict[str, str]) -> None:
    """In one script every name at the top is seen by all modules, so that none may stand twice."""
    owners: dict[str, str] = {}
    for file, body in bodies.items():
        left = re.search(r"^(import|export)\b.*", body, re.MULTILINE)
        if left:
            raise ValueError(f"{file}: {left[0]!r} is a form that cannot be joined: import names, export declarations")
        for name in NAMED.findall(body):
            if name in owners:
                raise ValueError(f"{name} stands in {owners[name]} and in {file}: give one another name")
            owners[name] = file
