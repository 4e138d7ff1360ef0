"""Embedded arguments: the arguments of a call with which code looks rows of a table up: whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from torch import nn

from headwise.calls.argument_axes import last
from headwise.calls.function_trees import Written
from headwise.calls.plan import Named
from headwise.calls.roles import init_role

__all__ = ["embedded", "vocabularies_of"]

# a table has room for padding, and for what is masked
SPARE = 3
# how deep an argument is followed into the methods that it is handed to
DEEPEST = 3
FUNCTIONS = ("F.embedding", "functional.embedding", "nn.functional.embedding", "torch.nn.functional.embedding")


def embedded(trees: Mapping[str, Written], name: str, arguments: Collection[str]) -> set[str]:
    """Those arguments of a function that are handed to an `nn.Embedding`, or to `F.embedding`. trees: of it and of what
    it may hand them on to, by name.
    """
    assigned = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    tables = {last(each.targets[0]) for each in assigned if _makes_table(each.value)}
    return {
        argument
        for argument in arguments
        if name in trees and _is_looked_up(trees[name], argument, tables, trees, DEEPEST)
    }


def _makes_table(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) and last(node.func) == "Embedding" for node in ast.walk(value))


def _is_looked_up(
    function: Written, name: str, tables: Collection[str], trees: Mapping[str, Written], depth: int
) -> bool:
    """Whether a function looks rows up with a parameter, itself or where it hands it on."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        places = [at for at, each in _handed(call) if last(_bare(each)) == name and isinstance(_bare(each), ast.Name)]
        called = last(_bare(call.func))
        is_torch = ast.unparse(call.func) in FUNCTIONS
        if (places and called in tables) or (is_torch and {0, "input"} & set(places)):
            return True
        tree = trees.get(called) if places and depth else None
        if tree is None:
            continue
        taken = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args) if argument.arg != "self"]
        handed = {taken[at] if isinstance(at, int) and at < len(taken) else str(at): node for at, node in _handed(call)}
        # a table may be handed on too
        all_tables = {*tables, *(parameter for parameter, node in handed.items() if last(_bare(node)) in tables)}
        inner = [parameter for parameter, node in handed.items() if isinstance(_bare(node), ast.Name)
                 and last(_bare(node)) == name]  # fmt: skip
        if any(_is_looked_up(tree, parameter, all_tables, trees, depth - 1) for parameter in inner):
            return True
    return False


def _handed(call: ast.Call) -> Iterator[tuple[int | str, ast.expr]]:
    yield from enumerate(call.args)
    yield from ((keyword.arg or "", keyword.value) for keyword in call.keywords)


def _bare(node: ast.expr) -> ast.expr:
    """What an expression is a part of: `ids` of `ids[:, t]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def vocabularies_of(symbols: Mapping[str, Named], modules: Sequence[nn.Module], sizes: Mapping[str, int]) -> list[str]:
    """The symbols that bound token numbers, the first first. sizes: of the symbols, as the modules were built."""
    named = [name for name in symbols if init_role(name) == "vocabulary" and "type" not in name]
    rows = [module.num_embeddings for module in modules if isinstance(module, nn.Embedding)]
    free = [
        name
        for name, symbol in symbols.items()
        if symbol.meaning == "parameter" and not symbol.equals and init_role(symbol.said or name) in ("", "classes")
    ]
    fitting = [name for row in rows for name in free if 0 <= row - sizes.get(name, row + 1) < SPARE]
    return named or list(dict.fromkeys(fitting))[:1]
