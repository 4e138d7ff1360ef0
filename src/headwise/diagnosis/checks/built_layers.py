"""Built layers: where a person's own class builds the layer of torch that a step calls."""

from __future__ import annotations

import ast
import linecache
import re

from torch import nn

from headwise.dataflow import MarkedOp, Run
from headwise.source import Span, assigned, constructors, is_installed

__all__ = ["built_at", "untold_layer"]

# how a class builds what it is made from
INHERITED = re.compile(r"(?:super\(.*?\)|[\w.]*MultiheadAttention)\.__init__\(")
PUTTING = frozenset({"append", "extend", "insert", "add_module"})


def built_at(run: Run, path: str) -> Span | None:
    """The statement that builds the layer at a path of the target; None: there is none, or a library builds it."""
    parts = path.split(".")
    for count in range(len(parts) - 1, -1, -1) if path and isinstance(run.target, nn.Module) else ():
        owner = run.target.get_submodule(".".join(parts[:count]))
        if not type(owner).__module__.startswith("torch."):
            inner = [run.target.get_submodule(".".join(parts[:end])) for end in range(len(parts), count, -1)]
            kinds = [type(module).__name__ for module in inner]
            # in a list it may stand alone, or be put in later
            return _appended(owner, parts[count]) or _called(owner, kinds) or assigned(owner, [parts[count]])
    return None


def _inherited(owner: nn.Module) -> Span | None:
    """The statement in which a class of one's own builds the layer that it is made from."""
    for constructor in constructors(type(owner)):
        for node in ast.walk(constructor.tree):
            is_own = not is_installed(constructor.code.co_filename)
            if is_own and isinstance(node, ast.Expr) and INHERITED.match(ast.unparse(node)):
                return constructor.span(node)
    return None


def _appended(owner: nn.Module, name: str) -> Span | None:
    """The statement that appends to a list of layers of this name; None: there is none."""
    for constructor in constructors(type(owner)):
        for node in ast.walk(constructor.tree):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
                continue
            called = node.value.func
            is_put = isinstance(called, ast.Attribute) and called.attr in PUTTING
            if is_put and ast.unparse(called).rpartition(".")[0] == f"self.{name}":
                return constructor.span(node)
    return None


def _called(owner: nn.Module, kinds: list[str]) -> Span | None:
    """The only statement that calls the first of these classes that any calls; None: none does, or several do.

    kinds: of a layer and of what torch holds it in, the innermost first.
    """
    for constructor in constructors(type(owner)):
        statements = [node for node in ast.walk(constructor.tree) if isinstance(node, ast.Assign | ast.AnnAssign)]
        for kind in kinds:
            calling = [statement for statement in statements if kind in _callees(statement)]
            if calling:
                return constructor.span(calling[0]) if len(calling) == 1 else None
    return None


def _callees(statement: ast.stmt) -> set[str]:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {ast.unparse(called).rpartition(".")[2] for called in calls}


def untold_layer(run: Run, entry: MarkedOp) -> Span | None:
    """The statement that builds torch's attention which an operation calls, if nothing in it says which axis is the
    batch; None: it calls none, or is told.
    """
    layer = entry.args[0] if entry.args else None
    if not isinstance(layer, nn.MultiheadAttention) or not isinstance(run.target, nn.Module):
        return None
    path = next((name for name, each in run.target.named_modules() if each is layer), "")
    span = _inherited(layer) if layer is run.target else built_at(run, path)
    if span is None:
        return None
    lines = linecache.getlines(span.file)[span.line - 1 : span.end_line or span.line]
    return None if "batch_first" in "".join(lines) else span
