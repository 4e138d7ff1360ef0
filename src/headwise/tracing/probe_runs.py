"""Probe runs: runs a target with several sets of sizes, and names every axis of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Named, Plan, Tried, declared_sizes
from headwise.dataflow import Expressions, Follower, Names, Row, Shape, Sizes, aligned, by_site, followed
from headwise.recording import Failure, Operation, Record, tensors
from headwise.source import Span
from headwise.tracing.failure_reasons import reason
from headwise.tracing.legend import MEANINGS
from headwise.tracing.steps import Place, Problem, Step, Symbol
from headwise.wording import say

__all__ = ["ProbeResult", "calling", "named_arguments", "probed", "unbuilt"]

# sets of primes: with 3, one in a thousand sizes without an expression would match one by chance
PROBES = 4


@dataclass(frozen=True)
class ProbeResult:
    """The symbols, steps and problems of one plan."""

    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _Runs:
    """The probe runs of one plan. sizes: of each symbol in each run; shown: sizes in the run that is shown. target: as
    it was built for the first.
    """

    records: list[Record]
    followers: list[Follower]
    sizes: dict[str, Sizes]
    shown: dict[str, int]
    shown_record: Record
    target: Any


def probed(
    plan: Plan,
    *,
    user_files: tuple[str, ...] = (),
    spoken: Mapping[str, str] | None = None,
    kernels: bool = False,
    equal: Mapping[str, str] | None = None,
    lang: str = "en",
) -> ProbeResult:
    """The steps of a plan with named axes.

    user_files: files of user code; spoken: their display names. kernels: with the operations that torch dispatched.
    equal: symbols with the size of another, which keep their names where an argument declares them.
    """
    runs = _run(plan, user_files, kernels=kernels, equal=equal or {})
    expressions = Expressions(
        {name: sizes for name, sizes in runs.sizes.items() if name not in (equal or {})},
        {symbol.name: symbol.equals for symbol in plan.symbols if symbol.equals},
    )
    names = Names(expressions, _declared(plan), runs.records, runs.followers, runs.sizes)
    rows = aligned(runs.records)
    writer = _StepWriter(names, spoken or {}, {row.site: row for row in rows}, runs.shown_record)
    steps = writer.steps(rows)
    return ProbeResult(
        tuple(_called(symbol, plan, runs) for symbol in _symbols(plan.symbols, runs.shown)),
        steps,
        tuple(_problems(runs, names, writer, plan, lang)),
    )


def unbuilt(tried: Tried, spoken: Mapping[str, str]) -> ProbeResult:
    """The result of a plan whose constructor raises: the place and text of the error."""
    span, plan = tried.span, tried.plan
    place = None if span is None else _place(span, spoken)
    problem = Problem(place, "", "", f"{type(tried.error).__name__}: {tried.error}".removesuffix(": "))
    return ProbeResult(_symbols(plan.symbols, plan.sizes(0)), (), (problem,))


def _run(plan: Plan, user_files: tuple[str, ...], *, kernels: bool, equal: Mapping[str, str]) -> _Runs:
    records, followers, sizes, first = [], [], [], None
    for probe in range(PROBES):
        run_sizes = dict(plan.sizes(probe))
        run_sizes |= {name: run_sizes[equal_name] for name, equal_name in equal.items()}
        target = plan.build(run_sizes)
        record, follower = _recorded(target, plan, run_sizes, user_files, kernels=kernels)
        first = target if first is None else first
        records.append(record)
        followers.append(follower)
        sizes.append(run_sizes)
    shown, record = sizes[0], records[0]
    if plan.real and record.failure is None:
        # the user's sizes may be equal to one another: they are shown, but name no axes
        real = declared_sizes(plan, shown)
        real |= {name: real[equal_name] for name, equal_name in equal.items()}
        again = _recorded(plan.build(real), plan, real, user_files, kernels=False)[0]
        if again.failure is None:
            shown, record = real, again
    by_name = {name: tuple(size[name] for size in sizes) for name in sizes[0]}
    return _Runs(records, followers, by_name, shown, record, first)


def _recorded(
    target: Any, plan: Plan, sizes: Mapping[str, int], user_files: tuple[str, ...], *, kernels: bool
) -> tuple[Record, Follower]:
    """One run of a plan. target: as it was built for it."""
    args, options = plan.arguments(sizes)
    model = target if isinstance(target, nn.Module) else None
    with torch.no_grad():
        return followed(
            calling(target, args, options), model, named_arguments(plan, args, options), user_files, kernels=kernels
        )


def calling(target: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that calls a target."""
    return lambda: target(*args, **options)


def named_arguments(plan: Plan, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among the arguments: "key", or "position_embeddings.1" for one of several."""
    out: dict[str, Tensor] = {}
    names = [name for name in plan.call if not name.startswith("_")]
    for name, value in [*zip(names, args, strict=False), *options.items()]:
        parts = list(tensors(value))
        for place, part in enumerate(parts):
            out[name if isinstance(value, Tensor) else f"{name}.{place}"] = part
    return out


def _declared(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The shape of each tensor argument, as expressions."""
    out: dict[str, tuple[str, ...]] = {}
    for name, value in plan.call.items():
        if name.startswith("_"):
            continue
        if isinstance(value, list):
            out[name] = tuple(str(each) for each in value)
        elif isinstance(value, Mapping) and isinstance(value.get("_tuple"), list):
            for place, part in enumerate(value["_tuple"]):
                if isinstance(part, list):
                    out[f"{name}.{place}"] = tuple(str(size) for size in part)
    mask = plan.call.get("_mask")
    if isinstance(mask, Mapping) and isinstance(mask.get("shape"), list):
        out[str(mask.get("argument", ""))] = tuple(str(each) for each in mask["shape"])
    return out


def _symbols(named: Sequence[Named], sizes: Mapping[str, int]) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(symbol.name, symbol.meaning, sizes[symbol.name], symbol.said, symbol.equals)
        for symbol in named
        if symbol.name in sizes
    )


def _called(symbol: Symbol, plan: Plan, runs: _Runs) -> Symbol:
    """A symbol without its name in the code where all that has this name in the modules is of another size."""
    if not isinstance(runs.target, nn.Module) or symbol.said in plan.init:
        return symbol
    named = [vars(module).get(symbol.said) for module in runs.target.modules()] if symbol.said else []
    counted = [value for value in named if type(value) is int]
    return symbol if not counted or runs.sizes[symbol.name][0] in counted else replace(symbol, said="")


class _StepWriter:
    """Writes rows of operations as steps."""

    def __init__(self, names: Names, spoken: Mapping[str, str], sites: Mapping[Any, Row], shown: Record) -> None:
        self._names, self._spoken, self._sites = names, spoken, sites
        self._shown, self._places = shown, by_site(shown)

    def steps(self, rows: Sequence[Row]) -> tuple[Step, ...]:
        """All rows in order; equal turns of a loop are one step."""
        named = [(row, self._names.of(row)) for row in rows]
        out: list[Step] = []
        places: dict[Any, list[int]] = {}
        for row, axes in named:
            first = self._shown_operation(row)
            shown = self._names.shown(row, axes)
            step = Step(
                op=first.name,
                place=self.place(first.span),
                inputs=tuple(
                    self._names.shape(shape_axes, t.shape) for shape_axes, t in zip(shown, first.inputs, strict=False)
                ),
                outputs=tuple(
                    self._names.shape(shape_axes, t.shape)
                    for shape_axes, t in zip(axes.outputs, first.outputs, strict=False)
                ),
                chain=tuple(self.place(span) for span in first.chain[-1:] and first.chain),
                module=first.module,
                writes=bool(first.writes),
                kernels=self._kernels(row),
            )
            same = next((at for at in places.get(row.site, []) if _alike(out[at], step)), None)
            if same is None:
                places.setdefault(row.site, []).append(len(out))
                out.append(step)
        return tuple(self._timed(step, places, at) for at, step in enumerate(out))

    def _shown_operation(self, row: Row) -> Operation:
        """The operation in the shown run, where its tensors have the same ranks there, else in the first run."""
        places = self._places.get(row.site, [])
        at = -1 if row.is_last else row.turn
        operation = self._shown.operations[places[at]] if row.turn < len(places) else row.first
        ranks = [[len(t.shape) for t in (*each.inputs, *each.outputs)] for each in (operation, row.first)]
        return operation if ranks[0] == ranks[1] else row.first

    def place(self, span: Span) -> Place:
        """The place of a span, with the display name of its file."""
        return _place(span, self._spoken)

    def _timed(self, step: Step, places: Mapping[Any, list[int]], at: int) -> Step:
        """A step with the number of its runs, where all turns of its site are equal."""
        site = next(site for site, indices in places.items() if at in indices)
        if len(places[site]) > 1 or max(self._sites[site].turns) < 2:
            return step
        text = self._names.expressions.name(self._sites[site].turns)
        return Step(**{**step.__dict__, "times": text})

    def _kernels(self, row: Row) -> tuple[str, ...]:
        out = []
        for alike in zip(*[operation.kernels for operation in row.operations], strict=False):
            if len({each.name for each in alike}) == 1:
                inputs = [self._shape_text(each) for each in _beside([kernel.inputs for kernel in alike])]
                outputs = [self._shape_text(each) for each in _beside([kernel.outputs for kernel in alike])]
                out.append(f"{alike[0].name} {', '.join(inputs)} → {', '.join(outputs)}")
        return tuple(out)

    def _shape_text(self, sizes: Sequence[Sizes]) -> str:
        return f"[{', '.join(self._names.expressions.name(size) for size in sizes)}]"


def _place(span: Span, spoken: Mapping[str, str]) -> Place:
    return Place(spoken.get(span.file, span.file), span.line, span.column, span.end_line, span.end_column, span.source)


def _beside(many: Sequence[Sequence[tuple[int, ...]]]) -> list[list[Sizes]]:
    """The sizes of each axis over several runs; shapes of different ranks are left out."""
    out = []
    for shapes in zip(*many, strict=False):
        if len({len(shape) for shape in shapes}) == 1:
            out.append([tuple(each) for each in zip(*shapes, strict=True)])
    return out


def _alike(a: Step, b: Step) -> bool:
    return _texts(a.inputs) == _texts(b.inputs) and _texts(a.outputs) == _texts(b.outputs)


def _texts(shapes: Sequence[Shape]) -> list[str]:
    return [str(shape) for shape in shapes]


def _problems(runs: _Runs, names: Names, writer: _StepWriter, plan: Plan, lang: str) -> list[Problem]:
    """The problem of the runs, where all of them failed at one place."""
    failures = [record.failure for record in runs.records]
    first = failures[0]
    if first is None or any(failure is None or failure.span != first.span for failure in failures):
        return []
    operations = [failure.operation for failure in failures if failure is not None and failure.operation is not None]
    text = ""
    if len(operations) == len(failures):
        meanings = {symbol.name: say(MEANINGS[symbol.meaning], lang=lang) for symbol in plan.symbols}
        text = reason(operations, _taken(operations, names), names.expressions, meanings, lang)
    place = None if first.span is None else writer.place(first.span)
    op = "" if first.operation is None else first.operation.name
    return [Problem(place, op, text, _words(first), plan.setting if plan.setting == "cross" else "")]


def _taken(operations: Sequence[Operation], names: Names) -> list[str]:
    axes = names.inputs_of(operations)
    return [str(names.shape(tensor_axes, t.shape)) for tensor_axes, t in zip(axes, operations[0].inputs, strict=False)]


def _words(failure: Failure) -> str:
    return f"{type(failure.error).__name__}: {failure.error}"
