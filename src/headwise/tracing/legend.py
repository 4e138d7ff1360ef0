"""Legend: the meanings of a trace's symbols, the call of its code, and the names that headwise supplied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwise.dataflow import NamedAxis
from headwise.tracing.steps import Problem, Step, Symbol, Trace
from headwise.wording import say

__all__ = ["MEANINGS", "called", "condition", "legend", "notices"]

# the sentence of each meaning that a symbol can have
MEANINGS = {
    "batch": "trace.meaning.batch",
    "length": "trace.meaning.length",
    "queries": "trace.meaning.queries",
    "keys": "trace.meaning.keys",
    "heads": "trace.meaning.heads",
    "head_width": "trace.meaning.head_width",
    "width": "trace.meaning.width",
    "key_heads": "trace.meaning.key_heads",
    "value_width": "trace.meaning.value_width",
    "groups": "trace.meaning.groups",
    "parameter": "trace.meaning.parameter",
}
# the words for each meaning that a mask can have
MASK_MEANINGS = {
    "attend": "trace.means.attend",
    "blocked": "trace.means.blocked",
    "additive": "trace.means.additive",
    "lengths": "trace.means.lengths",
}
# the sentence of each setting that a problem can have
CONDITIONS = {"cross": "trace.cross_only", "guessed": "trace.guessed"}
WORD = re.compile(r"[A-Za-z_]\w*")
LENGTHS = ("queries", "keys")


def legend(trace: Trace, *, real: bool = False) -> list[str]:
    """The symbols in the shapes of a trace, each with its meaning and its name in the code.

    real: with their sizes in the shown run.
    """
    used = {
        word
        for step in trace.steps
        for shape in (*step.inputs, *step.outputs)
        for axis in shape.axes
        for word in WORD.findall(axis.text)
    }
    symbols = [symbol for symbol in trace.symbols if symbol.name in used or not used]
    if not _tells_apart(trace):
        symbols = [replace(each, meaning="length") if each.meaning in LENGTHS else each for each in symbols]
    return [_entry(symbol, trace.lang, real) for symbol in symbols]


def _tells_apart(trace: Trace) -> bool:
    """Whether queries have the one length and keys the other, in an attention whose scores are seen, if any are."""
    names = {symbol.meaning: symbol.name for symbol in trace.symbols if symbol.meaning in LENGTHS}
    scored = [[axis.text for axis in axes] for step in trace.steps if (axes := _scored(step))]
    pair = [names[meaning] for meaning in LENGTHS if meaning in names]
    return len(pair) > 1 and (not scored or any([axis for axis in axes if axis in pair] == pair for axes in scored))


def _scored(step: Step) -> list[NamedAxis]:
    """The axes of the queries and the keys of an attention; none: the operation is no part of one."""
    shapes = [shape.axes for shape in step.inputs if len(shape.axes) > 1]
    if step.op == "softmax":
        return list(shapes[0]) if shapes else []
    return [axes[-2] for axes in shapes[:2]] if step.op == "scaled_dot_product_attention" else []


def _entry(symbol: Symbol, lang: str, real: bool) -> str:
    size = f" = {symbol.size}" if real else ""
    if symbol.meaning == "parameter":
        bound = f" = {symbol.equals}" if symbol.equals else ""
        alias = symbol.said if symbol.said != symbol.name else ""
        return f"{symbol.name}{bound}{size} {alias}".strip()
    alias = f" ({symbol.said})" if symbol.said and symbol.said != symbol.name else ""
    if symbol.equals:
        return f"{symbol.name} = {symbol.equals}{size}{alias}"
    return f"{symbol.name}{size} {say(MEANINGS[symbol.meaning], lang=lang)}{alias}"


def called(trace: Trace) -> str:
    """The call of the code as Python, with symbols for sizes; "": unknown."""
    name = trace.target.rpartition(":")[2]
    built = "" if not trace.init else _arguments(trace.init, trace.lang)
    arguments = "" if trace.call is None else _arguments(trace.call, trace.lang)
    if trace.init is None:
        return f"{name}({arguments})" if trace.call is not None else ""
    return f"{name}({built})({arguments})"


def notices(trace: Trace) -> Iterator[str]:
    """Further notices: supplied names, a trace without steps, and the count of checked comments."""
    if trace.supplied:
        yield say("trace.supplied", lang=trace.lang, names=", ".join(trace.supplied))
    if not trace.steps and not trace.problems:
        yield say("trace.nothing", lang=trace.lang)
    if trace.comments:
        wrong = sum(1 for comment in trace.comments if comment.true)
        others = [comment.place for comment in trace.comments if not comment.is_compared]
        is_one_file = len({each.file for each in others}) == 1
        counts = {"right": len(trace.comments) - wrong - len(others), "wrong": wrong}
        if others:
            places = (str(each.line) if is_one_file else f"{each.file}:{each.line}" for each in others)
            lines = ", ".join(dict.fromkeys(places))
            yield say("trace.comments_left", lang=trace.lang, left=len(others), lines=lines, **counts)
        else:
            yield say("trace.comments", lang=trace.lang, **counts)


def condition(problem: Problem, lang: str) -> str:
    """The condition of a problem; "": it always occurs."""
    key = CONDITIONS.get(problem.setting)
    return "" if key is None else say(key, lang=lang)


def _arguments(arguments: Mapping[str, Any], lang: str) -> str:
    parts = [f"{name}={_value(value)}" for name, value in arguments.items() if not name.startswith("_")]
    mask = arguments.get("_mask")
    if isinstance(mask, Mapping) and "argument" in mask:
        means = MASK_MEANINGS.get(mask.get("means", ""))
        parts.append(f"{mask['argument']}={_value(mask.get('shape'))}" + (f" {say(means, lang=lang)}" if means else ""))
    return ", ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        if "_expr" in value:
            return str(value["_expr"])
        inner = value.get("_tuple", value.get("_ids"))
        return f"({', '.join(_value(each) for each in inner)})" if inner is not None else str(dict(value))
    return str(value)
