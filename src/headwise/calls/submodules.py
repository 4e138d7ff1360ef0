"""Submodules: what a constructor is given that is a module or makes one, by how the class calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headwise.calls.argument_axes import last
from headwise.calls.function_trees import Written
from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY, callee, parameters
from headwise.source import assigned_pairs, nodes_of

__all__ = ["MODULE", "Asked", "asked_modules", "offered"]

# what stands in a draft until it is known what is to be had
MODULE = {"_expr": "torch.nn.Identity()"}
TYPES = re.compile(r"\b(nn\.)?Module\b|Callable")
# a projection by what it is of: what comes in and what goes out
SIDE = re.compile(r"^(?:w_?|to_?|lin(?:ear)?_?|proj_?)?(q|k|v|o)")
KINDS = 3
PLAIN: Mapping[str, str] = {"activation": "torch.nn.GELU()", "dropout": "torch.nn.Dropout(0.0)"}
MADE: Mapping[str, str] = {"activation": "torch.nn.GELU", "norm": "torch.nn.LayerNorm", "dropout": "torch.nn.Dropout"}
BY_COUNT = ("torch.nn.GELU", "torch.nn.LayerNorm", "torch.nn.Linear")


@dataclass(frozen=True)
class Asked:
    """How a class uses what it is given: with how many arguments it is called; is_made: by the constructor itself.
    kind: of which class it is said to be.
    """

    count: int
    is_made: bool = False
    kind: str = ""


def asked_modules(methods: Sequence[Written]) -> dict[str, Asked]:
    """The parameters of a constructor that are called, as they are or as the attribute that keeps them.

    methods: those of the class.
    """
    maker = next((tree for tree in methods if tree.name == "__init__"), None)
    if maker is None:
        return {}
    args = [*maker.args.posonlyargs, *maker.args.args, *maker.args.kwonlyargs]
    names = {argument.arg for argument in args} - {"self"}
    kept: dict[str, str] = {}
    for node in nodes_of(maker):
        for target, value in assigned_pairs(node) if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(value, ast.Name) and value.id in names:
                kept[target.attr] = value.id
    kinds = {argument.arg: last(argument.annotation) for argument in args if argument.annotation}
    out = {
        argument.arg: Asked(1)
        for argument in args
        if argument.annotation and TYPES.search(ast.unparse(argument.annotation))
    }
    for tree in methods:
        for node in nodes_of(tree):
            if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
                continue
            # what is handed on as **options is no argument of its own
            count, function = len(node.args) + sum(keyword.arg is not None for keyword in node.keywords), node.func
            if tree is maker and isinstance(function, ast.Name) and function.id in names:
                out[function.id] = Asked(count, is_made=True)
            elif isinstance(function, ast.Attribute) and last(function.value) == "self" and function.attr in kept:
                out[kept[function.attr]] = Asked(count, kind=kinds.get(kept[function.attr], ""))
    return out


def offered(name: str, asked: Asked, widths: Mapping[str, str], kinds: Mapping[str, Any]) -> list[str]:
    """What a parameter may be given, as expressions, the likeliest first.

    widths: what comes in and goes out, as "D", "H*d" and "Hkv*d". kinds: what the file itself has, and how it is made.
    """
    role = init_role(name)
    if asked.is_made:
        return [MADE.get(role) or BY_COUNT[min(asked.count, len(BY_COUNT) - 1)]]
    if asked.count > 1:
        return [*islice(_fitting(asked, kinds), KINDS), *_of_torch(asked.count)]
    if role in PLAIN:
        return [PLAIN[role]]
    side = SIDE.match(name.lower())
    width, heads = widths["D"], widths["H*d"]
    if role == "norm" or "norm" in name.lower():
        return [f"torch.nn.LayerNorm({width})", f"torch.nn.LayerNorm({widths['d']})", "torch.nn.Identity()"]
    into, out = {"q": (width, heads), "k": (width, widths["Hkv*d"]), "v": (width, widths["Hkv*d"])}.get(
        side[1] if side else "", (heads, width)
    )
    return [f"torch.nn.Linear({into}, {out})", "torch.nn.Identity()"]


def _fitting(asked: Asked, kinds: Mapping[str, Any]) -> Iterator[str]:
    """What of the file can be called so, first what is of the kind that it is said to be, then attention."""

    def is_of_kind(kind: Any) -> bool:
        return any(base.__name__ == asked.kind for base in getattr(kind, "__mro__", ()))

    names = sorted(kinds, key=lambda name: (not is_of_kind(kinds[name]), "attention" not in name.lower()))
    for name in names:
        arguments = parameters(callee(kinds[name]))
        needed = sum(argument.default is EMPTY for argument in arguments)
        if needed <= asked.count <= len(arguments):
            yield name


def _of_torch(count: int) -> list[str]:
    return ["torch.nn.functional.scaled_dot_product_attention"] if count in (3, 4) else []
