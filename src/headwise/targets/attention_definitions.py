"""Attention definitions: the classes and functions of a file or a folder that look like attention, by reading alone.

Nothing is run: a definition is listed for its name, for a call of attention that torch or a library makes, or for a
softmax beside a product of tensors.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headwise.errors import InputError
from headwise.targets.reader import read
from headwise.targets.source_file import Definition, parsed
from headwise.targets.target import Target, parse

__all__ = ["attention_classes"]

# in the name of a class or a function
NAMED = ("attention", "attn")
# calls that compute attention
CALLS = frozenset(
    {"scaled_dot_product_attention", "multi_head_attention_forward", "MultiheadAttention", "MultiHeadAttention"}
)
SOFTMAXES = frozenset({"softmax", "Softmax"})
PRODUCTS = frozenset({"matmul", "bmm", "einsum", "baddbmm"})
# folders of third-party code
OF_OTHERS = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "env"})
SUFFIXES = (".py", ".ipynb")


def _python_files(folder: Path) -> Iterator[Path]:
    """The Python files and notebooks below a folder, sorted, without hidden folders and third-party code."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in OF_OTHERS and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(SUFFIXES))


def attention_classes(target: str) -> list[Definition]:
    """The definitions that look like attention in a file, or in the readable files below a folder."""
    path = Path(target)
    if not path.is_dir():
        return _in_file(parse(target), target)
    definitions: list[Definition] = []
    for file in _python_files(path):
        # a file that is no Python, or empty, is no reason to refuse the folder
        with suppress(InputError):
            definitions += _in_file(parse(str(file)), str(file))
    return definitions


def _in_file(target: Target, name: str) -> list[Definition]:
    source = read(target)
    bodies: dict[str, ast.ClassDef | ast.FunctionDef] = {}
    for text in (*source.texts.values(), *(cell.code for cell in source.cells)):
        with suppress(SyntaxError):
            nodes = parsed(text).body
            bodies |= {node.name: node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return [
        Definition(definition.name, definition.kind, name, definition.line)
        for definition in source.definitions
        if definition.name in bodies and _is_attention(bodies[definition.name])
    ]


def _is_attention(body: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether a definition looks like attention."""
    if any(part in body.name.lower() for part in NAMED):
        return True
    nodes = list(ast.walk(body))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in functions}
    multiplies = any(isinstance(node, ast.MatMult) for node in nodes) or bool(called & PRODUCTS)
    return bool(called & CALLS) or (multiplies and bool(called & SOFTMAXES))
