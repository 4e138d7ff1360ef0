"""Next tokens: whether a class is to tell each token from those before it, by how its methods cut them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator

from torch import nn

__all__ = ["assigned_in", "cut_of", "lengthened", "losses_of", "read_class", "told_in_order"]

LOSS = re.compile(r"loss|entropy|nll|criterion", re.IGNORECASE)
CALLED = frozenset({"self", "self.forward", "super().forward"})


def told_in_order(kind: type[nn.Module]) -> frozenset[str]:
    """The arguments of a class's forward of which each token is to be told from those before it alone.

    A method takes a loss of the tokens but the first, `x[:, 1:]`, and of what the class gives for the tokens but the
    last: for `x[:, :-1]`, or for all of the same `x`, cut to `[:, :-1]` behind.
    """
    tree, names = read_class(kind)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    places = {place for function in functions for place in _told(function)}
    return frozenset(names[at] if isinstance(at, int) and at < len(names) else str(at) for at in places)


def lengthened(kind: type[nn.Module]) -> frozenset[str]:
    """The arguments of forward that a loop of a method lengthens by what forward gave: `y = torch.cat([y, new])`."""
    tree, names = read_class(kind)
    arguments: set[str] = set()
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)):
        pairs = [pair for node in ast.walk(loop) for pair in _assigned(node)]
        derived = {name for name, value in pairs if any(_is_own(node) for node in ast.walk(value))}
        for _ in pairs:
            # what is made of what came out
            derived |= {name for name, value in pairs if any(_reads(node, derived) for node in ast.walk(value))}
        longer = {name for name, value in pairs if _is_joined(value, name, derived)}
        for call in (node for node in ast.walk(loop) if isinstance(node, ast.Call) and _is_own(node)):
            taken = [getattr(value, "id", "") for value in call.args]
            arguments |= {names[at] for at, name in enumerate(taken) if name in longer and at < len(names)}
            arguments |= {str(word.arg) for word in call.keywords if getattr(word.value, "id", "") in longer}
    return frozenset(arguments)


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name_of(node) in CALLED


def _reads(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _is_joined(value: ast.expr, name: str, derived: set[str]) -> bool:
    """Whether a value is a variable of a name with something of others behind it."""
    if not isinstance(value, ast.Call) or _name_of(value) not in ("torch.cat", "torch.concat", "cat") or not value.args:
        return False
    parts = getattr(value.args[0], "elts", [])
    behind = [node for part in parts[1:] for node in ast.walk(part)]
    return bool(parts) and ast.unparse(parts[0]) == name and any(_reads(node, derived - {name}) for node in behind)


def read_class(kind: type[nn.Module]) -> tuple[ast.AST, list[str]]:
    """The source of a class, and the arguments of its forward; nothing where it has none."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        return tree, [*inspect.signature(kind.forward).parameters][1:]
    except (OSError, TypeError, SyntaxError, ValueError, AttributeError):
        return ast.Pass(), []


def _told(function: ast.FunctionDef) -> Iterator[int | str]:
    """Where a function hands its own class the tokens of which a loss takes all but the first."""
    assigned = assigned_in(function)
    for loss in losses_of(function):
        names = [assigned[node.id] for node in ast.walk(loss) if isinstance(node, ast.Name) and node.id in assigned]
        parts = [inner for value in (loss, *names) for inner in ast.walk(value)]
        tails = {name for part in parts for name, which in cut_of(part) if which == "tail"}
        heads = {name for part in parts for name, which in cut_of(part) if which == "head"}
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call) and _name_of(node) in CALLED):
            # the result is cut where it is named, or its tokens were
            results = {name for name, value in assigned.items() if call in ast.walk(value)}
            handed: list[tuple[int | str, ast.expr]] = [*enumerate(call.args)]
            for at, value in [*handed, *((keyword.arg or "", keyword.value) for keyword in call.keywords)]:
                value = assigned.get(value.id, value) if isinstance(value, ast.Name) else value
                cut = {name for name, which in cut_of(value) if which == "head"}
                whole = {value.id} if isinstance(value, ast.Name) and results & heads else set()
                if tails & (cut | whole) and not results & tails:
                    yield at


def losses_of(function: ast.FunctionDef) -> list[ast.Call]:
    """The calls of a function that take a loss, by their names."""
    return [node for node in ast.walk(function) if isinstance(node, ast.Call) and LOSS.search(_name_of(node))]


def assigned_in(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What names of a function are set to last."""
    return dict(pair for node in ast.walk(function) for pair in _assigned(node))


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names are set to by one statement."""
    if isinstance(node, ast.Assign):
        names, values = node.targets[:1], [node.value]
        if isinstance(names[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            names, values = names[0].elts, node.value.elts
        yield from ((name.id, value) for name, value in zip(names, values, strict=False) if isinstance(name, ast.Name))


def cut_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The name of what is cut, and which part is left: "head" of `x[:, :-1]`, "tail" of `x[:, 1:]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    cuts = [ast.unparse(part) for part in parts if isinstance(part, ast.Slice) and ast.unparse(part) != ":"]
    if cuts == [":-1"]:
        yield node.value.id, "head"
    elif cuts == ["1:"]:
        yield node.value.id, "tail"
