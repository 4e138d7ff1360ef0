"""Symbol names: a trace with other names for its symbols, by name or by the axes of its first input."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.dataflow import NamedAxis, Shape
from headwise.tracing.steps import Problem, Step, Symbol, Trace
from headwise.wording import refusal

__all__ = ["asked", "renamed"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# the texts of these keys are no sizes
KEPT = ("argument", "means", "_layout")
INSIDE = re.compile(r"\[[^][]*\]")


def asked(trace: Trace, text: str) -> dict[str, str]:
    """The new names by `--names`: "D=E,L=Lq" renames symbols, "B,S,D" names the axes of the first input in order.

    >>> asked(Trace("f", {}, (Symbol("L", "queries", 5),), (), call={"x": ["L", 4]}), "T,4")
    {'L': 'T'}
    """
    words = [word.strip() for word in text.split(",")]
    if any("=" in word for word in words):
        pairs = [word.partition("=") for word in words]
        unpaired = next((old for old, sign, _ in pairs if not sign), None)
        if unpaired is not None:
            raise refusal("refuse.rename_pairs", given=unpaired, all=text)
        return {old.strip(): new.strip() for old, _, new in pairs}
    first = next((each for name, each in (trace.call or {}).items() if isinstance(each, list)), None)
    axes = [str(axis) for axis in first or ()]
    if len(axes) != len(words):
        raise refusal("refuse.rename_count", shape=f"[{', '.join(axes)}]", wanted=len(axes), got=len(words))
    symbols = {symbol.name for symbol in trace.symbols}
    for axis, word in zip(axes, words, strict=True):
        if axis not in symbols and axis != word:
            raise refusal("refuse.rename_bound", axis=axis, given=word)
    return {axis: word for axis, word in zip(axes, words, strict=True) if axis != word}


def renamed(trace: Trace, names: Mapping[str, str]) -> Trace:
    """A trace with other names for its symbols. Errors: Refusal for names that cannot be used."""
    present = [symbol.name for symbol in trace.symbols]
    for old, new in names.items():
        if old not in present:
            raise refusal("refuse.rename_unknown", known=", ".join(present), given=old)
        if not NAME.fullmatch(new):
            raise refusal("refuse.rename_word", given=new)
    after = [names.get(name, name) for name in present]
    twice = next((name for name in after if after.count(name) > 1), None)
    if twice is not None:
        raise refusal("refuse.rename_taken", given=twice)
    rename = _Renamer(names)
    return replace(
        trace,
        symbols=tuple(
            Symbol(rename(symbol.name), symbol.meaning, symbol.size, symbol.said, rename(symbol.equals))
            for symbol in trace.symbols
        ),
        steps=tuple(rename.step(step) for step in trace.steps),
        problems=tuple(rename.problem(problem) for problem in trace.problems),
        init=rename.plain(trace.init),
        call=rename.plain(trace.call),
    )


class _Renamer:
    """Renames symbols in expressions, and in the data that contain them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __call__(self, expression: str) -> str:
        # in one pass, so that two names can be swapped
        return NAME.sub(lambda match: self._names.get(match[0], match[0]), expression)

    def step(self, step: Step) -> Step:
        return replace(
            step,
            inputs=self._shapes(step.inputs),
            outputs=self._shapes(step.outputs),
            times=self(step.times),
            kernels=tuple(self._inside(kernel) for kernel in step.kernels),
        )

    def problem(self, problem: Problem) -> Problem:
        # the symbols of a sentence are separate words; "a" and "I" are English ones
        single = {old: new for old, new in self._names.items() if old not in ("a", "I")}
        reason = NAME.sub(lambda match: single.get(match[0], match[0]), problem.reason)
        return replace(problem, reason=reason)

    def plain(self, value: Any) -> Any:
        """Renamed data of --init and --call; texts that are no expressions in symbols stay."""
        if isinstance(value, Mapping):
            return {key: self._in_expression(part) if key == "_expr" else part if key in KEPT else self.plain(part)
                    for key, part in value.items()}  # fmt: skip
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        return self(value) if isinstance(value, str) else value

    def _in_expression(self, text: str) -> str:
        """An expression of Python in which sizes are renamed, and nothing that is called or bound in it."""
        tree = ast.parse(text, mode="eval")
        kept = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in kept]
        bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        renamed_nodes = [node for node in names if node.id in self._names and node.id not in bound]
        for node in renamed_nodes:
            node.id = self._names[node.id]
        # what has none stays as it is written
        return ast.unparse(tree) if renamed_nodes else text

    def _inside(self, kernel: str) -> str:
        return INSIDE.sub(lambda match: self(match[0]), kernel)

    def _shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        return tuple(Shape(tuple(NamedAxis(self(a.text), a.size, a.scrambled) for a in shape.axes)) for shape in shapes)
