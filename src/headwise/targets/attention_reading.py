"""Attention classes: the classes and functions of a file or a folder that look like attention, found by reading alone.

Nothing is run: a definition is listed for its name, for a call of attention that torch or a library makes, or for a
softmax beside a product of tensors.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from headwise.errors import InputError
from headwise.targets.reader import read
from headwise.targets.source_file import Definition, parsed
from headwise.targets.target import Target, parse

__all__ = ["attention_classes", "python_files"]

# in the name of a class or a function
NAMED = ("attention", "attn")
# calls that are attention
CALLS = frozenset(
    {"scaled_dot_product_attention", "multi_head_attention_forward", "MultiheadAttention", "MultiHeadAttention"}
)
PRODUCTS = frozenset({"matmul", "bmm", "einsum", "baddbmm"})
# folders that hold the code of others
OF_OTHERS = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "env"})
SUFFIXES = (".py", ".ipynb")


def python_files(folder: Path) -> Iterator[Path]:
    """The files of Python and the notebooks below a folder, sorted, but for hidden folders and those of others."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in OF_OTHERS and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(SUFFIXES))


def attention_classes(target: str) -> list[Definition]:
    """What looks like attention in a file, or in the files below a folder that can be read."""
    path = Path(target)
    if not path.is_dir():
        return _in_file(parse(target), target)
    found: list[Definition] = []
    for file in python_files(path):
        try:
            found += _in_file(parse(str(file)), str(file))
        except InputError:
            # it is no Python, or empty: what is asked about is the folder
            continue
    return found


def _in_file(target: Target, name: str) -> list[Definition]:
    source = read(target)
    bodies: dict[str, ast.ClassDef | ast.FunctionDef] = {}
    for text in (*source.texts.values(), *(cell.code for cell in source.cells)):
        try:
            tree = parsed(text)
        except SyntaxError:
            continue
        bodies |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    kept = [each for each in source.definitions if each.name in bodies and _is_attention(bodies[each.name])]
    return [Definition(each.name, each.kind, name, each.line) for each in kept]


def _is_attention(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether a definition looks like attention."""
    if any(part in node.name.lower() for part in NAMED):
        return True
    called = set()
    multiplies = False
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.MatMult):
            multiplies = True
        elif isinstance(each, ast.Call):
            called.add(each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", ""))
    return bool(called & CALLS) or (
        {"softmax", "Softmax"} & called != set() and (multiplies or bool(called & PRODUCTS))
    )
