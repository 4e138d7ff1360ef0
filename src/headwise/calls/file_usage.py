"""File usage: how a file itself builds and calls a class, and the usual sizes, where the search found nothing."""

from __future__ import annotations

import ast
import doctest
import inspect
import linecache
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from headwise.calls.argument_axes import last
from headwise.calls.plan import Named
from headwise.calls.request import Wish
from headwise.calls.roles import init_role
from headwise.calls.signature import callee, parameters
from headwise.calls.size_bindings import is_number
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import LEGEND, LETTERS, MORE
from headwise.calls.user_values import Given, checked_call, checked_init

__all__ = ["at_defaults", "is_small", "spelled", "used", "usual"]

# what makes a tensor of a shape, and what gives back what it is called on
MAKERS = frozenset({"rand", "randn", "zeros", "ones", "empty", "randint", "Tensor", "FloatTensor", "normal"})
KEEPERS = frozenset({"cuda", "to", "float", "cpu", "eval", "train", "half", "double", "requires_grad_", "long"})
MOST = 4
OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
# a width and its heads, as layers most often have them
USUAL = ((64, 4), (512, 8), (256, 4))
GROUPS = 2
# numbers of a tensor, as a file's own sizes make it
LARGEST = 1 << 25


@dataclass(frozen=True)
class Usage:
    """What a constructor and a call are given: numbers, words, and the shapes of tensors as lists."""

    init: Mapping[str, Any]
    call: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Instance:
    """An instance of the target."""

    init: Mapping[str, Any]


class _Unknown:
    """What is not known without running it."""


UNKNOWN = _Unknown()


def _usages(target: Any, namespace: Mapping[str, Any]) -> list[Usage]:
    """The ways in which a file uses a target, those with a call first; what is read of it is not run."""
    name = getattr(target, "__name__", "")
    usages: list[Usage] = []
    for tree in _trees(target, namespace):
        for body in _bodies(tree):
            reader = _Reader(name, target)
            reader.read(body)
            usages += [usage for usage in reader.usages if usage not in usages]
    return sorted(usages, key=lambda usage: not usage.call)[:MOST]


def _trees(target: Any, namespace: Mapping[str, Any]) -> Iterator[ast.Module]:
    """The file of a target, its other cells, and the examples in its words."""
    file = str(namespace.get("__file__") or getattr(getattr(target, "__code__", None), "co_filename", ""))
    # the cells of a notebook are told apart by a number
    root = re.sub(r"\[\d+\]$", "", file)
    texts = ["".join(linecache.getlines(path)) for path in dict.fromkeys([file, *linecache.cache]) if root
             and path.startswith(root)]  # fmt: skip
    words = [target.__doc__, getattr(getattr(target, "forward", None), "__doc__", "")]
    for docstring in words:
        try:
            texts.append("".join(example.source for example in doctest.DocTestParser().get_examples(docstring or "")))
        except ValueError:
            continue
    for text in texts:
        try:
            yield ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            continue


def _bodies(tree: ast.Module) -> Iterator[Sequence[ast.stmt]]:
    """What runs one after the other: the file with what its guards hold, and each function that takes nothing."""
    flat: list[ast.stmt] = []
    for statement in tree.body:
        flat += statement.body if isinstance(statement, ast.If | ast.With) else [statement]
    yield flat
    yield from (node.body for node in flat if isinstance(node, ast.FunctionDef) and not node.args.args)


class _Reader:
    """Reads statements in their order: what names stand for, how the target is built, and what it is called with."""

    def __init__(self, name: str, target: Any) -> None:
        self._name, self._target = name, target
        self._values: dict[str, Any] = {}
        self.usages: list[Usage] = []

    def read(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.With):
                self.read(statement.body)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._bind(statement.targets[0], statement.value)
            else:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Call):
                        self._value(node)

    def _bind(self, to: ast.expr, value: ast.expr) -> None:
        if isinstance(to, ast.Tuple) and isinstance(value, ast.Tuple) and len(to.elts) == len(value.elts):
            for target, element in zip(to.elts, value.elts, strict=True):
                self._bind(target, element)
            return
        content = self._value(value)
        names = to.elts if isinstance(to, ast.Tuple) else [to]
        is_same = isinstance(value, ast.GeneratorExp | ast.ListComp)
        for name in names if is_same or len(names) == 1 else []:
            if isinstance(name, ast.Name):
                self._values[name.id] = content

    def _value(self, node: ast.expr) -> Any:
        """What an expression stands for, as far as that is plain."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._values.get(node.id, UNKNOWN)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(self._value, node.elts))
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return self._value(node.elt)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            a, b = self._value(node.left), self._value(node.right)
            return OPERATORS[type(node.op)](a, b) if type(a) is int and type(b) is int and b else UNKNOWN
        return self._called(node) if isinstance(node, ast.Call) else UNKNOWN

    def _called(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in KEEPERS:
            return self._value(function.value)
        if last(function) in MAKERS:
            return self._shape(node)
        of_target = isinstance(self._target, type)
        if last(function) == self._name and isinstance(function, ast.Name | ast.Attribute):
            if of_target:
                init = self._arguments(node, self._target)
                self.usages += [] if init is None else [Usage(init)]
                return UNKNOWN if init is None else _Instance(init)
            self._add({}, node)
            return UNKNOWN
        instance = self._value(function) if isinstance(function, ast.Name | ast.Call) else UNKNOWN
        if isinstance(instance, _Instance):
            self._add(instance.init, node)
        return UNKNOWN

    def _add(self, init: Mapping[str, Any], node: ast.Call) -> None:
        call = self._arguments(node, callee(self._target))
        if call and any(isinstance(each, list) for each in call.values()):
            self.usages.append(Usage(init, call))

    def _shape(self, node: ast.Call) -> Any:
        """The shape of a tensor that is made, as a list."""
        sizes = [self._value(argument) for argument in node.args]
        sized = [self._value(keyword.value) for keyword in node.keywords if keyword.arg == "size"]
        if last(node.func) in ("randint", "normal") and not sized:
            sizes = [size for size in sizes if isinstance(size, tuple)][:1]
        shape = [*(sized or sizes)]
        shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if not shape or not all(type(size) is int and size > 0 for size in shape):
            return UNKNOWN
        return {"_ids": shape, "below": "2"} if last(node.func) == "randint" else shape

    def _arguments(self, node: ast.Call, function: Any) -> dict[str, Any] | None:
        """What the parameters of a function are given; None: that is not plain, or not what it takes."""
        names = [
            parameter.name for parameter in parameters(function) if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        if len(node.args) > len(names) or any(isinstance(argument, ast.Starred) for argument in node.args):
            return None
        every = {parameter.name for parameter in parameters(function)}
        pairs = [*zip(names, node.args, strict=False), *((keyword.arg, keyword.value) for keyword in node.keywords)]
        out = {name: self._value(value) for name, value in pairs if name in every}
        if len(out) < len(pairs) or any(value is UNKNOWN for value in out.values()):
            return None
        return {name: _as_given(value) for name, value in out.items() if name is not None}


def _as_given(value: Any) -> Any:
    """A value as `--init` and `--call` take it."""
    return {"_tuple": [_as_given(each) for each in value]} if isinstance(value, tuple) else value


def used(
    target: Any, namespace: Mapping[str, Any], built: Sequence[inspect.Parameter], called: Sequence[inspect.Parameter]
) -> Iterator[tuple[Given, Given]]:
    """What the file itself gives a target, the numbers that may vary apart."""
    for usage in _usages(target, namespace):
        yield checked_init(dict(usage.init), built), checked_call(dict(usage.call), called)


def is_small(init: Given, call: Given) -> bool:
    """Whether a file's own sizes make no tensor so large that trying takes the machine: no weights from the largest to
    the next, nothing that is given, no scores of all its tokens.
    """
    numbers = [each for each in (*init.freed.values(), *init.kept.values()) if type(each) is int and each > 0]
    shapes = [each for each in call.freed.values() if isinstance(each, list)]
    scores = [shape[0] * prod(shape[1:-1]) ** 2 for shape in shapes]
    return all(each <= LARGEST for each in (prod(sorted(numbers)[-2:]), *map(prod, shapes), *scores))


def spelled(init: Given, call: Given) -> Wish:
    """The sizes of a file's own use with a name each: what a number of the constructor is again, is that size.

    The first of several axes is the batch, which may vary.
    """
    symbols: dict[str, Named] = {}
    names: dict[int, str] = {}
    out: dict[str, Any] = {**init.kept, **init.freed}
    for name, value in ((name, each) for name, each in init.freed.items() if _is_size(name, each)):
        letter = LETTERS.get(init_role(name), "")
        symbol = letter if letter and letter not in symbols else name
        symbols[symbol] = replace(LEGEND.get(symbol, Named(symbol, "parameter")), said=name, fixed=value)
        out[name] = symbol
        names.setdefault(value, symbol)
    if "d" not in symbols and {"D", "H"} <= symbols.keys():
        wide, heads = symbols["D"].fixed or 0, symbols["H"].fixed or 1
        symbols["d"] = replace(LEGEND["d"], fixed=wide // heads)
    shapes: dict[str, Any] = {**call.kept, **call.freed}
    lists = {name: shape for name, shape in call.freed.items() if isinstance(shape, list)}
    batches = {shape[0] for shape in lists.values() if len(shape) > 2}
    for name, shape in lists.items():
        axes = [names.get(size, size) for size in shape]
        shapes[name] = ["B", *axes[1:]] if shape[0] in batches and len(batches) == 1 else axes
    return Wish(out, shapes, symbols=symbols, ranks={name: len(shape) for name, shape in lists.items()})


def _is_size(name: str, value: Any) -> bool:
    """Whether what a parameter is given is a size: one alone is most often none."""
    return type(value) is int and (value > 1 or init_role(name) in LETTERS)


def at_defaults(built: Sequence[inspect.Parameter], cross: bool | None) -> Wish | None:
    """The sizes that a constructor has by default, where one of them is the height and width of an image: they go
    together. None: none is.
    """
    pairs = [param for param in built if isinstance(param.default, tuple | list) and len(param.default) == len("hw")]
    if len(pairs) != 1 or not all(map(is_number, pairs[0].default)):
        return None
    height, width = pairs[0].default
    fixed = {"L": height * width, "h": height, "w": width}
    symbols = {name: replace({**LEGEND, **MORE}[name], fixed=size) for name, size in fixed.items()}
    numbers = {
        parameter.name: parameter.default
        for parameter in built
        if is_number(parameter.default) and init_role(parameter.name) not in LETTERS
    }
    return Wish({**numbers, pairs[0].name: pairs[0].default}, symbols=symbols, cross=cross)


def usual(built: Sequence[inspect.Parameter], reading: Reading) -> Iterator[Wish]:
    """The sizes that a constructor has by default, and those that layers usually have."""
    names = [each.name for each in built] + [name.strip("[]") for read in reading.attributes.values() for name in read]
    letters = {LETTERS.get(init_role(name), "") for name in names}
    if not letters & {"D", "H"}:
        return
    defaults = {
        LETTERS.get(init_role(param.name), ""): param.default for param in reversed(built) if type(param.default) is int
    }
    sizes = list(USUAL)
    if {"D", "H"} & defaults.keys():
        heads = defaults.get("H", USUAL[0][1])
        sizes.insert(0, (defaults.get("D", heads * (USUAL[0][0] // USUAL[0][1])), heads))
    for wide, heads in dict.fromkeys(sizes):
        letter_sizes = {"D": wide, "H": heads, "d": max(1, wide // max(heads, 1)), "Hkv": max(1, heads // GROUPS)}
        fitting = letters | ({"d"} if {"D", "H"} <= letters else set())
        yield Wish(
            symbols={name: replace(LEGEND[name], fixed=size) for name, size in letter_sizes.items() if name in fitting}
        )
