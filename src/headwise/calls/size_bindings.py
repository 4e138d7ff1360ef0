"""Size bindings: the sizes that `--init` and `--call` declare as numbers, each bound once to a symbol of a plan."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.calls.equations import solved
from headwise.calls.mask_forms import declared_shapes
from headwise.calls.plan import Plan
from headwise.calls.symbols import spoken

__all__ = ["Mismatch", "Numbers", "is_number", "is_numeric"]

# where an axis of an argument stands says what it counts, where several symbols have its size
FIRST, LAST, BETWEEN = ("B", "L"), ("D", "d", "dv", "S", "L"), ("L", "S", "H", "Hkv", "h", "w", "d", "D")

Pairs = list[tuple[str, int]]


class Mismatch(ValueError):
    """What is declared cannot be what a plan gives."""


def is_number(value: Any) -> bool:
    """Whether a value may be a size: a whole number from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_numeric(value: Any) -> bool:
    """Whether a declared value holds sizes as numbers and none as symbols."""
    if isinstance(value, list):
        return bool(value) and all(map(is_number, value))
    if isinstance(value, Mapping):
        if "_expr" in value:
            return any(is_number(getattr(node, "value", None)) for node in _nodes(str(value["_expr"])))
        inner = value.get("_tuple", value.get("_ids"))
        return inner is not None and all(map(is_numeric, inner))
    return is_number(value)


@dataclass(frozen=True)
class Numbers:
    """What is declared as numbers, of the constructor, of the call, and of the shape of the mask.

    A number is no symbol by itself: it is bound to the one that stands at its place in a plan that was thought of
    without it, all of them jointly, so that two that are equal by chance stay two.
    """

    init: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    mask: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.init or self.call or self.mask)

    def built(self, init: Mapping[str, Any]) -> dict[str, Any]:
        """What a constructor is given: the symbols of a draft, and the numbers that are no sizes of it."""
        out = dict(init)
        for name, value in self.init.items():
            try:
                out[name] = _bound(init.get(name), value, [])
            except Mismatch:
                out[name] = value
        return out

    def called(self, call: Mapping[str, Any], plan: Plan, inputs: Sequence[str]) -> dict[str, Any]:
        """What a call is given: the symbols of a candidate, and the numbers that are no sizes of it.

        plan: with the symbols of the constructor. inputs: the arguments whose axes only a layout tells; a Mismatch
        says that it is none of them.
        """
        out, pairs, rest = dict(call), list(self._init_pairs(plan.init)), list[str]()
        for name, value in self.call.items():
            try:
                out[name] = _bound(call.get(name), value, pairs)
            except Mismatch:
                if name in inputs:
                    raise
                rest.append(name)
        sizes = solved(pairs, plan.symbols) if rest else {}
        return {**out, **{name: _spelled(self.call[name], sizes or {}) for name in rest}}

    def sizes(self, plan: Plan) -> dict[str, int] | None:
        """The sizes of a plan's symbols with which it is what was declared; None: there are none."""
        try:
            pairs = [*self._init_pairs(plan.init), *self._call_pairs(plan.call)]
        except Mismatch:
            return None
        sizes = solved(pairs, plan.symbols)
        if self.mask is None or sizes is None:
            return sizes
        mask = plan.call.get("_mask")
        is_bound = isinstance(mask, Mapping) and mask["argument"] == self.mask["argument"]
        shapes = [mask["shape"]] if is_bound and isinstance(mask, Mapping) else self._mask_shapes(plan)
        ways = (solved([*pairs, *_paired(shape, self.mask["shape"])], plan.symbols) for shape in shapes)
        return next((each for each in ways if each is not None), None)

    def masks(self, plan: Plan) -> list[dict[str, Any]]:
        """The declared mask with symbols for its sizes, the likeliest first; none: they fit nowhere in the plan."""
        if self.mask is None:
            return []
        pairs = [*self._init_pairs(plan.init), *self._call_pairs(plan.call)]
        wanted = self.mask["shape"]
        fitting = [
            shape
            for shape in self._mask_shapes(plan)
            if solved([*pairs, *_paired(shape, wanted)], plan.symbols) is not None
        ]
        return [{**self.mask, "shape": shape} for shape in fitting]

    def _mask_shapes(self, plan: Plan) -> list[list[str]]:
        """The shapes that a mask may have, of as many axes as the declared one."""
        if self.mask is None:
            return []
        keys = plan.keys
        names = {symbol.name for symbol in plan.symbols}
        shapes = declared_shapes(str(self.mask["argument"]), str(self.mask["means"]), keys=keys)
        return [
            list(shape) for shape in shapes if len(shape) == len(self.mask["shape"]) and set(spoken(shape)) <= names
        ]

    def _init_pairs(self, init: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        return _pairs(init, self.init)

    def _call_pairs(self, call: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        return _pairs(call, self.call)


def _pairs(plan: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The expressions of a plan, and the numbers that are declared in their places."""
    for name, value in declared.items():
        pairs: Pairs = []
        bound = _bound(plan.get(name), value, pairs)
        if not _is_same(bound, plan.get(name)):
            raise Mismatch(name)
        yield from pairs


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and "_expr" in a and "_expr" in b:
        return _plain(str(a["_expr"])) == _plain(str(b["_expr"]))
    return bool(a == b)


def _plain(text: str) -> str:
    return text.replace(" ", "")


def _paired(shape: Sequence[str], numbers: Sequence[int]) -> Pairs:
    return list(zip(map(str, shape), numbers, strict=True))


def _bound(there: Any, declared: Any, pairs: Pairs) -> Any:
    """A declared value with what stands in its place in a plan for each of its numbers that is a size there.

    there: the value in the plan. pairs: gets the expressions with their numbers.
    """
    if is_number(declared):
        if not isinstance(there, str) or not _is_size(there):
            return declared
        pairs.append((there, declared))
        return there
    if isinstance(declared, list):
        if not is_numeric(declared):
            return declared
        if not isinstance(there, list) or len(there) != len(declared):
            raise Mismatch(repr(declared))
        pairs += _paired(there, declared)
        return [str(each) for each in there] if [str(each) for each in there] != there else there
    if isinstance(declared, Mapping) and isinstance(there, Mapping):
        for key in ("_tuple", "_ids"):
            if key in declared:
                return _inner(there, declared, key, pairs)
        if "_expr" in declared and "_expr" in there:
            return {"_expr": _expression(str(there["_expr"]), str(declared["_expr"]), pairs)}
    elif isinstance(declared, Mapping) and "_expr" not in declared and is_numeric(declared):
        raise Mismatch(repr(declared))
    return declared


def _inner(there: Mapping[str, Any], declared: Mapping[str, Any], key: str, pairs: Pairs) -> dict[str, Any]:
    """Several values, or token numbers and what they are below."""
    old, new = there.get(key), declared[key]
    if not isinstance(old, list | tuple) or len(old) != len(new):
        raise Mismatch(repr(declared))
    out: dict[str, Any] = {**declared, key: [_bound(a, b, pairs) for a, b in zip(old, new, strict=True)]}
    if "below" in declared:
        out["below"] = _bound(there.get("below"), declared["below"], pairs)
    return out


def _expression(there: str, declared: str, pairs: Pairs) -> str:
    """Python that is declared, with the symbols of what stands in its place."""
    try:
        old, new = (ast.parse(each, mode="eval").body for each in (there, declared))
    except SyntaxError:
        return declared
    before = len(pairs)
    text = ast.unparse(_joined(old, new, pairs))
    if _plain(text) == _plain(there):
        return there
    return declared if len(pairs) == before else text


def _joined(old: ast.AST, new: ast.AST, pairs: Pairs) -> Any:
    """A declared piece of Python with the symbols that stand in the places of its numbers."""
    if isinstance(new, ast.Constant):
        if is_number(new.value) and _is_size(ast.unparse(old)) and isinstance(old, ast.Name | ast.BinOp):
            pairs.append((_plain(ast.unparse(old)), int(str(new.value))))
            return old
        return new
    if isinstance(new, ast.Call) and isinstance(old, ast.Call):
        values = {keyword.arg: keyword.value for keyword in old.keywords}
        words = [
            ast.keyword(
                keyword.arg,
                _joined(values[keyword.arg], keyword.value, pairs) if keyword.arg in values else keyword.value,
            )
            for keyword in new.keywords
        ]
        args = new.args
        if len(old.args) == len(args):
            args = [_joined(a, b, pairs) for a, b in zip(old.args, args, strict=True)]
        return ast.Call(_joined(old.func, new.func, pairs), args, words)
    if isinstance(new, ast.Attribute) and isinstance(old, ast.Attribute) and new.attr == old.attr:
        return ast.Attribute(_joined(old.value, new.value, pairs), new.attr, new.ctx)
    if (
        isinstance(new, ast.Tuple | ast.List)
        and isinstance(old, ast.Tuple | ast.List)
        and len(new.elts) == len(old.elts)
    ):
        return type(new)([_joined(a, b, pairs) for a, b in zip(old.elts, new.elts, strict=True)], new.ctx)
    if isinstance(new, ast.BinOp) and isinstance(old, ast.BinOp) and type(new.op) is type(old.op):
        return ast.BinOp(_joined(old.left, new.left, pairs), new.op, _joined(old.right, new.right, pairs))
    return new


def _spelled(value: Any, sizes: Mapping[str, int]) -> Any:
    """A shape that no plan was thought of with: each number as the symbol of its size that its place suggests."""
    if isinstance(value, Mapping):
        return {
            key: [_spelled(each, sizes) for each in inner] if key == "_tuple" else
            _spelled(inner, sizes) if key == "_ids" else inner
            for key, inner in value.items()
        }  # fmt: skip
    if not isinstance(value, list):
        return value
    out: list[Any] = []
    for at, size in enumerate(value):
        order = FIRST if at == 0 and len(value) > 1 else LAST if at == len(value) - 1 else BETWEEN
        names = [name for name in (*order, *sizes) if sizes.get(name) == size and size > 1]
        out.append(names[0] if names else size)
    return out


def _is_size(text: str) -> bool:
    """Whether text is a size: symbols and whole numbers with + - * and //."""
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Load)
    nodes = list(_nodes(text))
    return bool(nodes) and all(isinstance(node, allowed) for node in nodes)


def _nodes(text: str) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return
    yield from ast.walk(tree.body)
