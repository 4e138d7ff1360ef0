"""Notebooks: the code cells of an .ipynb file, of format 3 or 4, and the Python in cells and sessions of IPython."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from headwise.targets.source_file import Cell, parsed
from headwise.wording import refusal

__all__ = ["cells_of_notebook", "without_magics", "without_prompts"]

# %matplotlib inline, !pip install, ?print, print?, files = !ls
MAGIC = re.compile(r"\s*(?:[%!?]|[\w.]+\?{1,2}\s*$|[\w, ]+=\s*[%!])")
# cell magics of another language; these exceptions hold Python
OTHER = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
MOST = 200


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


def without_magics(code: str) -> str:
    """The code with notebook commands left empty; "" for a cell in another language.

    Only a line with a syntax error counts as a command: a continuation line that begins with % stays.
    """
    if OTHER.match(code):
        return ""
    for _ in range(MOST):
        try:
            parsed(code)
        except SyntaxError as error:
            lines = code.split("\n")
            at = (error.lineno or 0) - 1
            if not (0 <= at < len(lines) and MAGIC.match(lines[at])):
                return code
            lines[at] = ""
            code = "\n".join(lines)
        else:
            return code
    return code


def without_prompts(lines: Sequence[str]) -> list[str]:
    """The code of an interactive session: prompts become blanks, printed lines become empty."""
    if not next((line for line in lines if line.strip()), "").lstrip().startswith(">>>"):
        return list(lines)
    return [
        re.sub(r"^(\s*)(>>>|\.\.\.) ?", lambda m: " " * len(m[0]), line) if re.match(r"\s*(>>>|\.\.\.)", line) else ""
        for line in lines
    ]
