"""Worked example: a traced target run once with small sizes, every tensor with its numbers and named axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan, evaluated
from headwise.dataflow import UNKNOWN, Axis, Owners, Shape, Source, by_site, kinds
from headwise.recording import Operation, TensorSeen
from headwise.source import Span
from headwise.tracing.result_names import Calling
from headwise.tracing.small_run import Small, run_small
from headwise.tracing.steps import MOST_TURNS, Place, Step, Trace

__all__ = ["worked"]

# a tensor of more entries is told by its shape
MOST_NUMBERS = 200
# of a longer run the beginning is told
MOST_STEPS, MOST_RESULTS = 200, 4
DIGITS = 6


def worked(plan: Plan, trace: Trace, *, files: Mapping[str, str]) -> dict[str, Any]:
    """A plan run once with small sizes, told with the names of its trace, as data that JSON carries.

    files: which files are the person's own, and what to call each. {"sizes": of each symbol, "tensors": name ->
    {"axes", "sizes", "values", "heads"}, "steps": [...], "more": how many steps were left out, "error": Python's own
    words, None: it ran}. A step has "op", "kind" (see `kinds`), its place, and "inputs" and "outputs" by name.
    "turns": how often the loop that turned most often did, where the last of its turns were left out, else 0.
    values: row by row, None where there are too many; what is no number of JSON is text: "-inf". heads: {"axis",
    "each"} or {"of": the head of each entry}, None: entries belong to no head.
    """
    crossed = any(each.setting == "cross" for each in trace.problems)
    done = run_small(plan, own=tuple(files), equal={"S": "L"} if crossed and _has(plan, "S") else {})
    teller = _Teller(done, trace, files)
    failure = done.record.failure
    steps = teller.steps()
    return {
        "sizes": done.sizes,
        "tensors": teller.tensors,
        "steps": steps[:MOST_STEPS],
        "more": len(steps[MOST_STEPS:]),
        "turns": teller.turns,
        "error": None if failure is None else f"{type(failure.error).__name__}: {failure.error}",
    }


def _has(plan: Plan, name: str) -> bool:
    return any(each.name == name for each in plan.symbols)


class _Teller:
    """Tells a run operation by operation. tensors: what has been told, by name. turns: of the longest cut loop."""

    def __init__(self, done: Small, trace: Trace, files: Mapping[str, str]) -> None:
        self.tensors: dict[str, dict[str, Any]] = {}
        self.turns = 0
        self._operations, self._sources = done.record.operations, done.follower.sources
        self._files = files
        self._calling = Calling(trace.sources)
        # of each operation, which turn of its site it is, and how often that ran
        self._turns = {
            at: (turn, len(places)) for places in by_site(done.record).values() for turn, at in enumerate(places)
        }
        self._named = _aligned(done, trace, self._place)
        self._owners = Owners(done.sizes, done.follower.moves)
        self._current: dict[int, str] = {}
        self._values: dict[str, Tensor | None] = {}

    def steps(self) -> list[dict[str, Any]]:
        """Every operation that gave or changed a tensor, in order."""
        axes = [self._axes(at) for at in range(len(self._operations))]
        words = [tuple([[axis.text for axis in each] for each in own] for own in pair) for pair in axes]
        found = kinds(self._operations, words, dict(self._sources))  # type: ignore[arg-type]  # pairs, as they were
        out = []
        for at, kind in enumerate(found):
            step = self._step(at, kind, axes[at])
            if not step["outputs"]:
                continue
            turn, turns = self._turns[at]
            if turn < MOST_TURNS:
                out.append(step)
            else:
                self.turns = max(self.turns, turns)
        return out

    def _step(self, at: int, kind: str, axes: tuple[list[Sequence[Axis]], list[Sequence[Axis]]]) -> dict[str, Any]:
        operation = self._operations[at]
        place, chain = self._place(operation.span), tuple(self._place(each) for each in operation.chain)
        given = [self._taken(seen, own) for seen, own in zip(operation.inputs, axes[0], strict=False)]
        made: list[tuple[TensorSeen, Sequence[Axis]]] = list(zip(operation.outputs, axes[1], strict=False))
        changed = [self._after(at, each) for each in operation.inputs if each.number in operation.writes]
        made = made or [(each, axes[0][0] if axes[0] else ()) for each in changed]
        first = self._current.get(operation.inputs[0].number) if operation.inputs else None
        turn, turns = self._turns[at]
        outputs = []
        for part, (seen, own) in enumerate(made[:MOST_RESULTS]):
            name = self._calling.name(operation.name, place, chain, part=part, turn=turn, turns=turns)
            if operation.writes and first is not None and not (name and operation.outputs):
                name = first
            name = self._free(name or operation.name)
            self._put(seen, name, own, self._owners.of(at, part, seen, own, first))
            outputs.append(name)
        return {
            "op": operation.name,
            "kind": kind,
            **{key: getattr(place, key) for key in ("file", "line", "column", "end_line", "end_column")},
            "inputs": list(dict.fromkeys(given)),
            "outputs": outputs,
        }

    def _taken(self, seen: TensorSeen, axes: Sequence[Axis]) -> str:
        """What an input is called; one that was changed by way of another tensor is told anew."""
        name = self._current.get(seen.number)
        if name is not None and _is_same(self._values[name], seen.value):
            return name
        source = self._sources.get(seen.number, Source("made"))
        name = self._free(name or source.name or "number")
        self._put(seen, name, axes, self._owners.named(axes, seen))
        return name

    def _put(self, seen: TensorSeen, name: str, axes: Sequence[Axis], heads: dict[str, Any] | None) -> None:
        self._current[seen.number] = name
        self._values[name] = seen.value
        self._owners.keep(name, seen.shape, heads)
        self.tensors[name] = {
            "axes": [axis.text for axis in axes],
            "sizes": list(seen.shape),
            "values": _numbers(seen.value),
            "heads": heads,
        }

    def _free(self, name: str) -> str:
        """The name, with a number where it is taken."""
        base = name.rpartition(" (")[0] if name.endswith(")") and name.rpartition(" (")[2][:-1].isdigit() else name
        count = 2
        while name in self.tensors:
            name, count = f"{base} ({count})", count + 1
        return name

    def _after(self, at: int, seen: TensorSeen) -> TensorSeen:
        """A tensor that an operation changed in place, as a later one met it."""
        for operation in self._operations[at + 1 :]:
            for each in operation.inputs:
                if each.number == seen.number:
                    return each
        return TensorSeen(
            seen.number, seen.storage, seen.shape, seen.dtype, seen.strides, seen.offset, seen.requires_grad
        )

    def _axes(self, at: int) -> tuple[list[Sequence[Axis]], list[Sequence[Axis]]]:
        """The axes of the inputs that a person wrote, and of the results."""
        operation, step = self._operations[at], self._named.get(at)
        inputs = operation.inputs[: len(step.inputs)] if step is not None else operation.inputs
        return (
            [_named(seen, step.inputs if step else (), n) for n, seen in enumerate(inputs)],
            [_named(seen, step.outputs if step else (), n) for n, seen in enumerate(operation.outputs)],
        )

    def _place(self, span: Span) -> Place:
        file = self._files.get(span.file, span.file)
        return Place(file, span.line, span.column, span.end_line, span.end_column, span.source)


def _named(seen: TensorSeen, shapes: Sequence[Shape], at: int) -> Sequence[Axis]:
    """The axes of a tensor as its trace names them, with the sizes that they have here."""
    named = shapes[at].axes if at < len(shapes) else ()
    if len(named) != len(seen.shape):
        return tuple(Axis("1" if size == 1 else UNKNOWN, size) for size in seen.shape)
    return tuple(Axis(axis.text, size, axis.scrambled) for axis, size in zip(named, seen.shape, strict=True))


def _aligned(done: Small, trace: Trace, place: Any) -> dict[int, Step]:
    """The step of the trace of each operation: of those of its site, the first whose sizes fit."""
    sites: dict[Any, list[Step]] = {}
    for step in trace.steps:
        sites.setdefault((_key(step.place), tuple(map(_key, step.chain)), step.op), []).append(step)
    out = {}
    for (chain, span, name), places in by_site(done.record).items():
        own = sites.get((_key(place(span)), tuple(_key(place(each)) for each in chain), name), [])
        for turn, at in enumerate(places):
            good = [step for step in own if _fits(step, done.record.operations[at], done.sizes)]
            same = own[turn] if turn < len(own) else None
            if good:
                out[at] = same if same is not None and same in good else good[0]
    return out


def _fits(step: Step, operation: Operation, sizes: Mapping[str, int]) -> bool:
    """Whether a step of a trace may be an operation of a run with these sizes."""
    shapes = [*zip(step.inputs, operation.inputs, strict=False), *zip(step.outputs, operation.outputs, strict=False)]
    return all(
        len(shape.axes) == len(seen.shape)
        and all(_size(axis.text, sizes) in (None, size) for axis, size in zip(shape.axes, seen.shape, strict=True))
        for shape, seen in shapes
    )


def _size(text: str, sizes: Mapping[str, int]) -> int | None:
    """How long an axis of this name is; None: its name does not tell."""
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
    """The entries of a tensor, row by row; None: they are too many, or of a kind that has no number for each."""
    if value is None or value.numel() > MOST_NUMBERS or value.is_complex() or value.layout is not torch.strided:
        return None
    entries = value.detach().cpu().to(torch.int64 if not value.is_floating_point() else torch.float64).flatten()
    return [_number(each) for each in entries.tolist()]


def _number(value: float) -> float | int | str:
    if isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
