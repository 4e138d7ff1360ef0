"""README's file map and drawing of the arrow; python -m tests.filemap --write renews them in both READMEs."""

import ast
import sys
import textwrap
from pathlib import Path

from tests.arrow import ORDER, SRC
from tests.fences import replace_marked

ROOT = SRC.parents[1]
READMES = ("README.md", "README.zh.md")


def file_map(root: Path = SRC) -> str:
    """One line for each source file, in the order of the arrow: its path and the first line of its docstring."""
    files = sorted(root.rglob("*.py"), key=lambda file: _place(file.relative_to(root)))
    names = [file.relative_to(root).as_posix() for file in files]
    width = max(map(len, names))
    return "".join(f"{name:{width}}  {_first_line(file)}\n" for name, file in zip(names, files, strict=True))


def drawn_arrow() -> str:
    """The arrow in lines that a README can hold."""
    return textwrap.fill(" → ".join(ORDER), width=100, break_long_words=False, break_on_hyphens=False) + "\n"


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
    """Print the map, or write it and the arrow into the READMEs."""
    if sys.argv[1:] != ["--write"]:
        print(file_map(), end="")
        return
    for name in READMES:
        readme = ROOT / name
        text = readme.read_text(encoding="utf-8")
        text = replace_marked(text, "arrow", drawn_arrow())
        readme.write_text(replace_marked(text, "file map", file_map()), encoding="utf-8")


if __name__ == "__main__":
    main()
