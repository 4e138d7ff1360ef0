"""The notebooks of the tutorials, made of their pages and run; python -m tests.notebooks --write renews them.

A tutorial is a page of text with blocks of Python, in English and in Chinese. Its notebook has a cell for each piece of
text and each block, and the outputs of a run.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from tests.examples import ROOT

FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SWITCH = re.compile(r"^\[(?:中文|English)\]\(.*\)$", re.MULTILINE)
# figures are drawn into the notebook, and nothing is downloaded
VARIABLES = {
    "PYTHONWARNINGS": "ignore:IProgress not found",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def pages() -> list[Path]:
    """Every tutorial, in both languages."""
    return sorted(FOLDER.glob("[0-9]-*.md"))


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a page: ("markdown" or "code", what it holds)."""
    pieces = BLOCK.split(SWITCH.sub("", text))
    kinds = ("markdown", "code")
    return [(kinds[n % 2], piece.strip("\n")) for n, piece in enumerate(pieces) if piece.strip()]


def notebook(page: Path) -> dict:
    """The notebook of a page, run in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.v4.new_notebook(metadata=METADATA)
    for number, (kind, text) in enumerate(cells(page.read_text(encoding="utf-8"))):
        new = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        made.cells.append(new(text, id=f"cell-{number}"))
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, VARIABLES):
        # how often a kernel hands over what a cell prints depends on how busy the machine is
        options = {"timeout": 120, "kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
        NotebookClient(made, resources={"metadata": {"path": folder}}, **options).execute()
    # as the client found the kernel: what differs from machine to machine
    made.metadata = nbformat.from_dict(METADATA)
    return made


def said(run: dict) -> list[str]:
    """What the cells of a notebook print, but for the digits behind the point, which differ from CPU to CPU."""
    texts = []
    for cell in run["cells"]:
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
            texts.append(re.sub(r"\d+\.\d+(e[+-]\d+)?", "#", text))
    return texts


def main() -> None:
    """Run every notebook, and write it where that is asked for."""
    import nbformat

    for page in pages():
        run = notebook(page)
        if sys.argv[1:2] == ["--write"]:
            nbformat.write(run, page.with_suffix(".ipynb"))
        print(f"{page.name}: {len(run.cells)} cells", flush=True)


if __name__ == "__main__":
    main()
