"""The import arrow as data, and the reading of a source's imports, lazy and relative ones too."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headwise import _HOME

SRC = Path(__file__).parents[1] / "src" / "headwise"

# a part may import from itself and from the parts before it
ORDER = (
    "errors",
    "lazy_names",
    "wording",
    "atomic_write",
    "shapes",
    "masks",
    "positions",
    "ops",
    "maps",
    "layer",
    "compat",
    "watching",
    "analysis",
    "distributed",
    "intervening",
    "source",
    "targets",
    "recording",
    "calls",
    "dataflow",
    "tracing",
    "diagnosis",
    "pages",
    "cli",
)
# outside the arrow, and imported by no part: helpers for other people's tests, and python -m headwise
FREE = {"testing": frozenset(ORDER) - {"pages", "cli"}, "__main__": frozenset(ORDER)}


def wrong_ways(root: Path = SRC) -> list[str]:
    """One sentence for each import under root that goes against the arrow."""
    found = []
    for file in sorted(root.rglob("*.py")):
        parts = ("headwise", *file.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        # the table of public names points everywhere: that is its work
        if module != "headwise":
            found += wrong_imports(file.read_text(encoding="utf-8"), module, is_package=is_package)
    return found


def wrong_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """One sentence for each import of the source that goes against the arrow."""
    own = module.split(".")[1]
    if own not in ORDER and own not in FREE:
        return [f"{module} is in no part of the arrow: put {own} into tests/arrow.py"]
    allowed = FREE[own] | {own} if own in FREE else set(ORDER[: ORDER.index(own) + 1])
    package = module if is_package else module.rpartition(".")[0]
    found = []
    for line, name in _imported(ast.parse(source), package):
        part = _part(name)
        if part not in allowed:
            found.append(
                f"{module}, line {line}: imports {name}, but {own} must not import {part or 'all of headwise'}"
            )
    return found


def _part(name: str) -> str:
    """The part that a dotted name in headwise belongs to; nothing for the package as a whole."""
    first = name.split(".")[1] if "." in name else ""
    # the version is no part's: a file that reads it imports nothing
    return "errors" if first == "__version__" else _HOME.get(first, first.strip("*"))


def _imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """The line and dotted name of each import of headwise: statements, and names in strings that could be imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = _names_from(node, package)
        elif isinstance(node, ast.Call):
            names = _names_of_relative_call(node, package)
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            names = _names_in_string(node)
        else:
            continue
        yield from ((node.lineno, name) for name in names if name == "headwise" or name.startswith("headwise."))


def _absolute(name: str, level: int, package: str) -> str:
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])]) if level else name


def _names_from(node: ast.ImportFrom, package: str) -> list[str]:
    base = _absolute(node.module or "", node.level, package)
    return [f"headwise.{alias.name}" for alias in node.names] if base == "headwise" else [base]


def _names_of_relative_call(node: ast.Call, package: str) -> list[str]:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called != "import_module" or not node.args or not isinstance(node.args[0], ast.Constant):
        return []
    name = str(node.args[0].value)
    level = len(name) - len(name.lstrip("."))
    return [_absolute(name[level:], level, package)] if level else []


def _names_in_string(node: ast.Constant | ast.JoinedStr) -> list[str]:
    if isinstance(node, ast.JoinedStr):
        # f"headwise.cli.{name}" stays in cli, f"headwise.{name}" may go anywhere
        start = node.values[0].value if node.values and isinstance(node.values[0], ast.Constant) else ""
        return [str(start).rstrip(".")] if re.fullmatch(r"headwise\.([a-z_]+\.)*", str(start)) else []
    text = node.value if isinstance(node.value, str) else ""
    is_path = re.fullmatch(r"headwise(\.\w+)+", text) and _part(text) in {*ORDER, *FREE}
    return [text] if is_path else []
