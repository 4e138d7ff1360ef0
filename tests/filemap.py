"""The file map, docs/files.md, and the drawings of the arrow; python -m tests.filemap --write renews them."""

import ast
import sys
import textwrap
from itertools import groupby
from pathlib import Path

from tests.arrow import ORDER, SRC
from tests.fences import replace_marked

ROOT = SRC.parents[1]
READMES = ("README.md", "README.zh.md")
# where the arrow is drawn
ARROWS = (*READMES, "docs/built.md", "docs/built.zh.md")
MAP = ROOT / "docs" / "files.md"
HEAD = """# The files of headwise

Every source file, by its first line, in the order of the arrow: each part imports only from those above it. Written by
`python -m tests.filemap --write`.
"""


def file_map(root: Path = SRC) -> str:
    """The document: a section for each part, a line for each of its files: its path and the first line of its text."""
    files = sorted(root.rglob("*.py"), key=lambda file: _place(file.relative_to(root)))
    parts = groupby(files, key=lambda file: _part(file.relative_to(root)))
    return HEAD + "".join(f"\n## {part}\n\n{_section(list(of_part), root)}" for part, of_part in parts)


def _section(files: list[Path], root: Path) -> str:
    return "".join(f"- `{file.relative_to(root).as_posix()}`: {_first_line(file)}\n" for file in files)


def drawn_arrow() -> str:
    """The arrow in lines that a README can hold."""
    return textwrap.fill(" → ".join(ORDER), width=100, break_long_words=False, break_on_hyphens=False) + "\n"


def _part(path: Path) -> str:
    part = path.parts[0].removesuffix(".py")
    return "headwise" if part == "__init__" else part


def _place(path: Path) -> tuple[int, bool, str]:
    part = path.parts[0].removesuffix(".py")
    order = ("__init__", *ORDER)
    # a package's own file comes before the files in it
    return order.index(part) if part in order else len(order), path.name != "__init__.py", path.as_posix()


def _first_line(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"{file} must begin with a docstring: the file map quotes its first line")
    return docstring.splitlines()[0]


def main() -> None:
    """Print the map, or write it, and the arrow into the pages that draw it."""
    if sys.argv[1:] != ["--write"]:
        print(file_map(), end="")
        return
    for name in ARROWS:
        page = ROOT / name
        page.write_text(replace_marked(page.read_text(encoding="utf-8"), "arrow", drawn_arrow()), encoding="utf-8")
    MAP.write_text(file_map(), encoding="utf-8")


if __name__ == "__main__":
    main()
