"""Width divisors: what must divide a width, as a source tells: groups of a norm, or a share that is taken of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

from headwise.calls.argument_axes import last
from headwise.calls.plan import Named
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.symbols import LEGEND
from headwise.source import nodes_of

__all__ = ["counts_told", "divided", "norm_groups", "step_of"]

# sizes that are annotated as several
SEVERAL = re.compile(r"\b[Tt]uple\[int(?:, int){1,2}\]")
# a half is what even sizes are for; wider steps make no layer that is quickly built
LEAST, MOST = 3, 64
GIVEN = ("head_width", "heads", "key_heads")
# no axis that is counted otherwise is as long
WIDE = 24


def step_of(trees: Sequence[ast.FunctionDef]) -> int:
    """A multiple of what must divide each width; 1: nothing, or more than a small layer has."""
    divisor = lcm(*(step for tree in trees for step in _steps(tree) if LEAST <= step <= MOST))
    return divisor * -(-WIDE // divisor) if 1 < divisor <= MOST else 1


def divided(symbols: Mapping[str, Named], step: int, *, by_heads: bool) -> dict[str, Named]:
    """The widths that a step divides: that of each head, where widths are made of heads."""
    return {
        name: replace(symbol, times=step)
        for name, symbol in {"d": LEGEND["d"], **symbols}.items()
        if (name == "d" if by_heads else init_role(symbol.said or name) == "width")
        and not symbol.equals
        and symbol.fixed is None
    }


def _steps(tree: ast.FunctionDef) -> Iterator[int]:
    """The whole numbers by which a width is divided, or of which it must be a multiple, and the groups of norms."""
    defaults = _defaults(tree)
    # but heads and their widths, which are given
    others = {name: value for name, value in defaults.items() if init_role(name) not in GIVEN}
    for node in nodes_of(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv | ast.Mod):
            continue
        if init_role(last(node.left)) == "width":
            yield _whole(node.right, others)
    yield from (_whole(group, defaults) for group in _groups(tree))


def norm_groups(tree: ast.AST) -> Iterator[str]:
    """The names of the numbers of groups into which norms divide channels."""
    return (last(group) for group in _groups(tree))


def _groups(tree: ast.AST) -> Iterator[ast.expr]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and last(node.func) == "GroupNorm":
            yield from ([keyword.value for keyword in node.keywords if keyword.arg == "num_groups"] or node.args)[:1]


def _defaults(tree: ast.FunctionDef) -> dict[str, int]:
    """The arguments of a function that are whole numbers by default."""
    positional = [*tree.args.posonlyargs, *tree.args.args]
    pairs = [*zip(positional[len(positional) - len(tree.args.defaults) :], tree.args.defaults, strict=True)]
    pairs += [(each, value) for each, value in zip(tree.args.kwonlyargs, tree.args.kw_defaults, strict=True) if value]
    return {each.arg: _whole(value, {}) for each, value in pairs}


def _whole(node: ast.AST, defaults: dict[str, int]) -> int:
    if isinstance(node, ast.Name):
        return defaults.get(node.id, 1)
    is_whole = isinstance(node, ast.Constant) and type(node.value) is int
    return int(node.value) if is_whole else 1  # type: ignore[attr-defined]


def counts_told(target: Any) -> dict[str, int]:
    """How many sizes a parameter of a constructor holds by its annotation, or a window by default."""
    built = parameters(target) if isinstance(target, type) else []
    annotated = {param.name: SEVERAL.search(str(param.annotation)) for param in built}
    return {name: match[0].count("int") for name, match in annotated.items() if match} | {
        param.name: len(param.default)
        for param in built
        if isinstance(param.default, tuple | list) and init_role(param.name) == "window"
    }
