"""Legend: the meanings of a trace's symbols, the call of its code, and the names that headwise supplied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.dataflow import NamedAxis
from headwise.tracing.steps import Problem, Step, Symbol, Trace
from headwise.tracing.symbol_names import renamed
from headwise.wording import say

__all__ = ["MEANINGS", "called", "condition", "legend", "notices", "told_by_attentions"]

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
# torch's own attentions, which take queries and then keys
FUSED = ("scaled_dot_product_attention", "MultiheadAttention")


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
    # and those that one of them is made of
    used |= {word for symbol in trace.symbols if symbol.name in used for word in WORD.findall(symbol.equals)}
    symbols = [symbol for symbol in trace.symbols if symbol.name in used or not used]
    if not _tells_apart(trace):
        symbols = [replace(each, meaning="length") if each.meaning in LENGTHS else each for each in symbols]
    return [_entry(symbol, _parameters(symbol, trace), trace.lang, real) for symbol in symbols]


def told_by_attentions(trace: Trace) -> Trace:
    """The trace with the length of queries and that of keys exchanged, where all of torch's own attentions say so: an
    argument that is called as keys often are may hold the queries. Scores of the code's own may be transposed.
    """
    pair = _lengths(trace)
    scored = [_scored_lengths(step, pair) for step in trace.steps if step.op in FUSED]
    if len(pair) < len(LENGTHS) or pair in scored or pair[::-1] not in scored:
        return trace
    turned = renamed(trace, {pair[0]: pair[1], pair[1]: pair[0]})
    meanings = dict(zip(pair, LENGTHS, strict=True))
    symbols = tuple(replace(each, meaning=meanings.get(each.name, each.meaning)) for each in turned.symbols)
    order = [symbol.name for symbol in trace.symbols]
    return replace(turned, symbols=tuple(sorted(symbols, key=lambda symbol: order.index(symbol.name))))


def _tells_apart(trace: Trace) -> bool:
    """Whether queries have the one length and keys the other, in an attention whose scores are seen, if any are."""
    pair = _lengths(trace)
    scored = [lengths for step in trace.steps if _scored(step) and (lengths := _scored_lengths(step, pair))]
    return len(pair) > 1 and (not any(map(_scored, trace.steps)) or pair in scored)


def _lengths(trace: Trace) -> list[str]:
    """The symbols of the length of queries and of that of keys, as far as there are such."""
    names = {symbol.meaning: symbol.name for symbol in trace.symbols if symbol.meaning in LENGTHS}
    return [names[meaning] for meaning in LENGTHS if meaning in names]


def _scored_lengths(step: Step, pair: Sequence[str]) -> list[str]:
    """The lengths along the axes of an attention's queries and keys, also of those to which others are joined."""
    return [word for axis in _scored(step) for word in WORD.findall(axis.text) if word in pair]


def _scored(step: Step) -> list[NamedAxis]:
    """The axes of the queries and the keys of an attention; none: the operation is no part of one."""
    shapes = [shape.axes for shape in step.inputs if len(shape.axes) > 1]
    if step.op == "softmax":
        return list(shapes[0]) if shapes else []
    return [axes[-2] for axes in shapes[:2]] if step.op in FUSED else []


def _parameters(symbol: Symbol, trace: Trace) -> str:
    """What the code calls a size: each parameter of the constructor that is given it."""
    sizes = (symbol.name, symbol.equals) if symbol.equals else (symbol.name,)
    names = [name for name, value in (trace.init or {}).items() if value in sizes]
    return ", ".join(dict.fromkeys([symbol.said, *names] if symbol.said in names else [symbol.said]))


def _entry(symbol: Symbol, parameters: str, lang: str, real: bool) -> str:
    size = f" = {symbol.size}" if real else ""
    if symbol.meaning == "parameter":
        bound = f" = {symbol.equals}" if symbol.equals else ""
        alias = parameters if parameters != symbol.name else ""
        return f"{symbol.name}{bound}{size} {alias}".strip()
    alias = f" ({parameters})" if parameters and parameters != symbol.name else ""
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
