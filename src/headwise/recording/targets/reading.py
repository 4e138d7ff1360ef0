"""Reading: the source of a target, by its syntax alone: nothing is run or imported."""

from __future__ import annotations

from headwise.recording.targets.magics import without_magics
from headwise.recording.targets.modules import file_of_module
from headwise.recording.targets.notebooks import cells_of_notebook
from headwise.recording.targets.notes import cells_of_note, fault_of_note
from headwise.recording.targets.source import Cell, Source, definitions, parsed
from headwise.recording.targets.target import Target
from headwise.recording.targets.texts import text_of
from headwise.wording import Refusal, refusal

__all__ = ["read"]


def read(target: Target) -> Source:
    """The source of a target; a Refusal says why it cannot be read, or where it is no Python."""
    if target.kind == "module":
        file = file_of_module(target.path)
        if file is None:
            return Source(target.path, {}, (), ())
        text = text_of(file, target.path, is_python=True)
        return _source(target, {target.path: text}, (_python_cell(target.path, text),))
    text = text_of(target.file, target.path, is_python=target.kind == "python")
    if target.kind == "notebook":
        return _source(target, *cells_of_notebook(target.path, text))
    if target.kind == "python":
        return _source(target, {target.path: text}, (_python_cell(target.path, text),))
    found = _source(target, {target.path: text}, cells_of_note(target.path, text, target.name))
    root = target.name.partition(".")[0]
    if root and all(each.name != root for each in found.definitions):
        fault = fault_of_note(text, root)
        if fault is not None:
            raise _no_python(target.path, fault)
    return found


def _source(target: Target, texts: dict[str, str], cells: tuple[Cell, ...]) -> Source:
    return Source(target.path, texts, cells, definitions(cells))


def _python_cell(path: str, text: str) -> Cell:
    try:
        parsed(text)
    except SyntaxError as error:
        without = without_magics(text)
        try:
            parsed(without)
        except SyntaxError:
            raise _no_python(path, error) from error
        return Cell(path, without)
    return Cell(path, text)


def _no_python(path: str, error: SyntaxError) -> Refusal:
    if error.lineno is None:
        return refusal("refuse.target_deep", path=path)
    return refusal("refuse.target_syntax", path=path, line=error.lineno, column=error.offset or 1, reason=error.msg)
