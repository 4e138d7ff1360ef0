"""Worked example: one run of a traced target with small sizes, with the numbers and named axes of every tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan, evaluated
from headwise.dataflow import UNKNOWN, NamedAxis, Origin, Owners, Shape, by_site, kinds
from headwise.recording import Operation, TensorSeen
from headwise.source import Span
from headwise.tracing.result_names import ResultNames
from headwise.tracing.small_run import Small, run_small
from headwise.tracing.steps import MOST_TURNS, Place, Step, Trace

__all__ = ["worked"]

# of larger tensors only the shape is shown
MOST_NUMBERS = 200
# of longer runs the beginning is shown
MOST_STEPS, MOST_RESULTS = 200, 4
DIGITS = 6


def worked(plan: Plan, trace: Trace, *, files: Mapping[str, str]) -> dict[str, Any]:
    """One run of a plan with small sizes and the names of its trace, as JSON data.

    files: the user files with their display names. Result: {"sizes": of each symbol, "tensors": name -> {"axes",
    "sizes", "values", "heads"}, "steps": [...], "more": the number of left out steps, "error": the error of Python,
    None: it ran}. A step has "op", "kind" (see `kinds`), its place, and "inputs" and "outputs" by name. "turns": of the
    longest loop whose last turns are left out, else 0. values: row by row, None where there are too many; non-finite
    numbers are text: "-inf". heads: {"axis", "each"} or {"of": the head of each entry}, None: entries have no head.
    """
    crossed = any(problem.setting == "cross" for problem in trace.problems)
    fails = any(problem.setting != "cross" for problem in trace.problems)
    equal = {"S": "L"} if crossed and _has(plan, "S") else {}
    small = run_small(plan, user_files=tuple(files), equal=equal, fails=fails)
    writer = _ExampleWriter(small, trace, files)
    failure = small.record.failure
    steps = writer.steps()
    return {
        "sizes": small.sizes,
        "tensors": writer.tensors,
        "steps": steps[:MOST_STEPS],
        "more": len(steps[MOST_STEPS:]),
        "turns": writer.turns,
        "error": None if failure is None else f"{type(failure.error).__name__}: {failure.error}",
    }


def _has(plan: Plan, name: str) -> bool:
    return any(symbol.name == name for symbol in plan.symbols)


class _ExampleWriter:
    """Writes a run operation by operation. tensors: those written so far, by name. turns: of the longest cut loop."""

    def __init__(self, small: Small, trace: Trace, files: Mapping[str, str]) -> None:
        self.tensors: dict[str, dict[str, Any]] = {}
        self.turns = 0
        self._operations, self._sources = small.record.operations, small.follower.sources
        self._files = files
        self._result_names = ResultNames(trace.sources)
        # for each operation the turn of its site, and the number of turns
        self._turns = {
            at: (turn, len(places)) for places in by_site(small.record).values() for turn, at in enumerate(places)
        }
        self._named = _aligned(small, trace, self._place)
        self._owners = Owners(small.sizes, small.follower.moves)
        self._current: dict[int, str] = {}
        self._values: dict[str, Tensor | None] = {}

    def steps(self) -> list[dict[str, Any]]:
        """The operations that return or change a tensor, in order."""
        axes = [self._axes(at) for at in range(len(self._operations))]
        words = [tuple([[axis.text for axis in each] for each in tensor_axes] for tensor_axes in pair) for pair in axes]
        step_kinds = kinds(self._operations, words, dict(self._sources))  # type: ignore[arg-type]  # pairs, as they were
        out = []
        for at, kind in enumerate(step_kinds):
            step = self._step(at, kind, axes[at])
            if not step["outputs"]:
                continue
            turn, turns = self._turns[at]
            if turn < MOST_TURNS:
                out.append(step)
            else:
                self.turns = max(self.turns, turns)
        return out

    def _step(
        self, at: int, kind: str, axes: tuple[list[Sequence[NamedAxis]], list[Sequence[NamedAxis]]]
    ) -> dict[str, Any]:
        operation = self._operations[at]
        place, chain = self._place(operation.span), tuple(self._place(span) for span in operation.chain)
        inputs = [
            self._taken(tensor, tensor_axes) for tensor, tensor_axes in zip(operation.inputs, axes[0], strict=False)
        ]
        results: list[tuple[TensorSeen, Sequence[NamedAxis]]] = list(zip(operation.outputs, axes[1], strict=False))
        changed = [self._after(at, operand) for operand in operation.inputs if operand.number in operation.writes]
        results = results or [(each, axes[0][0] if axes[0] else ()) for each in changed]
        first = self._current.get(operation.inputs[0].number) if operation.inputs else None
        turn, turns = self._turns[at]
        outputs = []
        for part, (tensor, tensor_axes) in enumerate(results[:MOST_RESULTS]):
            name = self._result_names.name(operation.name, place, chain, part=part, turn=turn, turns=turns)
            if operation.writes and first is not None and not (name and operation.outputs):
                name = first
            name = self._free(name or operation.name)
            self._put(tensor, name, tensor_axes, self._owners.of(at, part, tensor, tensor_axes, first))
            outputs.append(name)
        return {
            "op": operation.name,
            "kind": kind,
            **{key: getattr(place, key) for key in ("file", "line", "column", "end_line", "end_column")},
            "inputs": list(dict.fromkeys(inputs)),
            "outputs": outputs,
        }

    def _taken(self, tensor: TensorSeen, axes: Sequence[NamedAxis]) -> str:
        """The name of an input; one that was changed through another tensor is written again."""
        name = self._current.get(tensor.number)
        if name is not None and _is_same(self._values[name], tensor.value):
            return name
        source = self._sources.get(tensor.number, Origin("made"))
        name = self._free(name or source.name or "number")
        self._put(tensor, name, axes, self._owners.named(axes, tensor))
        return name

    def _put(self, tensor: TensorSeen, name: str, axes: Sequence[NamedAxis], heads: dict[str, Any] | None) -> None:
        self._current[tensor.number] = name
        self._values[name] = tensor.value
        self._owners.keep(name, tensor.shape, heads)
        self.tensors[name] = {
            "axes": [axis.text for axis in axes],
            "sizes": list(tensor.shape),
            "values": _numbers(tensor.value),
            "heads": heads,
        }

    def _free(self, name: str) -> str:
        """The name, with a number where it is in use."""
        base = name.rpartition(" (")[0] if name.endswith(")") and name.rpartition(" (")[2][:-1].isdigit() else name
        count = 2
        while name in self.tensors:
            name, count = f"{base} ({count})", count + 1
        return name

    def _after(self, at: int, tensor: TensorSeen) -> TensorSeen:
        """A tensor after an in-place change, as the next operation reads it."""
        for operation in self._operations[at + 1 :]:
            for candidate in operation.inputs:
                if candidate.number == tensor.number:
                    return candidate
        return TensorSeen(
            tensor.number,
            tensor.storage,
            tensor.shape,
            tensor.dtype,
            tensor.strides,
            tensor.offset,
            tensor.requires_grad,
        )

    def _axes(self, at: int) -> tuple[list[Sequence[NamedAxis]], list[Sequence[NamedAxis]]]:
        """The axes of the inputs that the source shows, and of the results."""
        operation, step = self._operations[at], self._named.get(at)
        inputs = operation.inputs[: len(step.inputs)] if step is not None else operation.inputs
        return (
            [_named(tensor, step.inputs if step else (), n) for n, tensor in enumerate(inputs)],
            [_named(tensor, step.outputs if step else (), n) for n, tensor in enumerate(operation.outputs)],
        )

    def _place(self, span: Span) -> Place:
        file = self._files.get(span.file, span.file)
        return Place(file, span.line, span.column, span.end_line, span.end_column, span.source)


def _named(tensor: TensorSeen, shapes: Sequence[Shape], at: int) -> Sequence[NamedAxis]:
    """The axes of a tensor, with the names of the trace and the sizes of this run."""
    named = shapes[at].axes if at < len(shapes) else ()
    if len(named) != len(tensor.shape):
        return tuple(NamedAxis("1" if size == 1 else UNKNOWN, size) for size in tensor.shape)
    return tuple(NamedAxis(axis.text, size, axis.scrambled) for axis, size in zip(named, tensor.shape, strict=True))


def _aligned(small: Small, trace: Trace, place: Any) -> dict[int, Step]:
    """The step of the trace for each operation: of the same turn, or the first of its site whose sizes fit."""
    sites: dict[Any, list[Step]] = {}
    for step in trace.steps:
        sites.setdefault((_key(step.place), tuple(map(_key, step.chain)), step.op), []).append(step)
    out = {}
    for (chain, span, name), places in by_site(small.record).items():
        site_steps = sites.get((_key(place(span)), tuple(_key(place(each)) for each in chain), name), [])
        for turn, at in enumerate(places):
            good = [step for step in site_steps if _fits(step, small.record.operations[at], small.sizes)]
            same = site_steps[turn] if turn < len(site_steps) else None
            if good:
                out[at] = same if same is not None and same in good else good[0]
    return out


def _fits(step: Step, operation: Operation, sizes: Mapping[str, int]) -> bool:
    """Whether a step of a trace may be an operation of a run with these sizes."""
    shapes = [*zip(step.inputs, operation.inputs, strict=False), *zip(step.outputs, operation.outputs, strict=False)]
    return all(
        len(shape.axes) == len(tensor.shape)
        and all(_size(axis.text, sizes) in (None, size) for axis, size in zip(shape.axes, tensor.shape, strict=True))
        for shape, tensor in shapes
    )


def _size(text: str, sizes: Mapping[str, int]) -> int | None:
    """The size of an axis by its name; None: the name has no value."""
    try:
        return evaluated(text, sizes)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError):
        return None


def _key(place: Place) -> tuple[Any, ...]:
    return place.file, place.line, place.column, place.end_line, place.end_column


def _is_same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and torch.equal(torch.nan_to_num(a, nan=0.5), torch.nan_to_num(b, nan=0.5))


def _numbers(value: Tensor | None) -> list[float | int | str] | None:
    """The entries of a tensor, row by row; None: too many, or a complex or sparse tensor."""
    if value is None or value.numel() > MOST_NUMBERS or value.is_complex() or value.layout is not torch.strided:
        return None
    entries = value.detach().cpu().to(torch.int64 if not value.is_floating_point() else torch.float64).flatten()
    return [_number(each) for each in entries.tolist()]


def _number(value: float) -> float | int | str:
    if isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
