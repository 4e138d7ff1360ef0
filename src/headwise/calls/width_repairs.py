"""Width repairs: what an error tells of how wide an input, or an axis of channels, should have been."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.calls.plan import Plan, evaluated
from headwise.calls.signature import parameters
from headwise.calls.symbols import spoken

__all__ = ["TOKEN_AXES", "expression_of", "mended", "recounted", "told_widths"]

# what the axes of tokens are called
TOKEN_AXES = ("L", "S")
# the fewest bands of a spectrum
BANDS = 16
ARITHMETIC = re.compile(r"operator, with a bool tensor is not supported")
LINEAR = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
PRODUCT = re.compile(r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)")
ENTRIES = re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)")
NORM = re.compile(r"normalized_shape=\[(\d+)\].*got input of size\s*\[(?:\d+, )*(\d+)\]", re.DOTALL)
CHANNELS = re.compile(r"to have \d+ channels|running_mean should contain|number of channels in input")
CONVOLUTION = re.compile(r"to have (\d+) channels, but got (\d+) channels")
GROUPS = re.compile(r"weight of shape \[(\d+)\] and input of shape \[\d+, (\d+)")
CELL = re.compile(r"hidden\d has inconsistent hidden_size: got (\d+), expected (\d+)")
HIDDEN = re.compile(r"Expected hidden(?:\[\d\])? size \((?:\d+, )*(\d+)\), got \[(?:\d+, )*(\d+)\]")
STATISTICS = re.compile(r"running_mean should contain (\d+) elements not (\d+)")


def mended(plan: Plan, error: Exception, *, declared: Collection[str] = ()) -> list[Plan]:
    """The plans that the error of a plan suggests, the likeliest first; none where it tells nothing.

    declared: sizes of the constructor that are lengths because the user declares them so: features may be as many.
    """
    said_mask = plan.call.get("_mask")
    if ARITHMETIC.search(str(error)) and isinstance(said_mask, Mapping) and "dtype" not in said_mask:
        return [replace(plan, call={**plan.call, "_mask": {**said_mask, "dtype": "float"}})]
    widths, sizes = told_widths(str(error)), plan.sizes(-1)
    if widths is None or widths[0] == widths[1]:
        return _beside_weights(plan, str(error), sizes)
    have, need = widths
    axis = 1 if CHANNELS.search(str(error)) else -1
    fitting = [
        name
        for name, value in plan.call.items()
        if isinstance(value, list) and len(value) >= abs(axis) + (axis > 0) and _size(value[axis], sizes) == have
    ]
    states = [*_in_tuples(plan, have, need, sizes)]
    if states and (not fitting or CELL.search(str(error))):
        return states
    if not fitting:
        return [*_joined(plan, have, need, sizes), *_wider(plan, need - have, sizes), *_behind_convolutions(plan)]
    width = expression_of(need, plan, sizes)
    out = []
    shapes = {name: plan.call[name] for name in fitting if axis == 1 and len(plan.call[name]) == 3}
    turned = [name for name, shape in shapes.items() if shape[-1] == width or shape[1] in TOKEN_AXES]
    if turned:
        # channels before tokens
        call = {n: [v[0], width, v[1]] if n in turned else v for n, v in plan.call.items()}
        out.append(replace(plan, call=call))
    for names in [*([[name] for name in fitting]), *([fitting] if len(fitting) > 1 else [])]:
        call = {
            name: [*value[:axis], width, *(value[axis + 1 :] if axis > 0 else [])] if name in names else value
            for name, value in plan.call.items()
        }
        if width.isdigit() or width in declared or not any(width in plan.call[name][1:] for name in names):
            # places that are as many as channels are would be told from them by nothing
            out.append(replace(plan, call=call))
    return [*out, *_as_one(plan, have, need, sizes)]


def _in_tuples(plan: Plan, have: int, need: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The plans in which several states in one argument are as wide as a cell takes them."""
    width = expression_of(need, plan, sizes)
    for name, value in plan.call.items():
        parts = value.get("_tuple", []) if isinstance(value, Mapping) else []
        if parts and all(isinstance(part, list) and _size(part[-1], sizes) == have for part in parts):
            yield replace(plan, call={**plan.call, name: {"_tuple": [[*part[:-1], width] for part in parts]}})


def _beside_weights(plan: Plan, text: str, sizes: Mapping[str, int]) -> list[Plan]:
    """The plans in which an input is as wide as something that the class was built with, beside which it was put."""
    if (match := ENTRIES.search(text)) is None:
        return []
    numbers = [int(match[1]), int(match[2])]
    # places that are as many as features are would be told from them by nothing
    names = [value for value in plan.init.values() if isinstance(value, str) and value not in TOKEN_AXES]
    built = [name for name in names if sizes.get(name) in numbers]
    out = []
    for have, need in (numbers, numbers[::-1]):
        wide = [
            name for name, value in plan.call.items() if isinstance(value, list) and len(value) == int(match[3]) + 1
        ]
        wide = [name for name in wide if _size(plan.call[name][-1], sizes) == have]
        out += [
            replace(plan, call={**plan.call, name: [*plan.call[name][:-1], symbol]})
            for name in wide
            for symbol in built
            if sizes[symbol] == need
        ]
    return out


def _as_one(plan: Plan, have: int, need: int, sizes: Mapping[str, int]) -> list[Plan]:
    """The plan in which two widths of a constructor are one, where one argument is used as both, and is no query."""
    init = [value for value in plan.init.values() if isinstance(value, str)]
    free = {
        symbol.name
        for symbol in plan.symbols
        if not symbol.equals and symbol.fixed is None and symbol.meaning == "parameter"
    }
    a, b = ([name for name in init if name in free and sizes[name] == size] for size in (have, need))
    if len(a) != 1 or len(b) != 1 or sum(a[0] in spoken(value) for value in plan.call.values()) != 1:
        return []
    return [
        replace(
            plan,
            symbols=tuple(replace(symbol, equals=a[0]) if symbol.name == b[0] else symbol for symbol in plan.symbols),
        )
    ]


def _joined(plan: Plan, have: int, need: int, sizes: Mapping[str, int]) -> list[Plan]:
    """The plans where two arguments, put side by side, have the width that was needed."""
    inputs = {name: value for name, value in plan.call.items() if isinstance(value, list)}
    pairs = [(a, b) for a in inputs for b in inputs if a < b]
    widths = list(dict.fromkeys(value for value in plan.init.values() if isinstance(value, str)))
    widths += [f"2*{each}" for each in widths]
    out = []
    for a, b in pairs:
        if _size(inputs[a][-1], sizes) + _size(inputs[b][-1], sizes) != have:
            continue
        if need % 2 == 0 and not any(sizes[each] == need for each in widths if each in sizes):
            # a number of the class's own, of which each has half, as of places and colours
            out.append(
                replace(plan, call={**plan.call, **{each: [*inputs[each][:-1], str(need // 2)] for each in (a, b)}})
            )
        labels = {symbol.name: symbol.said or symbol.name for symbol in plan.symbols}
        for x in sorted(widths, key=lambda width: not _resembles(a, width, labels)):
            for y in widths:
                if x != y and _size(x, sizes) + _size(y, sizes) == need:
                    call = {**plan.call, a: [*inputs[a][:-1], x], b: [*inputs[b][:-1], y]}
                    out.append(replace(plan, call=call))
    return out


def _wider(plan: Plan, more: int, sizes: Mapping[str, int]) -> list[Plan]:
    """The plans in which one input is wider by so much, as what the class was built with is, or a number that it has by
    default, where others stand beside.

    Only a width that nothing is built with is another one.
    """
    built = [value for value in plan.init.values() if isinstance(value, str) and value in sizes]
    widths = [*((value, sizes[value]) for value in built), *((each, each) for each in sorted(_defaults(plan)))]
    inputs = {name: value for name, value in plan.call.items() if isinstance(value, list) and len(value) > 1}
    return [
        replace(plan, call={**plan.call, name: [*shape[:-1], width]})
        for name, shape in inputs.items()
        for width, size in widths
        if str(shape[-1]) in sizes and shape[-1] not in spoken(list(plan.init.values()))
        and size - sizes[str(shape[-1])] == more and width not in TOKEN_AXES
    ]  # fmt: skip


def _behind_convolutions(plan: Plan) -> Iterator[Plan]:
    """The plans whose first input has as many features as a number that the class has by default, as of the bands of a
    spectrum, where convolutions make of them what a layer takes.
    """
    name, shape = next(((name, given) for name, given in plan.call.items() if isinstance(given, list)), ("", []))
    if len(shape) != 3 or str(shape[-1]).isdigit():
        return
    built = plan.build(plan.sizes(-1))
    if isinstance(built, nn.Module) and any(isinstance(module, nn.Conv2d) for module in built.modules()):
        call = {key: value for key, value in plan.call.items() if key != "_layout"}
        for number in sorted(each for each in _defaults(plan) if each >= BANDS):
            yield replace(plan, call={**call, name: ["B", "L", number]})


def recounted(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The plans in which a table has as many columns as the class was built for, where both met one more or as many."""
    built = [value for value in plan.init.values() if isinstance(value, str) and value in sizes]
    for name, shape in plan.call.items():
        if not isinstance(shape, list) or len(shape) != 2:
            continue
        have = _size(shape[-1], sizes)
        for symbol in built:
            if sizes[symbol] != have and any({have + k, sizes[symbol] + k} <= {*numbers} for k in (0, 1)):
                call = {key: value for key, value in plan.call.items() if key != "_layout"}
                yield replace(plan, call={**call, name: [shape[0], symbol]})


def _resembles(argument: str, expression: str, labels: Mapping[str, str]) -> bool:
    """Whether what an argument is called begins as what a symbol is: `encoder_outputs` and `enc_hid_dim`."""
    return any(labels.get(name, name)[:3] == argument[:3] for name in spoken(expression))


def expression_of(need: int, plan: Plan, sizes: Mapping[str, int]) -> str:
    """The simplest expression for a size that was needed; the number where there is none."""
    init = [value for value in plan.init.values() if isinstance(value, str)]
    symbols = [name for name in sizes if name not in ("B", "L", "S")]
    names = [*("D" for name in symbols if name == "D"), *init, *symbols]
    if need not in _defaults(plan):
        # what the class has by default is made of nothing else
        names += [f"{a}*{b}" for a in symbols for b in symbols]
        names += [f"{factor}*{name}" for factor in (2, 3, 4) for name in symbols]
    for expression in names:
        if set(spoken(expression)) <= set(sizes) and _size(expression, sizes) == need:
            return expression
    return str(need)


def _defaults(plan: Plan) -> set[int]:
    """The sizes that a class has by default, where it was built without them."""
    own = parameters(plan.target) if isinstance(plan.target, type) else []
    return {each.default for each in own if type(each.default) is int and each.name not in plan.init}


def _size(value: Any, sizes: Mapping[str, int]) -> int:
    try:
        return evaluated(value, sizes) if isinstance(value, str) else int(value)
    except (KeyError, SyntaxError, ValueError, TypeError):
        return -1


def told_widths(text: str) -> tuple[int, int] | None:
    """The size of an axis that came, and the one that was needed."""
    if match := LINEAR.search(text):
        return int(match[2]), int(match[3])
    if match := STATISTICS.search(text):
        return int(match[1]), int(match[2])
    if match := CONVOLUTION.search(text) or GROUPS.search(text) or HIDDEN.search(text):
        return int(match[2]), int(match[1])
    if match := NORM.search(text):
        return int(match[2]), int(match[1])
    if match := PRODUCT.search(text):
        return int(match[2]), int(match[1])
    if match := CELL.search(text):
        return int(match[1]), int(match[2])
    return None
