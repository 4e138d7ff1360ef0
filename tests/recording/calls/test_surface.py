"""Other packages take from `recording.calls` only what it makes public."""

import ast
from pathlib import Path

from headwise.recording import calls

SOURCE = Path(calls.__file__).parents[2]


def imported():
    """(file, module, name) of every name that other packages import from `recording.calls` or from below it."""
    for file in sorted(SOURCE.rglob("*.py")):
        if file.is_relative_to(SOURCE / "recording" / "calls"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headwise.recording.calls"):
                yield from ((file.relative_to(SOURCE).as_posix(), node.module, each.name) for each in node.names)


def test_other_packages_import_calls_by_its_own_name():
    below = [each for each in imported() if each[1] != "headwise.recording.calls"]
    assert below == []


def test_every_name_that_is_imported_is_public():
    names = {name for _, _, name in imported()}
    assert names
    assert names <= set(calls.__all__)
    assert calls.__all__ == sorted(calls.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
