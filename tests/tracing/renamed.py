"""Renamed: a file whose local variables all bear other names, on the same lines."""

import ast
from collections.abc import Iterator

# names that say something false, so that whoever trusts them is found out
MISLEADING = ("seq_len", "H", "batch", "d_model", "L", "heads", "B", "head_dim", "S", "D")
FUNCTIONS = ast.FunctionDef | ast.Lambda


def renamed(text: str) -> str:
    """The text, with each local variable of each function renamed; parameters, attributes and globals stay."""
    lines = [line.encode() for line in text.split("\n")]
    edits: list[tuple[int, int, int, str]] = []
    for function in _outermost(ast.parse(text)):
        names = _locals(function)
        edits += [
            (node.lineno - 1, node.col_offset, node.end_col_offset, names[node.id])
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and node.id in names
        ]
    for line, start, end, name in sorted(edits, reverse=True):
        lines[line] = lines[line][:start] + name.encode() + lines[line][end:]
    return b"\n".join(lines).decode()


def _outermost(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of the file and methods of its classes, without those inside them."""
    for node in tree.body:
        own = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (each for each in own if isinstance(each, ast.FunctionDef))


def _locals(function: ast.FunctionDef) -> dict[str, str]:
    """The variables that a function and those inside it assign, but for parameters, and a new name for each."""
    given = {
        each.arg
        for inner in ast.walk(function)
        if isinstance(inner, FUNCTIONS)
        for each in ast.walk(inner.args)
        if isinstance(each, ast.arg)
    }
    given |= {inner.name for inner in ast.walk(function) if isinstance(inner, ast.FunctionDef)}
    own = dict.fromkeys(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {
        name: f"{MISLEADING[at % len(MISLEADING)]}_{at}"
        for at, name in enumerate(each for each in own if each not in given)
    }
