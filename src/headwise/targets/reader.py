"""Reader: the source of a target, without running or importing any of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headwise.targets.markdown import cells_of_note, fault_of_note
from headwise.targets.module_import import file_of_module
from headwise.targets.notebooks import cells_of_notebook, without_magics
from headwise.targets.source_file import Cell, Source, checked, definitions, no_python
from headwise.targets.target import Target
from headwise.targets.text_files import text_of

__all__ = ["python_of", "read"]


def read(target: Target) -> Source:
    """The source of a target. Errors: Refusal where it cannot be read, or where it is no Python."""
    if target.kind == "module":
        file = file_of_module(target.path)
        if file is None:
            return Source(target.path, {}, (), ())
        text = text_of(file, target.path, is_python=True)
        return _source(target, {target.path: text}, (_python_cell(target.path, text),))
    text = text_of(target.file, target.path, is_python=target.kind == "python")
    if target.kind == "notebook":
        source = _source(target, *cells_of_notebook(target.path, text))
        _check_cells(source, target.name.partition(".")[0])
        return source
    if target.kind == "python":
        return _source(target, {target.path: text}, (_python_cell(target.path, text),))
    source = _source(target, {target.path: text}, cells_of_note(target.path, text, target.name))
    root = target.name.partition(".")[0]
    if root and all(definition.name != root for definition in source.definitions):
        fault = fault_of_note(text, root)
        if fault is not None:
            raise no_python(target.path, fault)
    return source


def python_of(target: Target, texts: Mapping[str, str]) -> str:
    """The Python of a target with the given texts, which may be changed ones."""
    if target.kind == "notebook":
        return _joined(without_magics(text) for name, text in texts.items() if name.startswith(f"{target.path}["))
    if target.kind == "note":
        return _joined(cell.code for cell in cells_of_note(target.path, texts[target.path], target.name))
    return texts[target.path]


def _joined(codes: Iterable[str]) -> str:
    return "\n\n\n".join(code.strip("\n") for code in codes if code.strip()) + "\n"


def _source(target: Target, texts: dict[str, str], cells: tuple[Cell, ...]) -> Source:
    return Source(target.path, texts, cells, definitions(cells))


def _python_cell(path: str, text: str) -> Cell:
    try:
        checked(text)
    except SyntaxError as error:
        without = without_magics(text)
        try:
            checked(without)
        except SyntaxError:
            raise no_python(path, error) from error
        return Cell(path, without)
    return Cell(path, text)


def _check_cells(source: Source, name: str) -> None:
    """Refuse a cell with the definition of a name that is no Python."""
    if name and all(definition.name != name for definition in source.definitions):
        for file, text in source.texts.items():
            if re.search(rf"^\s*(?:class|def)\s+{re.escape(name)}\b", text, re.MULTILINE):
                try:
                    checked(without_magics(text))
                except SyntaxError as error:
                    raise no_python(file, error) from error
