"""Next tokens: whether a class is to tell each token from those before it, by how its methods cut and join tokens."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator

from torch import nn

__all__ = ["told_in_order"]

LOSS = re.compile(r"loss|entropy|nll|criterion", re.IGNORECASE)
CALLED = frozenset({"self", "self.forward", "super().forward"})


def told_in_order(kind: type[nn.Module]) -> frozenset[str]:
    """The arguments of a class's forward of which each token is to be told from those before it alone.

    A method hands over `x[:, :-1]` where `x[:, 1:]` is read too, or what a loop lengthens by what came out; or a loss
    takes `logits[:, :-1]` and `x[:, 1:]`; tokens that are no argument there are those of the only one.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        params = [*inspect.signature(kind.forward).parameters.values()][1:]
    except (OSError, TypeError, SyntaxError, ValueError, AttributeError):
        return frozenset()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    places = {place for each in functions for place in (*_without_last(each), *_lengthened(each))}
    names = [param.name for param in params]
    needed = [param.name for param in params if param.default is param.empty]
    told = {name for each in functions for name in _of_losses(each)}
    told = {name if name in names else needed[0] for name in told if name in names or len(needed) == 1}
    told |= {names[at] if isinstance(at, int) and at < len(names) else str(at) for at in places}
    return frozenset(told)


def _own_calls(tree: ast.AST) -> Iterator[tuple[int | str, ast.expr]]:
    """What a class is handed where its methods call it, by place or keyword."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLED:
            yield from enumerate(node.args)
            yield from ((each.arg or "", each.value) for each in node.keywords)


def _without_last(function: ast.FunctionDef) -> Iterator[int | str]:
    """Where a function hands its own class all tokens but the last, and reads all but the first."""
    assigned = dict(pair for node in ast.walk(function) for pair in _assigned(node))
    read = {name for node in ast.walk(function) for name, part in _cut(node) if part == "tail"}
    for at, value in _own_calls(function):
        value = assigned.get(value.id, value) if isinstance(value, ast.Name) else value
        if any(part == "head" and name in read for name, part in _cut(value)):
            yield at


def _lengthened(function: ast.FunctionDef) -> Iterator[int | str]:
    """Where a function hands its own class, in a loop, what each turn lengthens: `x = torch.cat([x, new])`."""
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)):
        longer = {
            name for node in ast.walk(loop) for name, value in _assigned(node)
            if isinstance(value, ast.Call) and ast.unparse(value.func) in ("torch.cat", "torch.concat", "cat")
            and value.args and isinstance(value.args[0], ast.List | ast.Tuple)
            and [ast.unparse(each) for each in value.args[0].elts[:1]] == [name]
        }  # fmt: skip
        for at, value in _own_calls(loop):
            # all of it, or the last so many
            inner = value.value if isinstance(value, ast.Subscript) else value
            if isinstance(inner, ast.Name) and inner.id in longer:
                yield at


def _of_losses(function: ast.FunctionDef) -> Iterator[str]:
    """The tokens of which a loss takes all but the first, where it takes results for all but the last."""
    assigned = dict(pair for node in ast.walk(function) for pair in _assigned(node))
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and LOSS.search(ast.unparse(node.func)):
            values = [assigned.get(each.id, each) for each in ast.walk(node) if isinstance(each, ast.Name)]
            cuts = {cut for value in (node, *values) for inner in ast.walk(value) for cut in _cut(inner)}
            heads, tails = ({name for name, part in cuts if part == which} for which in ("head", "tail"))
            if heads and heads.isdisjoint(tails):
                yield from tails


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names are set to by one statement."""
    if isinstance(node, ast.Assign):
        names, values = node.targets[:1], [node.value]
        if isinstance(names[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            names, values = names[0].elts, node.value.elts
        yield from ((name.id, value) for name, value in zip(names, values, strict=False) if isinstance(name, ast.Name))


def _cut(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The name of what is cut, and which part is left: "head" of `x[:, :-1]`, "tail" of `x[:, 1:]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    cuts = [ast.unparse(each) for each in parts if isinstance(each, ast.Slice) and ast.unparse(each) != ":"]
    if cuts == [":-1"]:
        yield node.value.id, "head"
    elif cuts == ["1:"]:
        yield node.value.id, "tail"
