"""Numbers: the sizes that `--init` and `--call` declare as numbers, each bound once to a symbol of a plan."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwise.recording.calls.masks import declared_shapes
from headwise.recording.calls.plan import Named, Plan, evaluated
from headwise.recording.calls.symbols import LEGEND, spoken

__all__ = ["Mismatch", "Numbers", "declared_sizes", "fixed_at", "is_number", "is_numeric", "loosened"]

# a length that is written with + - or // is looked for up to this
LARGEST = 4096
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
        sizes = _solved(pairs, plan.symbols) if rest else {}
        return {**out, **{name: _spelled(self.call[name], sizes or {}) for name in rest}}

    def sizes(self, plan: Plan) -> dict[str, int] | None:
        """The sizes of a plan's symbols with which it is what was declared; None: there are none."""
        try:
            pairs = [*self._init_pairs(plan.init), *self._call_pairs(plan.call)]
        except Mismatch:
            return None
        found = _solved(pairs, plan.symbols)
        if self.mask is None or found is None:
            return found
        said = plan.call.get("_mask")
        is_bound = isinstance(said, Mapping) and said["argument"] == self.mask["argument"]
        shapes = [said["shape"]] if is_bound and isinstance(said, Mapping) else self._mask_shapes(plan)
        ways = (_solved([*pairs, *_paired(each, self.mask["shape"])], plan.symbols) for each in shapes)
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
            if _solved([*pairs, *_paired(shape, wanted)], plan.symbols) is not None
        ]
        return [{**self.mask, "shape": shape} for shape in fitting]

    def _mask_shapes(self, plan: Plan) -> list[list[str]]:
        """The shapes that a mask may have, of as many axes as the declared one."""
        if self.mask is None:
            return []
        keys = "S" if any(each.name == "S" for each in plan.symbols) else "L"
        names = {each.name for each in plan.symbols}
        found = declared_shapes(str(self.mask["argument"]), str(self.mask["means"]), keys=keys)
        return [list(each) for each in found if len(each) == len(self.mask["shape"]) and set(spoken(each)) <= names]

    def _init_pairs(self, init: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        return _pairs(init, self.init)

    def _call_pairs(self, call: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        return _pairs(call, self.call)


def fixed_at(plan: Plan, sizes: Mapping[str, int], part: str) -> Plan:
    """A plan whose symbols are always the sizes that are known of them.

    part: "call": those that nothing is built with; "init": those that something is built with; "all".
    """
    built = set(spoken(list(plan.init.values()))) | {each.name for each in plan.symbols if each.equals}
    names = {name for name in sizes if part == "all" or (name in built) == (part == "init")}
    symbols = [
        replace(each, fixed=sizes[each.name], equals="") if each.name in names else each for each in plan.symbols
    ]
    wide, heads = sizes.get("D", 0), sizes.get("H", 0)
    if {"D", "H"} <= names and wide % heads == 0 and all(each.name != "d" for each in symbols):
        # what is shared out to the heads is as wide, whatever it is called
        symbols.append(replace(LEGEND["d"], fixed=wide // heads))
    return replace(plan, symbols=tuple(symbols))


def declared_sizes(plan: Plan, others: Mapping[str, int]) -> dict[str, int]:
    """The sizes that were declared, and others of what was left open. Where only a product was, its factors make it."""
    out = {**others, **plan.real}
    equals = {each.name: each.equals for each in plan.symbols if each.equals}
    for name in (each for each in equals if each in plan.real):
        rest, unknown = plan.real[name], list[str]()
        for factor in _free_factors(name, plan.real, equals):
            if factor.isdigit() or factor in plan.real:
                rest //= int(factor) if factor.isdigit() else out[factor]
            else:
                unknown.append(factor)
        for factor in unknown[:-1]:
            out[factor] = next((part for part in range(2, rest) if rest % part == 0), 1)
            rest //= out[factor]
        out |= dict.fromkeys(unknown[-1:], rest)
    for name, expression in equals.items():
        out[name] = evaluated(expression, out)
    return out


def _free_factors(name: str, known: Mapping[str, int], equals: Mapping[str, str]) -> list[str]:
    """What a product is made of: whole numbers, known sizes, and free symbols."""
    out: list[str] = []
    for factor in _factors(equals[name]):
        is_made = factor in equals and factor not in known
        out += _free_factors(factor, known, equals) if is_made else [factor]
    return out


def loosened(plan: Plan, named: Callable[[Plan], Plan], runs: Callable[[Plan], bool]) -> Plan:
    """A plan that runs with fixed sizes, with as many of them free as it still runs with.

    named: the plan with all its symbols as they are where nothing is declared.
    """
    free = {each.name: each for each in named(plan).symbols}
    bound = {each.name for each in free.values() if each.equals}
    out = plan
    for name in (each for each in free if each not in bound):
        # what is made of it varies with it
        made = {each for each in bound if name in spoken(free[each].equals)}
        symbols = tuple(free.get(each.name, each) if each.name in {name, *made} else each for each in out.symbols)
        wider = replace(out, symbols=symbols)
        if wider != out and runs(wider):
            out = wider
    return out


def _pairs(plan: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The expressions of a plan, and the numbers that are declared in their places."""
    for name, value in said.items():
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


def _bound(there: Any, said: Any, pairs: Pairs) -> Any:
    """A declared value with what stands in its place in a plan for each of its numbers that is a size there.

    there: the value in the plan. pairs: gets the expressions with their numbers.
    """
    if is_number(said):
        if not isinstance(there, str) or not _is_size(there):
            return said
        pairs.append((there, said))
        return there
    if isinstance(said, list):
        if not is_numeric(said):
            return said
        if not isinstance(there, list) or len(there) != len(said):
            raise Mismatch(repr(said))
        pairs += _paired(there, said)
        return [str(each) for each in there] if [str(each) for each in there] != there else there
    if isinstance(said, Mapping) and isinstance(there, Mapping):
        for key in ("_tuple", "_ids"):
            if key in said:
                return _inner(there, said, key, pairs)
        if "_expr" in said and "_expr" in there:
            return {"_expr": _expression(str(there["_expr"]), str(said["_expr"]), pairs)}
    elif isinstance(said, Mapping) and "_expr" not in said and is_numeric(said):
        raise Mismatch(repr(said))
    return said


def _inner(there: Mapping[str, Any], said: Mapping[str, Any], key: str, pairs: Pairs) -> dict[str, Any]:
    """Several values, or token numbers and what they are below."""
    old, new = there.get(key), said[key]
    if not isinstance(old, list | tuple) or len(old) != len(new):
        raise Mismatch(repr(said))
    out: dict[str, Any] = {**said, key: [_bound(a, b, pairs) for a, b in zip(old, new, strict=True)]}
    if "below" in said:
        out["below"] = _bound(there.get("below"), said["below"], pairs)
    return out


def _expression(there: str, said: str, pairs: Pairs) -> str:
    """Python that is declared, with the symbols of what stands in its place."""
    try:
        old, new = (ast.parse(each, mode="eval").body for each in (there, said))
    except SyntaxError:
        return said
    before = len(pairs)
    text = ast.unparse(_joined(old, new, pairs))
    if _plain(text) == _plain(there):
        return there
    return said if len(pairs) == before else text


def _joined(old: ast.AST, new: ast.AST, pairs: Pairs) -> Any:
    """A declared piece of Python with the symbols that stand in the places of its numbers."""
    if isinstance(new, ast.Constant):
        if is_number(new.value) and _is_size(ast.unparse(old)) and isinstance(old, ast.Name | ast.BinOp):
            pairs.append((_plain(ast.unparse(old)), int(str(new.value))))
            return old
        return new
    if isinstance(new, ast.Call) and isinstance(old, ast.Call):
        known = {each.arg: each.value for each in old.keywords}
        words = [
            ast.keyword(each.arg, _joined(known[each.arg], each.value, pairs) if each.arg in known else each.value)
            for each in new.keywords
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
    return bool(nodes) and all(isinstance(each, allowed) for each in nodes)


def _nodes(text: str) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return
    yield from ast.walk(tree.body)


def _solved(pairs: Sequence[tuple[str, int]], symbols: Sequence[Named]) -> dict[str, int] | None:
    """The sizes of symbols with which each expression is its number; None: there are none."""
    out = {each.name: each.fixed for each in symbols if each.fixed is not None}
    equals = {each.name: each.equals for each in symbols if each.equals}
    for _ in range(len(pairs) + len(equals) + 1):
        before = len(out)
        for expression, value in pairs:
            _solve(expression, value, out)
        for name, expression in equals.items():
            if name in out:
                _solve(expression, out[name], out)
            elif set(spoken(expression)) <= set(out):
                out[name] = evaluated(expression, out)
        if len(out) == before:
            break
    every = [*pairs, *((expression, out[name]) for name, expression in equals.items() if name in out)]
    return out if all(_fits(expression, value, out) for expression, value in every) else None


def _fits(expression: str, value: int, known: Mapping[str, int]) -> bool:
    """Whether an expression can be the value, as far as its symbols are known."""
    if set(spoken(expression)) <= set(known):
        return evaluated(expression, known) == value
    parts = [known[each] for each in _factors(expression) if each in known]
    return all(value % part == 0 for part in parts)


def _factors(expression: str) -> list[str]:
    """The factors of a product of names and numbers; none where it is another expression."""
    factors = expression.split("*")
    return factors if all(each.isidentifier() or each.isdigit() for each in factors) else []


def _solve(expression: str, value: int, known: dict[str, int]) -> None:
    """Learn the one symbol of an expression that is not known."""
    unknown = sorted(set(spoken(expression)) - set(known))
    if len(unknown) != 1:
        return
    name, factors = unknown[0], _factors(expression)
    if factors.count(name) == 1:
        rest = 1
        for each in factors:
            rest *= 1 if each == name else int(each) if each.isdigit() else known[each]
        if rest and value % rest == 0:
            known[name] = value // rest
        return
    fitting = (size for size in range(1, LARGEST) if evaluated(expression, {**known, name: size}) == value)
    size = next(fitting, None)
    if size is not None:
        known[name] = size
