"""Unread parts: what a projection gives beside what is read, under a name that nobody reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch import nn

from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, code_at

__all__ = ["unread_parts"]

# a smaller share of the rows of a projection may be idle by chance
LEAST_SHARE = 1 / 16
# the number or letter by which names of one pair are told from those of another
PAIR = re.compile(r"(?<=[A-Za-z_])(?:\d+|_?[ab])$")


def unread_parts(run: Run) -> list[Suspect]:
    """A part of a projection's output that has a name of its own and is read nowhere, of a run with gradients: the rows
    of the weights that make it get none.
    """
    if not isinstance(run.target, nn.Module) or not any(map(_is_partly_idle, run.target.modules())):
        return []
    read = {each.number for entry in run.seen for each in entry.inputs}
    for entry in run.seen:
        is_left = entry.is_movement and entry.is_marked and any(each.number not in read for each in entry.outputs)
        for span in (entry.span, *reversed(entry.operation.chain)) if is_left else ():
            if (unread := _unread(span)) is not None:
                name, place = unread
                return [Suspect("projection-part-unused", place, said={"name": name}, proved=True)]
    return []


def _is_partly_idle(module: nn.Module) -> bool:
    """Whether some rows of a projection get no gradient, and the others do."""
    gradient = module.weight.grad if isinstance(module, nn.Linear) else None
    if gradient is None or gradient.ndim != 2:
        return False
    idle = (gradient == 0).all(dim=1)
    return bool(idle.any()) and not bool(idle.all()) and float(idle.double().mean()) >= LEAST_SHARE


def _unread(span: Span) -> tuple[str, Span] | None:
    """The first name of those that a statement unpacks into that its function reads nowhere, and where it belongs."""
    code = code_at(span)
    around = [] if code is None else [code.node, *code.around(code.node)]
    statement = next((node for node in around if isinstance(node, ast.stmt)), None)
    function = next((node for node in around if isinstance(node, ast.FunctionDef)), None)
    if function is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
        return None
    names = [node.id for node in statement.targets[0].elts if isinstance(node, ast.Name)]
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    unread = [name for name in names if name not in read and not name.startswith("_")]
    if not unread or not set(names) & read:
        return None
    line = min(_lines_of_pair(function, unread[0]), default=statement.lineno)
    return unread[0], Span(span.file, span.function, line)


def _lines_of_pair(function: ast.FunctionDef, name: str) -> Iterator[int]:
    """The lines where the partners of a name are read: k2 is one of q2."""
    ending = PAIR.search(name)
    for node in ast.walk(function):
        other = PAIR.search(node.id) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None
        if ending and other and other[0] == ending[0] and other.string != name:
            yield getattr(node, "lineno", function.lineno)
