"""Unread parts: what a projection gives beside what is read, under a name that nobody reads."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from torch import Tensor, nn

from headwise.dataflow import MarkedOp, Run, chain_of
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, code_at

__all__ = ["read_for", "unread_parts"]

# the number or letter by which names of one pair are told from those of another
PAIR = re.compile(r"(?<=[A-Za-z_])(?:\d+|_?[ab])$")
# the end by which names of two sides are told apart
SIDE = re.compile(r"(?<=[A-Za-z])(\d+|_?(?:[ablr12]|left|right))$")


def unread_parts(run: Run) -> list[Suspect]:
    """A part of a projection's output that has a name of its own and is read nowhere, of a run with gradients: just as
    many rows of the weights that make it get none.
    """
    idle = _idle_rows(run.target) if isinstance(run.target, nn.Module) else []
    read = {tensor.number for entry in run.seen for tensor in entry.inputs}
    for entry in run.seen if idle else ():
        if not entry.is_movement:
            continue
        for output, marks in zip(entry.outputs, entry.output_marks, strict=True):
            if output.number in read or marks is None or marks.kind != "token":
                continue
            is_part = any(_is_made_by(run, entry, weight, rows, output.shape) for weight, rows in idle)
            if is_part and (unread := _unread(entry.span)) is not None:
                name, place = unread
                return [Suspect("projection-part-unused", place, values={"name": name}, proved=True)]
    return []


def _idle_rows(target: nn.Module) -> list[tuple[Tensor, int]]:
    """The weights of projections of which some rows, and not all, get no gradient, and how many these are."""
    weights = [module.weight for module in target.modules() if isinstance(module, nn.Linear)]
    counts = [(weight, int((weight.grad == 0).all(dim=1).sum())) for weight in weights if weight.grad is not None]
    return [(weight, count) for weight, count in counts if 0 < count < weight.shape[0]]


def _is_made_by(run: Run, entry: MarkedOp, weight: Tensor, rows: int, shape: tuple[int, ...]) -> bool:
    """Whether a part of an output is that of some rows of weights, moved and nothing else: of `rows` for each token."""
    for tensor in entry.inputs:
        chain = chain_of(run, entry.at, tensor.number)
        while chain and chain[-1].is_movement:
            chain.pop()
        maker = chain[-1] if chain else None
        if maker is None or maker.joint is None or not any(operand is weight for operand in maker.tensors):
            continue
        return math.prod(shape) == math.prod(maker.outputs[0].shape[:-1]) * rows
    return False


def _unread(span: Span) -> tuple[str, Span] | None:
    """The first name of those that a statement unpacks into that its function reads nowhere, and where it belongs."""
    statement, function = _around(span)
    if function is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
        return None
    names = [node.id for node in statement.targets[0].elts if isinstance(node, ast.Name)]
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    unread = [name for name in names if name not in read and not name.startswith("_")]
    if not unread or not set(names) & read:
        return None
    line = min(_lines_of_pair(function, unread[0]), default=statement.lineno)
    return unread[0], Span(span.file, span.function, line)


def _around(span: Span) -> tuple[ast.stmt | None, ast.FunctionDef | None]:
    """The statement that is at a place, and its function."""
    code = code_at(span)
    around = [] if code is None else [code.node, *code.around(code.node)]
    statement = next((node for node in around if isinstance(node, ast.stmt)), None)
    return statement, next((node for node in around if isinstance(node, ast.FunctionDef)), None)


def read_for(span: Span) -> Span | None:
    """Where the other side of the one name that a statement gives is read for the second time, as in its place, `v_l`
    of `v_r`; None: that is not known.
    """
    statement, function = _around(span)
    if function is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    name = statement.targets[0].id
    reads = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    others = [node for node in reads if node.id != name and SIDE.sub("", node.id) == SIDE.sub("", name) != name]
    lines = sorted(node.lineno for node in others)
    return Span(span.file, span.function, lines[1]) if len(lines) > 1 else None


def _lines_of_pair(function: ast.FunctionDef, name: str) -> Iterator[int]:
    """The lines where the partners of a name are read: k2 is one of q2."""
    ending = PAIR.search(name)
    for node in ast.walk(function):
        other = PAIR.search(node.id) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None
        if ending and other and other[0] == ending[0] and other.string != name:
            yield getattr(node, "lineno", function.lineno)
