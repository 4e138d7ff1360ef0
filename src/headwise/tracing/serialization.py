"""Serialization: a trace as JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.dataflow import NamedAxis, Shape
from headwise.tracing.steps import Comment, Place, Problem, Step, Symbol, Trace

__all__ = ["SCHEMA", "from_plain", "to_plain"]

SCHEMA = 1


def to_plain(trace: Trace) -> dict[str, Any]:
    """A trace as JSON data, as `headwise trace --json` prints it.

    "output" and "axes": of the first result, None and [] without one. "shapes": every axis of every tensor as [name,
    size, scrambled]. "error": the problem that stops the code, None where it runs.
    """
    return {
        "schema": SCHEMA,
        "target": trace.target,
        "lang": trace.lang,
        "symbols": {
            symbol.name: {"meaning": symbol.meaning, "size": symbol.size, "said": symbol.said, "equals": symbol.equals}
            for symbol in trace.symbols
        },
        "ops": [_step(step) for step in trace.steps],
        "comments": [
            {
                **_place(comment.place),
                "said": comment.said,
                "true": comment.true or comment.said,
                "wrong": bool(comment.true),
                "compared": comment.is_compared,
            }
            for comment in trace.comments
        ],
        "error": _problem(min(trace.problems, key=lambda problem: problem.setting == "cross"))
        if trace.problems
        else None,
        "problems": [_problem(each) for each in trace.problems],
        "supplied": list(trace.supplied),
        "init": None if trace.init is None else dict(trace.init),
        "call": None if trace.call is None else dict(trace.call),
        "sources": dict(trace.sources),
    }


def from_plain(data: Mapping[str, Any]) -> Trace:
    """The trace of the data of `to_plain`."""
    return Trace(
        target=data["target"],
        sources=dict(data["sources"]),
        symbols=tuple(Symbol(name=name, **each) for name, each in data["symbols"].items()),
        steps=tuple(_read_step(each) for each in data["ops"]),
        comments=tuple(
            Comment(
                _read_place(comment),
                comment["said"],
                comment["true"] if comment["wrong"] else "",
                # data of 1.0.0 has compared comments only
                comment.get("compared", True),
            )
            for comment in data["comments"]
        ),
        problems=tuple(_read_problem(comment) for comment in data["problems"]),
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
        "inputs": [str(tensor) for tensor in step.inputs],
        "output": None if first is None else str(first),
        "axes": [] if first is None else [axis.text for axis in first.axes],
        "scrambled": any(tensor.is_scrambled for tensor in step.outputs),
        "outputs": [str(tensor) for tensor in step.outputs],
        "chain": [_place(span) for span in step.chain],
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
    return tuple(Shape(tuple(NamedAxis(*axis) for axis in shape)) for shape in data)


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
