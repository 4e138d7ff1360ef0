"""Serialization: a trace as data that JSON carries, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.dataflow import Axis, Shape
from headwise.tracing.steps import Comment, Place, Problem, Step, Symbol, Trace

__all__ = ["SCHEMA", "from_plain", "to_plain"]

SCHEMA = 1


def to_plain(trace: Trace) -> dict[str, Any]:
    """Everything in a trace, as `headwise trace --json` prints it.

    "output" and "axes" are those of the first result, None and [] where there is none; "shapes" has every axis of
    every tensor as [name, size, scrambled]. "error" is the problem that stops the code, None where it runs.
    """
    return {
        "schema": SCHEMA,
        "target": trace.target,
        "lang": trace.lang,
        "symbols": {
            each.name: {"meaning": each.meaning, "size": each.size, "said": each.said, "equals": each.equals}
            for each in trace.symbols
        },
        "ops": [_step(each) for each in trace.steps],
        "comments": [
            {**_place(each.place), "said": each.said, "true": each.true or each.said, "wrong": bool(each.true)}
            for each in trace.comments
        ],
        "error": _problem(min(trace.problems, key=lambda each: each.setting == "cross")) if trace.problems else None,
        "problems": [_problem(each) for each in trace.problems],
        "supplied": list(trace.supplied),
        "init": None if trace.init is None else dict(trace.init),
        "call": None if trace.call is None else dict(trace.call),
        "sources": dict(trace.sources),
    }


def from_plain(data: Mapping[str, Any]) -> Trace:
    """The trace that `to_plain` made this of."""
    return Trace(
        target=data["target"],
        sources=dict(data["sources"]),
        symbols=tuple(Symbol(name=name, **each) for name, each in data["symbols"].items()),
        steps=tuple(_read_step(each) for each in data["ops"]),
        comments=tuple(
            Comment(_read_place(each), each["said"], each["true"] if each["wrong"] else "") for each in data["comments"]
        ),
        problems=tuple(_read_problem(each) for each in data["problems"]),
        supplied=tuple(data["supplied"]),
        init=data["init"],
        call=data["call"],
        lang=data["lang"],
    )


def _place(place: Place) -> dict[str, Any]:
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "source": place.source,
    }


def _read_place(data: Mapping[str, Any]) -> Place:
    return Place(data["file"], data["line"], data["column"], data["end_line"], data["end_column"], data["source"])


def _step(step: Step) -> dict[str, Any]:
    first = step.outputs[0] if step.outputs else None
    return {
        **_place(step.place),
        "op": step.op,
        "inputs": [str(each) for each in step.inputs],
        "output": None if first is None else str(first),
        "axes": [] if first is None else [axis.text for axis in first.axes],
        "scrambled": any(each.is_scrambled for each in step.outputs),
        "outputs": [str(each) for each in step.outputs],
        "chain": [_place(each) for each in step.chain],
        "module": step.module,
        "times": step.times,
        "writes": step.writes,
        "kernels": list(step.kernels),
        "shapes": {"inputs": _axes(step.inputs), "outputs": _axes(step.outputs)},
    }


def _read_step(data: Mapping[str, Any]) -> Step:
    return Step(
        op=data["op"],
        place=_read_place(data),
        inputs=_read_axes(data["shapes"]["inputs"]),
        outputs=_read_axes(data["shapes"]["outputs"]),
        chain=tuple(_read_place(each) for each in data["chain"]),
        module=data["module"],
        times=data["times"],
        writes=data["writes"],
        kernels=tuple(data["kernels"]),
    )


def _axes(shapes: Sequence[Shape]) -> list[list[list[Any]]]:
    return [[[axis.text, axis.size, axis.scrambled] for axis in shape.axes] for shape in shapes]


def _read_axes(data: Sequence[Sequence[Sequence[Any]]]) -> tuple[Shape, ...]:
    return tuple(Shape(tuple(Axis(*axis) for axis in shape)) for shape in data)


def _problem(problem: Problem) -> dict[str, Any]:
    place = problem.place
    return {
        "line": None if place is None else place.line,
        "op": problem.op,
        "reason": problem.reason,
        "error": problem.error,
        "setting": problem.setting,
        "place": None if place is None else _place(place),
    }


def _read_problem(data: Mapping[str, Any]) -> Problem:
    place = None if data["place"] is None else _read_place(data["place"])
    return Problem(place, data["op"], data["reason"], data["error"], data["setting"])
