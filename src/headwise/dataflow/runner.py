"""Runner: one run of a plan in float64, recorded with values and provenance; operations may be replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow.argument_marks import declared, named_tensors, source_numbers, state_marks
from headwise.dataflow.float64 import Unset, readied
from headwise.dataflow.manner import Manner, arguments, built, call_before, default_dtype, first_of
from headwise.dataflow.marked_operations import MarkedOp
from headwise.dataflow.propagation import ProvenanceTracker
from headwise.dataflow.provenance import Marks
from headwise.recording import Failure, Record, Replacing, Site, TensorSeen, begin_anew, record, seeded, tensors
from headwise.source import Span

__all__ = ["Run", "StandIns", "call_of", "run"]

StandIns = Mapping[Site, Callable[..., Any]]
Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Run:
    """A finished run. named: the tensors among the arguments; sources: their numbers in marks; declared: their marks by
    the shapes that the plan says; states: those of arguments that are one token for each batch element; given: their
    values before the call. tracker: what it noted, from which marks are made when they are asked for. facts: what was
    found out from it.
    """

    plan: Plan
    sizes: Mapping[str, int]
    record: Record
    tracker: ProvenanceTracker
    target: Any
    named: Mapping[str, Tensor]
    sources: Mapping[str, int]
    output: Tensor | None
    stand_ins: StandIns = field(default_factory=dict)
    declared: Mapping[str, Marks] = field(default_factory=dict)
    states: Mapping[str, Marks] = field(default_factory=dict)
    given: Mapping[str, Tensor] = field(default_factory=dict)
    facts: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def seen(self) -> tuple[MarkedOp, ...]:
        """Its operations with marks."""
        self.tracker.follow(self.record.operations)
        return tuple(self.tracker.ops)

    @property
    def marks(self) -> Mapping[int, Marks]:
        """The marks of its tensors, by their numbers."""
        self.tracker.follow(self.record.operations)
        return self.tracker.marks

    @property
    def argument_marks(self) -> Mapping[str, Marks]:
        """The marks of the arguments that have some, by name."""
        if not self.states or not self.seen or self.tracker.learned is None:
            return self.declared
        return {**self.states, **self.declared}

    def fact(self, find: Callable[Given, Found], *args: Given.args, **options: Given.kwargs) -> Found:
        """What a function gives whose arguments follow from what this run follows from: it is called once."""
        if find not in self.facts:
            self.facts[find] = find(*args, **options)
        value: Found = self.facts[find]
        return value

    @property
    def failure(self) -> Failure | None:
        """What ended the run; None: it did not fail."""
        return self.record.failure

    def marks_of(self, name: str) -> Marks | None:
        """The marks of an argument; None: it has none."""
        return self.argument_marks.get(name)

    def marks_at(self, tensor: TensorSeen) -> Marks | None:
        """The marks of an input of a failed operation, which may be an argument that no other operation read."""
        marks = self.marks.get(tensor.number)
        if marks is None and tensor.value is not None:
            for name, value in self.named.items():
                if (
                    name in self.argument_marks
                    and value.shape == tensor.value.shape
                    and torch.equal(value, tensor.value)
                ):
                    return self.argument_marks[name]
        return marks

    @cached_property
    def makers(self) -> Mapping[int, list[MarkedOp]]:
        """The operations that returned or changed each tensor, by its number, in order."""
        by_number: dict[int, list[MarkedOp]] = {}
        for entry in self.seen:
            for number in {*(output.number for output in entry.outputs), *entry.operation.writes}:
                by_number.setdefault(number, []).append(entry)
        return by_number

    @property
    def size(self) -> int:
        """The bytes of its tensors and their marks, which are at most two numbers an entry."""
        return 3 * self.fact(_bytes_of, self.record)

    @property
    def spans(self) -> frozenset[Span]:
        """The places of its operations, also of the one that failed."""
        return self.fact(_spans_of, self.record)

    @property
    def output_marks(self) -> Marks | None:
        """The marks of the output; None: it has none."""
        return None if self.output is None else self.marks_of_result(self.output)

    def marks_of_result(self, result: Tensor) -> Marks | None:
        """The marks of a tensor among what came out, by what gave it; None: it has none."""
        for entry in reversed(self.seen):
            for output, marks in zip(entry.outputs, entry.output_marks, strict=False):
                if output.value is None or output.shape != tuple(result.shape):
                    continue
                if torch.equal(output.value.nan_to_num(), result.detach().nan_to_num()):
                    return marks
        return None


def _bytes_of(recording: Record) -> int:
    """The bytes of the tensors of a recording."""
    values = [t.value for op in recording.operations for t in (*op.inputs, *op.outputs)]
    storages = [value.untyped_storage() for value in values if value is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _spans_of(recording: Record) -> frozenset[Span]:
    """The places of the operations of a recording, also of the one that failed."""
    failure = recording.failure
    failed = [] if failure is None or failure.operation is None else [failure.operation]
    return frozenset(op.span for op in (*recording.operations, *failed))


def run(
    plan: Plan,
    manner: Manner | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    stand_ins: StandIns | None = None,
    own: tuple[str, ...] = (),
    change: Callable[[Any, dict[str, Any]], None] | None = None,
) -> Run:
    """One run. manner: None: the default options. change: alters the target or its arguments before the call."""
    manner = manner or Manner()
    sizes = dict(plan.sizes(0) if sizes is None else sizes)
    with default_dtype(manner.dtype):
        try:
            with Unset():
                target = built(plan, sizes, manner.instance)
        except Exception:  # noqa: BLE001  user code may raise anything; it is diagnosed
            return _unbuilt(plan, sizes, own, dict(stand_ins or {}))
        if isinstance(target, nn.Module):
            target = copy.deepcopy(target) if target is plan.target else target
            target = readied(target, manner.dtype, training=manner.training)
        args, options = arguments(plan, sizes, manner.seed, manner.dtype)
        if change is not None:
            change(target, options)
        named = named_tensors(plan, args, options)
        sources = source_numbers(plan, named)
        argument_marks = _marks(named, lambda name, tensor: declared(plan, name, tensor, sources[name]))
        states = _marks(named, lambda name, tensor: state_marks(plan, name, tensor, sources[name]))
        tracker = ProvenanceTracker(
            {id(named[name]): marks for name, marks in argument_marks.items()}, dict(stand_ins or {}),
            states={id(named[name]): marks for name, marks in states.items()},
        )  # fmt: skip
        for tensor in named.values():
            tensor.requires_grad_(tensor.requires_grad or (manner.gradients and tensor.is_floating_point()))
        inputs = {name: tensor.detach().clone() for name, tensor in named.items()}
        model = target if isinstance(target, nn.Module) else None
        replacing = Replacing(stand_ins or {}, own)
        with (
            torch.set_grad_enabled(manner.gradients),
            replacing,
            replacing.within_layers(),
            seeded(),
        ):
            call_before(plan, target, sizes, manner)
            begin_anew(manner.seed if manner.luck is None else manner.luck)
            recording = record(
                lambda: target(*args, **options),
                model=model, user_files=own, values=True, encoders=True, in_steps=True, observe=tracker.observe,
            )  # fmt: skip
    output = next(iter(tensors(first_of(recording.result))), None)
    return Run(
        plan, sizes, recording, tracker, target, named, sources, output,
        dict(stand_ins or {}), argument_marks, states, inputs,
    )  # fmt: skip


def _marks(named: Mapping[str, Tensor], marks_of: Callable[[str, Tensor], Marks | None]) -> dict[str, Marks]:
    """The marks of those arguments that have some."""
    return {name: marks for name, tensor in named.items() if (marks := marks_of(name, tensor)) is not None}


def _unbuilt(plan: Plan, sizes: Mapping[str, int], user_files: tuple[str, ...], stand_ins: StandIns) -> Run:
    """The run of a plan whose target cannot be built; its operations have no marks."""
    failed = record(lambda: plan.build(sizes), user_files=user_files)
    return Run(plan, sizes, failed, ProvenanceTracker({}, is_followed=True), None, {}, {}, None, stand_ins)


def call_of(run: Run, entry: MarkedOp) -> Span:
    """The place of an operation; inside a helper with several callers, the place of the call."""
    operation = entry.operation
    others = [op.operation.chain for op in run.seen if op.span == operation.span]
    for place in reversed(range(len(operation.chain))):
        if any(len(chain) > place and chain[place] != operation.chain[place] for chain in others):
            return operation.chain[place]
    return operation.span
