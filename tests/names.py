"""The names that a source binds, read by ast: variables, parameters, functions, classes and attributes, by scope."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

# words that say nothing of what they name; `each` may stand in a comprehension of one line
FILLERS = frozenset(
    {
        "done", "each", "found", "given", "held", "known", "made", "one", "other", "own", "said", "seen", "theirs",
        "then", "told", "what",
    }
)  # fmt: skip
# attributes of public classes, which stay
PUBLIC = frozenset(
    {
        ".Used.theirs",
        ".Check.found",
        ".Report.said",
        ".KVCache.seen",
        ".Symbol.said",
        ".Comment.said",
        ".NamedAxis.said",
        ".Shape.said",
    }
)


class Binding(NamedTuple):
    """A name bound in a scope, at the line where it is bound first. is_brief: in a comprehension of one line."""

    scope: str
    name: str
    line: int
    is_brief: bool


@cache
def bindings(source: str) -> tuple[Binding, ...]:
    """Every name of a source, once in each scope that binds it."""
    first: dict[tuple[str, str], Binding] = {}
    for binding in _bound(ast.parse(source), "", is_brief=False):
        earlier = first.setdefault((binding.scope, binding.name), binding)
        if earlier.is_brief and not binding.is_brief:
            first[binding.scope, binding.name] = binding
    return tuple(first.values())


def fillers(source: str) -> list[Binding]:
    """The bindings of a source that say nothing of what they name."""
    return [binding for binding in bindings(source) if _is_filler(binding)]


def share(sources: list[str]) -> float:
    """The percentage of fillers among all names of the sources, 0 where there are none."""
    count = sum(len(bindings(source)) for source in sources)
    return 100 * sum(len(fillers(source)) for source in sources) / max(count, 1)


def homes(files: list[Path]) -> dict[str, list[Path]]:
    """Each name of a class at the top of a file, and the files that define it."""
    named: dict[str, list[Path]] = {}
    for file in files:
        for name in _classes(file.read_text(encoding="utf-8")):
            named.setdefault(name, []).append(file)
    return named


@cache
def _classes(source: str) -> tuple[str, ...]:
    return tuple(node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef))


def _is_filler(binding: Binding) -> bool:
    name = binding.name.strip("_")
    # __eq__(self, other): so it is written everywhere
    is_operand = name == "other" and binding.scope.rpartition(".")[2].startswith("__")
    is_allowed = is_operand or (name == "each" and binding.is_brief) or f"{binding.scope}.{binding.name}" in PUBLIC
    return name in FILLERS and not is_allowed


def _bound(node: ast.AST, scope: str, *, is_brief: bool) -> Iterator[Binding]:
    for child in ast.iter_child_nodes(node):
        inner, brief = scope, is_brief
        name = _name(child)
        if name is not None:
            yield Binding(scope, name, getattr(child, "lineno", 1), is_brief)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}.{child.name}"
        elif isinstance(child, ast.Lambda):
            inner = f"{scope}.lambda{child.lineno}:{child.col_offset}"
        elif isinstance(child, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            brief = child.lineno == child.end_lineno
        yield from _bound(child, inner, is_brief=brief)


def _name(node: ast.AST) -> str | None:
    """The name that a node binds; None: it binds none."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.alias(name=name, asname=renamed):
            return renamed if renamed != name else None
    return None
