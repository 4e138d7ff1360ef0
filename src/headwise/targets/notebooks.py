"""Notebooks: the code cells of an .ipynb file, of format 3 or 4."""

from __future__ import annotations

import json
from typing import Any

from headwise.targets.magics import without_magics
from headwise.targets.source_file import Cell, parsed
from headwise.wording import refusal

__all__ = ["cells_of_notebook"]


def cells_of_notebook(path: str, text: str) -> tuple[dict[str, str], tuple[Cell, ...]]:
    """The texts and the cells of a notebook: "BOOK.ipynb[3]" is its third code cell, as a fresh run numbers them.

    Notebook commands (% and !) become empty lines; cells of another language (%%bash) and invalid cells are left out.
    """
    try:
        book = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise refusal("refuse.target_notebook", path=path, reason=error) from error
    texts: dict[str, str] = {}
    cells: list[Cell] = []
    for number, code in enumerate(_codes(book), 1):
        name = f"{path}[{number}]"
        texts[name] = code
        python = without_magics(code)
        try:
            parsed(python)
        except SyntaxError:
            continue
        cells.append(Cell(name, python))
    if not texts:
        raise refusal("refuse.target_notebook", path=path, reason="no code cell")
    return texts, tuple(cells)


def _codes(book: Any) -> list[str]:
    if not isinstance(book, dict):
        return []
    cells = book.get("cells")
    if cells is None:
        # format 3 has sheets of cells
        cells = [cell for sheet in book.get("worksheets") or [] for cell in sheet.get("cells") or []]
    codes = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", cell.get("input", ""))
            code = "".join(map(str, source)) if isinstance(source, list) else str(source)
            if code.strip():
                codes.append(code.replace("\r\n", "\n"))
    return codes
