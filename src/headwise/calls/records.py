"""Records: parameters that code takes apart by names, such as a dictionary of a batch, as arguments of their own."""

from __future__ import annotations

import ast
import copy
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from headwise.calls.roles import call_role

__all__ = ["RecordArgument", "opened_tree", "placed_arguments", "records_of"]

# what a mapping gives for a key, and another value where it is missing
BY_KEY = ("get",)
# what is taken apart too, and is found in its own way; what a tuple of inputs is called
KEPT, TUPLES = ("cache", "config"), ("", "query")
# and what two tensors are called that belong together: a state, or the sizes of something
TOGETHER = re.compile(r"hid|state|cell|past|kv|rot|freq|angle|shape|size|grid|edge")
# how deep a parameter is followed into the methods that it is handed to
DEEPEST = 3


@dataclass(frozen=True)
class RecordArgument:
    """A parameter that is a collection of named parts. way: how they are read: "key" of a mapping, "attribute" of an
    object, "class" of an object whose class is known, "place" in a tuple. parts: their names in the order of the code.
    needed: those without which it raises.
    """

    name: str
    way: str
    parts: tuple[str, ...]
    needed: frozenset[str]


@dataclass(frozen=True)
class _Read:
    """One use of a parameter. part: what is read, of a tuple all its names, "": it is handed on whole."""

    way: str
    part: str
    is_needed: bool = True
    method: str = ""
    place: int | str = 0


def records_of(
    tree: ast.FunctionDef, methods: Mapping[str, ast.FunctionDef] | None = None
) -> tuple[RecordArgument, ...]:
    """The parameters of a function that it takes apart by names and uses in no other way. methods: by name, those of
    its class; what is handed to one of them whole is read there.

    >>> code = "def forward(self, batch):\\n    return self.table(batch['ids']) * batch['mask'][..., None]"
    >>> [(record.name, record.way, record.parts) for record in records_of(ast.parse(code).body[0])]
    [('batch', 'key', ('ids', 'mask'))]
    """
    names = _required(tree)
    out: list[RecordArgument] = []
    for name in names:
        reads = _reads(tree, name, methods or {}, DEEPEST)
        ways = {read.way for read in reads or () if read.way}
        told = [read for read in reads or () if read.part]
        parts = tuple(dict.fromkeys(part for read in told for part in read.part.split()))
        is_whole = len(ways) == 1 and (ways != {"place"} or len({read.part for read in told}) == 1)
        is_whole = is_whole and (ways != {"place"} or len(parts) == len(told[0].part.split()))
        is_whole = is_whole and all(_is_name(part) for part in parts) and not set(_named_arguments(tree)) & set(parts)
        if is_whole and not any(call_role(part) in KEPT for part in (name, *parts)):
            optional = {read.part for read in told if not read.is_needed}
            out.append(RecordArgument(name, ways.pop(), parts, frozenset(parts) - optional))
    parts_of_all = [part for record in out for part in record.parts]
    return tuple(out) if len(set(parts_of_all)) == len(parts_of_all) else ()


def opened_tree(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The tree of a function in which the parts of its records are names; the tree itself where it has none."""
    records = {record.name: record for record in records_of(tree)}
    if not records or tree.name == "__init__":
        return tree
    opened: ast.FunctionDef = _Opening(records).visit(copy.deepcopy(tree))
    opened.written_arguments = placed_arguments(tree)  # type: ignore[attr-defined]
    return opened


def placed_arguments(tree: ast.FunctionDef) -> list[str]:
    """The names of the arguments by place, as they are written, without `self`."""
    written: list[str] | None = getattr(tree, "written_arguments", None)
    every = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
    return [name for name in (every if written is None else written) if name != "self"]


def _named_arguments(tree: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]


def _is_name(part: str) -> bool:
    return part.isidentifier() and not keyword.iskeyword(part) and part.strip("_") != ""


class _Opening(ast.NodeTransformer):
    """Puts names in the place of what is read of records."""

    def __init__(self, records: Mapping[str, RecordArgument]) -> None:
        self._records = records

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        node.posonlyargs, node.args = self._apart(node.posonlyargs), self._apart(node.args)
        return node

    def _apart(self, every: list[ast.arg]) -> list[ast.arg]:
        return [
            ast.copy_location(ast.arg(name), argument)
            for argument in every
            for name in (self._records[argument.arg].parts if argument.arg in self._records else (argument.arg,))
        ]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._records:
            parts = [ast.copy_location(ast.Name(part, ast.Load()), node) for part in self._records[node.value.id].parts]
            node.value = ast.copy_location(ast.Tuple(list[ast.expr](parts), ast.Load()), node)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        read = _read(node)
        if read is None or read[0] not in self._records:
            return self.generic_visit(node)
        name = ast.copy_location(ast.Name(read[1].part, ast.Load()), node)
        operator = ast.IsNot() if isinstance(node.ops[0], ast.In) else ast.Is()
        return ast.copy_location(ast.Compare(name, [operator], [ast.copy_location(ast.Constant(None), node)]), node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        read = _read(node)
        if read is not None and read[0] in self._records and read[1].way != "place":
            return ast.copy_location(ast.Name(read[1].part, ast.Load()), node)
        return super().generic_visit(node)


def _required(tree: ast.FunctionDef) -> list[str]:
    """The parameters without a default, in order."""
    by_place = [*tree.args.posonlyargs, *tree.args.args]
    every = by_place[: len(by_place) - len(tree.args.defaults)]
    return [argument.arg for argument in every if argument.arg != "self"]


def _reads(
    tree: ast.FunctionDef, name: str, methods: Mapping[str, ast.FunctionDef], depth: int
) -> tuple[_Read, ...] | None:
    """What a function reads of a parameter; None: it uses it in another way too. Without methods it is not asked what
    those read that it hands the parameter to.
    """
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
    # a method of an object is no part of it
    methods_of = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    nodes = (node for node in ast.walk(tree) if id(node) not in methods_of)
    reads = sorted((read for node in nodes for read in _found(node, name)), key=lambda pair: pair[0])
    if not reads or len(reads) != uses:
        return None
    out: list[_Read] = []
    for _, read in reads:
        if read.part:
            out.append(read)
        elif read.method in methods and depth:
            called = methods[read.method]
            names = placed_arguments(called)
            is_placed = isinstance(read.place, int) and read.place < len(names)
            inner = _reads(called, names[int(read.place)] if is_placed else str(read.place), methods, depth - 1)
            if inner is None:
                return None
            out += inner
        elif methods:
            return None
    return tuple(out)


def _found(node: ast.AST, name: str) -> Iterator[tuple[tuple[int, int], _Read]]:
    """The uses of a name that an expression or a statement makes, with their places."""
    read = _read(node)
    place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    if read is not None and read[0] == name:
        yield place, read[1]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name:
        target = node.targets[0]
        names = [part.id for part in target.elts if isinstance(part, ast.Name)] if isinstance(target, ast.Tuple) else []
        if isinstance(target, ast.Tuple) and len(names) == len(target.elts) > 1 and _is_of_inputs(name):
            # one use, however many parts
            yield place, _Read("place", " ".join(names))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _names(node.func.value) == "self":
        pairs: list[tuple[int | str, ast.expr]] = [*enumerate(node.args)]
        pairs += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        for at, value in pairs:
            if _names(value) == name:
                yield place, _Read("", "", method=node.func.attr, place=at)


def _read(node: ast.AST) -> tuple[str, _Read] | None:
    """Of which name an expression reads a part, and which."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = getattr(node.slice, "value", None)
        return (_names(node.value), _Read("key", key)) if isinstance(key, str) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BY_KEY and node.args:
        key = getattr(node.args[0], "value", None)
        is_key = isinstance(key, str) and bool(_names(node.func.value))
        return (_names(node.func.value), _Read("key", str(key), is_needed=False)) if is_key else None
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        key = getattr(node.left, "value", None)
        return (_names(node.comparators[0]), _Read("key", key, is_needed=False)) if isinstance(key, str) else None
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not hasattr(Tensor, node.attr):
        return (_names(node.value), _Read("attribute", node.attr)) if _names(node.value) else None
    return None


def _is_of_inputs(name: str) -> bool:
    """Whether what a tuple is called leaves open what is in it."""
    return call_role(name) in TUPLES and TOGETHER.search(name) is None


def _names(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""
