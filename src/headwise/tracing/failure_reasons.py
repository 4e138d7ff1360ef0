"""Failure reasons: why an operation failed, in symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.dataflow import Expressions, Sizes, product
from headwise.recording import Operation
from headwise.wording import say

__all__ = ["reason"]

RESHAPES = frozenset({"view", "reshape", "_unsafe_view"})


def reason(
    operations: Sequence[Operation],
    shapes: Sequence[str],
    expressions: Expressions,
    meanings: Mapping[str, str],
    lang: str,
) -> str:
    """One sentence on an operation that failed in every run.

    shapes: of its inputs, in symbols. meanings: of each symbol, in words.
    """
    first = operations[0]
    sizes = _sizes(operations)
    if first.name in RESHAPES and sizes:
        return _of_a_view(operations, shapes[0], sizes, expressions, meanings, lang)
    if first.name in ("@", "matmul", "bmm", "mm") and len(sizes) == 2 and min(map(len, sizes)) > 1:
        inner = expressions.name(sizes[0][-1]), expressions.name(sizes[1][-2])
        if inner[0] != inner[1]:
            return say("trace.reason.product", lang=lang, left=shapes[0], right=shapes[1], a=inner[0], b=inner[1])
    if first.name == "linear" and len(sizes) > 1 and sizes[0] and sizes[1]:
        inner = expressions.name(sizes[0][-1]), expressions.name(sizes[1][-1])
        if inner[0] != inner[1]:
            return say("trace.reason.linear", lang=lang, shape=shapes[0], a=inner[0], b=inner[1])
    if first.name == "einsum":
        return _of_an_einsum(operations, shapes, sizes, expressions, lang)
    if len(sizes) == 2:
        for place in range(-min(map(len, sizes)), 0):
            a, b = sizes[0][place], sizes[1][place]
            if a != b and set(a) != {1} and set(b) != {1}:
                names = expressions.name(a), expressions.name(b)
                return say(
                    "trace.reason.broadcast", lang=lang, op=first.name, left=shapes[0], right=shapes[1],
                    a=names[0], b=names[1], axis=place,
                )  # fmt: skip
    return say("trace.reason.other", lang=lang, op=first.name, shapes=", ".join(shapes) or "-")


def _of_an_einsum(
    operations: Sequence[Operation],
    shapes: Sequence[str],
    sizes: list[tuple[Sizes, ...]],
    expressions: Expressions,
    lang: str,
) -> str:
    """One sentence on the letter of an equation that has two sizes."""
    first = operations[0]
    equation = next((value for value in first.arguments.values() if isinstance(value, str)), "").replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    # the letters of an equation inside a library mean nothing to the user
    if equation and equation in first.span.source.replace(" ", "") and len(terms) == len(sizes):
        letters: dict[str, Sizes] = {}
        for term, axes in zip(terms, sizes, strict=True):
            before, _, after = term.partition("...")
            ends = after or ("" if "..." in term else before)
            starts = before if "..." in term else ""
            named = [*zip(starts, axes, strict=False), *zip(reversed(ends), reversed(axes), strict=False)]
            for letter, axis in named:
                bound = letters.setdefault(letter, axis)
                if bound != axis and set(bound) != {1} and set(axis) != {1}:
                    return say(
                        "trace.reason.letter", lang=lang, op=first.name, left=shapes[0], right=shapes[-1],
                        letter=letter, a=expressions.name(bound), b=expressions.name(axis),
                    )  # fmt: skip
    return say("trace.reason.other", lang=lang, op=first.name, shapes=", ".join(shapes) or "-")


def _sizes(operations: Sequence[Operation]) -> list[tuple[Sizes, ...]]:
    out = []
    for together in zip(*[operation.inputs for operation in operations], strict=False):
        if len({len(each.shape) for each in together}) > 1:
            return []
        out.append(tuple(zip(*[each.shape for each in together], strict=True)))
    return out


def _of_a_view(
    operations: Sequence[Operation],
    shape: str,
    sizes: list[tuple[Sizes, ...]],
    expressions: Expressions,
    meanings: Mapping[str, str],
    lang: str,
) -> str:
    asked = [_asked(operation.arguments) for operation in operations]
    if len({len(each) for each in asked}) > 1 or not asked[0]:
        return say("trace.reason.other", lang=lang, op=operations[0].name, shapes=shape)
    wanted = [tuple(each) for each in zip(*asked, strict=True)]
    texts = [("-1" if set(each) == {-1} else expressions.name(each)) for each in wanted]
    there = product(sizes[0], len(operations))
    sentence = say("trace.reason.view", lang=lang, op=operations[0].name, shape=shape, asked=f"[{', '.join(texts)}]")
    for at, text in enumerate(texts):
        for symbol, symbol_sizes in expressions.symbols.items():
            if text in expressions.symbols and symbol != text:
                changed = product(
                    [symbol_sizes if place == at else each for place, each in enumerate(wanted)], len(operations)
                )
                if changed == there:
                    return sentence + say(
                        "trace.reason.swapped", lang=lang, a=text, meaning=meanings.get(text, text), b=symbol
                    )
    if product([each for each in wanted if set(each) != {-1}], len(operations)) == there:
        return sentence + say("trace.reason.noncontiguous", lang=lang)
    return sentence


def _asked(arguments: Mapping[str, Any]) -> list[int]:
    """The sizes in the arguments of a view."""
    values = [value for name, value in arguments.items() if name.isdigit() and int(name) > 0]
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    shape = arguments.get("shape", arguments.get("size"))
    if isinstance(shape, tuple | list):
        values = list(shape)
    return [value for value in values if isinstance(value, int)]
