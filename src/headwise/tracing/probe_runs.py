"""Probe runs: runs a target with several sets of sizes, and says every axis of every step by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Named as SymbolNamed
from headwise.calls import Plan, Tried, declared_sizes
from headwise.dataflow import Expressions, Follower, Names, Row, Shape, Sizes, aligned, by_site, followed
from headwise.recording import Failure, Operation, Record, tensors
from headwise.source import Span
from headwise.tracing.failure_reasons import reason
from headwise.tracing.legend import MEANINGS
from headwise.tracing.steps import Place, Problem, Step, Symbol
from headwise.wording import say

__all__ = ["Found", "calling", "named_arguments", "probed", "unbuilt"]

# four sets of primes: with three, one size in a thousand that is no expression would pass for one
PROBES = 4


@dataclass(frozen=True)
class Found:
    """What the probe runs of one plan tell."""

    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _Runs:
    """The probe runs of one plan. sizes: of each symbol in each run; shown: in the run whose sizes are told, `done`."""

    records: list[Record]
    followers: list[Follower]
    sizes: dict[str, Sizes]
    shown: dict[str, int]
    done: Record


def probed(
    plan: Plan,
    *,
    own: tuple[str, ...] = (),
    spoken: Mapping[str, str] | None = None,
    kernels: bool = False,
    equal: Mapping[str, str] | None = None,
    lang: str = "en",
) -> Found:
    """The steps of a plan, named.

    own: files that are the person's own; spoken: what to call them. kernels: with what torch really ran. equal:
    symbols that are given the size of another, but keep their names where those come from an argument.
    """
    runs = _run(plan, own, kernels=kernels, equal=equal or {})
    expressions = Expressions(
        {name: sizes for name, sizes in runs.sizes.items() if name not in (equal or {})},
        {each.name: each.equals for each in plan.symbols if each.equals},
    )
    names = Names(expressions, _declared(plan), runs.records, runs.followers, runs.sizes)
    rows = aligned(runs.records)
    speaker = _Speaker(names, spoken or {}, {row.site: row for row in rows}, runs.done)
    steps = speaker.steps(rows)
    return Found(
        _symbols(plan.symbols, runs.shown),
        steps,
        tuple(_problems(runs, names, speaker, plan, lang)),
    )


def unbuilt(tried: Tried, spoken: Mapping[str, str]) -> Found:
    """What is told of a plan whose constructor raises: where, and its own words."""
    span, plan = tried.span, tried.plan
    place = None if span is None else _place(span, spoken)
    problem = Problem(place, "", "", f"{type(tried.error).__name__}: {tried.error}".removesuffix(": "))
    return Found(_symbols(plan.symbols, plan.sizes(0)), (), (problem,))


def _run(plan: Plan, own: tuple[str, ...], *, kernels: bool, equal: Mapping[str, str]) -> _Runs:
    records, followers, sizes = [], [], []
    for probe in range(PROBES):
        own_sizes = dict(plan.sizes(probe))
        own_sizes |= {name: own_sizes[other] for name, other in equal.items()}
        done, follower = _recorded(plan, own_sizes, own, kernels=kernels)
        records.append(done)
        followers.append(follower)
        sizes.append(own_sizes)
    shown, done = sizes[0], records[0]
    if plan.real and done.failure is None:
        # the person's own sizes, which may be equal to one another, are told and name nothing
        real = declared_sizes(plan, shown)
        real |= {name: real[other] for name, other in equal.items()}
        again = _recorded(plan, real, own, kernels=False)[0]
        if again.failure is None:
            shown, done = real, again
    return _Runs(records, followers, {name: tuple(each[name] for each in sizes) for name in sizes[0]}, shown, done)


def _recorded(plan: Plan, sizes: Mapping[str, int], own: tuple[str, ...], *, kernels: bool) -> tuple[Record, Follower]:
    """One run of a plan."""
    target = plan.build(sizes)
    args, options = plan.arguments(sizes)
    model = target if isinstance(target, nn.Module) else None
    with torch.no_grad():
        return followed(
            calling(target, args, options), model, named_arguments(plan, args, options), own, kernels=kernels
        )


def calling(target: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Callable[[], Any]:
    """A call of a target; that it is made here tells nothing apart."""
    return lambda: target(*args, **options)


def named_arguments(plan: Plan, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among the arguments: "key", or "position_embeddings.1" for one of several."""
    out: dict[str, Tensor] = {}
    names = [name for name in plan.call if not name.startswith("_")]
    for name, value in [*zip(names, args, strict=False), *options.items()]:
        own = list(tensors(value))
        for place, each in enumerate(own):
            out[name if isinstance(value, Tensor) else f"{name}.{place}"] = each
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
            for place, each in enumerate(value["_tuple"]):
                if isinstance(each, list):
                    out[f"{name}.{place}"] = tuple(str(size) for size in each)
    mask = plan.call.get("_mask")
    if isinstance(mask, Mapping) and isinstance(mask.get("shape"), list):
        out[str(mask.get("argument", ""))] = tuple(str(each) for each in mask["shape"])
    return out


def _symbols(named: Sequence[SymbolNamed], sizes: Mapping[str, int]) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(each.name, each.meaning, sizes[each.name], each.said, each.equals)
        for each in named
        if each.name in sizes
    )


class _Speaker:
    """Says rows as steps."""

    def __init__(self, names: Names, spoken: Mapping[str, str], sites: Mapping[Any, Row], shown: Record) -> None:
        self._names, self._spoken, self._sites = names, spoken, sites
        self._shown, self._places = shown, by_site(shown)

    def steps(self, rows: Sequence[Row]) -> tuple[Step, ...]:
        """All rows, in order; the turns of a loop that say the same are one step."""
        named = [(row, self._names.of(row)) for row in rows]
        out: list[Step] = []
        places: dict[Any, list[int]] = {}
        for row, axes in named:
            first = self._told(row)
            shown = self._names.shown(row, axes)
            step = Step(
                op=first.name,
                place=self.place(first.span),
                inputs=tuple(self._names.shape(own, t.shape) for own, t in zip(shown, first.inputs, strict=False)),
                outputs=tuple(
                    self._names.shape(own, t.shape) for own, t in zip(axes.outputs, first.outputs, strict=False)
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
        return tuple(self._timed(step, rows, places, at) for at, step in enumerate(out))

    def _told(self, row: Row) -> Operation:
        """The operation in the run whose sizes are told, where it is there in the same form."""
        places = self._places.get(row.site, [])
        told = self._shown.operations[places[row.turn]] if row.turn < len(places) else row.first
        ranks = [[len(t.shape) for t in (*each.inputs, *each.outputs)] for each in (told, row.first)]
        return told if ranks[0] == ranks[1] else row.first

    def place(self, span: Span) -> Place:
        """A span, in the file as the person says it."""
        return _place(span, self._spoken)

    def _timed(self, step: Step, rows: Sequence[Row], places: Mapping[Any, list[int]], at: int) -> Step:
        """A step with how often it ran, where every turn of its site said the same."""
        site = next(site for site, own in places.items() if at in own)
        if len(places[site]) > 1 or max(self._sites[site].turns) < 2:
            return step
        text = self._names.expressions.name(self._sites[site].turns)
        return Step(**{**step.__dict__, "times": text})

    def _kernels(self, row: Row) -> tuple[str, ...]:
        out = []
        for own in zip(*[each.kernels for each in row.operations], strict=False):
            if len({each.name for each in own}) == 1:
                given = [self._said(each) for each in _beside([one.inputs for one in own])]
                made = [self._said(each) for each in _beside([one.outputs for one in own])]
                out.append(f"{own[0].name} {', '.join(given)} → {', '.join(made)}")
        return tuple(out)

    def _said(self, sizes: Sequence[Sizes]) -> str:
        return f"[{', '.join(self._names.expressions.name(each) for each in sizes)}]"


def _place(span: Span, spoken: Mapping[str, str]) -> Place:
    return Place(spoken.get(span.file, span.file), span.line, span.column, span.end_line, span.end_column, span.source)


def _beside(many: Sequence[Sequence[tuple[int, ...]]]) -> list[list[Sizes]]:
    """Shapes of several runs, axis by axis; those whose rank differs are left out."""
    out = []
    for own in zip(*many, strict=False):
        if len({len(each) for each in own}) == 1:
            out.append([tuple(each) for each in zip(*own, strict=True)])
    return out


def _alike(a: Step, b: Step) -> bool:
    return _texts(a.inputs) == _texts(b.inputs) and _texts(a.outputs) == _texts(b.outputs)


def _texts(shapes: Sequence[Shape]) -> list[str]:
    return [str(each) for each in shapes]


def _problems(runs: _Runs, names: Names, speaker: _Speaker, plan: Plan, lang: str) -> list[Problem]:
    """Why the runs failed, where they all did at one place."""
    failures = [done.failure for done in runs.records]
    first = failures[0]
    if first is None or any(each is None or each.span != first.span for each in failures):
        return []
    operations = [each.operation for each in failures if each is not None and each.operation is not None]
    said = ""
    if len(operations) == len(failures):
        meanings = {each.name: say(MEANINGS[each.meaning], lang=lang) for each in plan.symbols}
        said = reason(operations, _taken(operations, names), names.expressions, meanings, lang)
    place = None if first.span is None else speaker.place(first.span)
    op = "" if first.operation is None else first.operation.name
    return [Problem(place, op, said, _words(first), plan.setting if plan.setting == "cross" else "")]


def _taken(operations: Sequence[Operation], names: Names) -> list[str]:
    axes = names.inputs_of(operations)
    return [str(names.shape(own, t.shape)) for own, t in zip(axes, operations[0].inputs, strict=False)]


def _words(failure: Failure) -> str:
    return f"{type(failure.error).__name__}: {failure.error}"
