"""Legend: what the letters of a trace mean, how its code was built and called, and what it did not define."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headwise.tracing.steps import Problem, Symbol, Trace
from headwise.wording import say

__all__ = ["MEANINGS", "called", "condition", "legend", "notices"]

# the sentence of each meaning that a symbol can have
MEANINGS = {
    "batch": "trace.meaning.batch",
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
# the sentence of each setting that a problem can have
CONDITIONS = {"cross": "trace.cross_only", "guessed": "trace.guessed"}
WORD = re.compile(r"[A-Za-z_]\w*")


def legend(trace: Trace, *, real: bool = False) -> list[str]:
    """The symbols that the shapes of a trace use, each with what it means and what the code calls it.

    real: with their sizes in the run that is shown.
    """
    used = {
        word
        for step in trace.steps
        for shape in (*step.inputs, *step.outputs)
        for axis in shape.axes
        for word in WORD.findall(axis.text)
    }
    return [_entry(each, trace.lang, real) for each in trace.symbols if each.name in used or not used]


def _entry(symbol: Symbol, lang: str, real: bool) -> str:
    size = f" = {symbol.size}" if real else ""
    if symbol.meaning == "parameter":
        bound = f" = {symbol.equals}" if symbol.equals else ""
        said = symbol.said if symbol.said != symbol.name else ""
        return f"{symbol.name}{bound}{size} {said}".strip()
    said = f" ({symbol.said})" if symbol.said and symbol.said != symbol.name else ""
    if symbol.equals:
        return f"{symbol.name} = {symbol.equals}{size}{said}"
    return f"{symbol.name}{size} {say(MEANINGS[symbol.meaning], lang=lang)}{said}"


def called(trace: Trace) -> str:
    """How the code was built and called, as Python would write it, with symbols for sizes; "": that is not known."""
    name = trace.target.rpartition(":")[2]
    built = "" if not trace.init else _arguments(trace.init)
    given = "" if trace.call is None else _arguments(trace.call)
    if trace.init is None:
        return f"{name}({given})" if trace.call is not None else ""
    return f"{name}({built})({given})"


def notices(trace: Trace) -> Iterator[str]:
    """What a person should know besides: names that were supplied, problems without a place, comments compared."""
    if trace.supplied:
        yield say("trace.supplied", lang=trace.lang, names=", ".join(trace.supplied))
    if not trace.steps and not trace.problems:
        yield say("trace.nothing", lang=trace.lang)
    if trace.comments:
        wrong = sum(1 for each in trace.comments if each.true)
        yield say("trace.comments", lang=trace.lang, right=len(trace.comments) - wrong, wrong=wrong)


def condition(problem: Problem, lang: str) -> str:
    """When a problem arises; "": always."""
    key = CONDITIONS.get(problem.setting)
    return "" if key is None else say(key, lang=lang)


def _arguments(given: Mapping[str, Any]) -> str:
    said = [f"{name}={_value(value)}" for name, value in given.items() if not name.startswith("_")]
    mask = given.get("_mask")
    if isinstance(mask, Mapping) and "argument" in mask:
        said.append(f"{mask['argument']}={_value(mask.get('shape'))} {mask.get('means', '')}".rstrip())
    return ", ".join(said)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        if "_expr" in value:
            return str(value["_expr"])
        inner = value.get("_tuple", value.get("_ids"))
        return f"({', '.join(_value(each) for each in inner)})" if inner is not None else str(dict(value))
    return str(value)
