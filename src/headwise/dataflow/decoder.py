"""Decoder: runs a target over a sequence in chunks with its cache, and over the whole sequence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import CacheProtocol, Plan
from headwise.dataflow.argument_marks import declared, named_tensors
from headwise.dataflow.float64 import Unset, readied
from headwise.dataflow.manner import arguments, default_dtype, first_of
from headwise.dataflow.propagation import ProvenanceTracker
from headwise.dataflow.provenance import Marks
from headwise.dataflow.runner import Run, StandIns
from headwise.recording import Record, Replacing, Site, record, seeded, tensors

__all__ = ["Decoded", "Decoder", "DecodingStep", "axes_of"]


@dataclass
class DecodingStep:
    """The running call of a sequence. first, end: its tokens; counts: how often each site ran in it."""

    first: int = 0
    end: int = 0
    counts: dict[Site, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Decoded:
    """A sequence run in chunks. outputs: of each finished call; error: None where all finished. run: with marks and
    values, where it is recorded; bounds: the first operation of each call in it. cache: arguments of the last call.
    """

    cuts: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    error: Exception | None = None
    run: Run | None = None
    bounds: tuple[int, ...] = ()
    cache: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Decoder:
    """A decoding target. plan: its call without a cache, at these sizes; change: alters the target before a run.

    opening: arguments that only the first call of a sequence gets.
    """

    plan: Plan
    sizes: Mapping[str, int]
    user_files: tuple[str, ...]
    dtype: torch.dtype = torch.float64
    change: Callable[[Any, dict[str, Any]], None] | None = None
    stand_ins: StandIns = field(default_factory=dict)
    place: DecodingStep = field(default_factory=DecodingStep)
    wholes: dict[tuple[int, bool], Decoded] = field(default_factory=dict)
    opening: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        """The number of tokens."""
        return self.sizes["L"]

    @property
    def axis(self) -> int:
        """The token axis of the output."""
        shape = next(axes for axes in map(axes_of, self.plan.call.values()) if "L" in axes)
        return shape.index("L")

    def whole(self, end: int, *, recorded: bool = False) -> Decoded:
        """The first tokens in one call without a cache."""
        key = (end, recorded)
        if key not in self.wholes:
            self.wholes[key] = self._decoded(CacheProtocol("", self.plan), (end,), recorded=recorded)
        return self.wholes[key]

    def parts(self, way: CacheProtocol, cuts: Sequence[int], **options: Any) -> Decoded:
        """The tokens in chunks of these lengths, with a cache.

        stand_ins: replacements of operations. seed: of the inputs. recorded: whether the run is kept. disturbed: the
        number of changed tokens at the beginning. again: whether another sequence ran before.
        """
        return self._decoded(way, tuple(cuts), **options)

    def _decoded(
        self,
        way: CacheProtocol,
        cuts: tuple[int, ...],
        *,
        stand_ins: StandIns | None = None,
        seed: int = 0,
        recorded: bool = False,
        disturbed: int = 0,
        again: bool = False,
    ) -> Decoded:
        with default_dtype(self.dtype), torch.no_grad(), seeded(seed):
            try:
                target, args, options = self._ready(way, seed)
                if again:
                    self._loop(_Loop(self, way, target, *self._ready(way, seed + 1)[1:], cuts))
                    if not way.names and way.prepare is not None:
                        way.prepare(target)
                if disturbed:
                    args, options = self._disturbed(args, options, disturbed)
                loop = _Loop(self, way, target, args, options, cuts)
            except Exception as error:  # noqa: BLE001  user code may raise anything; it is returned
                return Decoded(cuts, (), error)
            every = {**self.stand_ins, **(stand_ins or {})}
            with Replacing(every, self.user_files):
                if not recorded:
                    return self._loop(loop)
                tracker = ProvenanceTracker(loop.argument_marks, every)
                model = target if isinstance(target, nn.Module) else None

                def observe(at: int, *rest: Any) -> None:
                    loop.count = at + 1
                    tracker.observe(at, *rest)

                recording = record(
                    loop.run, model=model, user_files=self.user_files, values=True, in_steps=True, observe=observe
                )
        return self._kept(loop, recording, tracker, way)

    def _loop(self, loop: _Loop) -> Decoded:
        try:
            loop.run()
        except Exception as error:  # noqa: BLE001  as above
            return Decoded(loop.cuts, tuple(loop.outputs), error, cache=loop.cache)
        return Decoded(loop.cuts, tuple(loop.outputs), cache=loop.cache)

    def _kept(self, loop: _Loop, recording: Record, tracker: ProvenanceTracker, way: CacheProtocol) -> Decoded:
        output = loop.outputs[-1] if loop.outputs else None
        run = Run(
            way.plan,
            self.sizes,
            recording,
            tracker,
            loop.target,
            {},
            {},
            output,
            self.stand_ins,
        )
        error = recording.failure.error if recording.failure is not None else None
        wrong = error if isinstance(error, Exception) else None
        return Decoded(loop.cuts, tuple(loop.outputs), wrong, run, tuple(loop.bounds), loop.cache)

    def _ready(self, way: CacheProtocol, seed: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        plan = way.plan
        with Unset():
            built = plan.build(self.sizes)
        if not isinstance(plan.target, type) and isinstance(built, nn.Module):
            built = copy.deepcopy(built)
        if way.prepare is not None:
            way.prepare(built)
        target = readied(built, self.dtype) if isinstance(built, nn.Module) else built
        args, options = arguments(plan, self.sizes, seed, self.dtype)
        if self.change is not None:
            self.change(target, options)
        return target, args, options

    def _disturbed(
        self, args: tuple[Any, ...], options: dict[str, Any], count: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with other tokens at the beginning."""

        def changed(name: str, value: Any) -> Any:
            shape = axes_of(self.plan.call.get(name))
            if not isinstance(value, Tensor) or "L" not in shape or "B" not in shape or name == self.plan.mask:
                return value
            out = value.clone()
            head = out.narrow(shape.index("L"), 0, count)
            head.copy_(head.flip(-1) * 1.7 + 0.3 if value.is_floating_point() else (head + 1) % (int(value.max()) + 1))
            return out

        names = [name for name in self.plan.call if not name.startswith("_")]
        return (
            tuple(changed(name, each) for name, each in zip(names, args, strict=False)),
            {name: changed(name, each) for name, each in options.items()},
        )


class _Loop:
    """The calls of one sequence."""

    def __init__(
        self,
        decoder: Decoder,
        way: CacheProtocol,
        target: Any,
        args: tuple[Any, ...],
        options: dict[str, Any],
        cuts: tuple[int, ...],
    ) -> None:
        self.decoder, self.way, self.target, self.cuts = decoder, way, target, cuts
        self.outputs: list[Tensor] = []
        self.bounds: list[int] = []
        self.argument_marks: dict[int, Marks] = {}
        self.cache: dict[str, Any] = way.start()
        self.count = 0
        self.calls = [self._call(args, options, sum(cuts[:at]), sum(cuts[: at + 1])) for at in range(len(cuts))]

    def _call(
        self, args: tuple[Any, ...], options: dict[str, Any], first: int, end: int
    ) -> tuple[int, int, tuple[Any, ...], dict[str, Any]]:
        plan, sizes = self.way.plan, self.decoder.sizes
        names = [name for name in plan.call if not name.startswith("_")]
        values = [self._part(name, each, first, end) for name, each in zip(names, args, strict=False)]
        more = {name: self._part(name, each, first, end) for name, each in options.items()}
        more |= self.way.options
        more |= dict.fromkeys(self.way.starts, first)
        if first:
            more = {name: each for name, each in more.items() if name not in self.decoder.opening}
        for name, rank in self.way.positions.items():
            places = torch.arange(first, end)
            more[name] = places if rank == 1 else places.expand(sizes.get("B", 1), -1)
        whole = named_tensors(plan, args, options)
        for at, (name, value) in enumerate(whole.items()):
            marks = declared(plan, name, value, at)
            part = more.get(name)
            part = (
                values[names.index(name)]
                if part is None and name in names and names.index(name) < len(values)
                else part
            )
            if marks is not None and isinstance(part, Tensor):
                self.argument_marks[id(part)] = marks.through(
                    lambda array, name=name: self._part(name, array, first, end)  # type: ignore[misc]
                )
        return first, end, tuple(values), more

    def _part(self, name: str, value: Any, first: int, end: int) -> Any:
        """The tokens of an argument that a call gets."""
        if name in self.way.tables:
            return value
        spec = self.way.plan.call.get(name)
        mask = self.way.plan.call.get("_mask")
        if isinstance(mask, Mapping) and name == mask["argument"] and isinstance(value, Tensor):
            axes = [at for at, each in enumerate(mask["shape"]) if each == "L"]
            for axis in axes[:-1]:
                value = value.narrow(axis, first, end - first)
            return value.narrow(axes[-1], 0, end) if axes else value
        return _narrowed(value, spec, first, end, self.decoder.total)

    def run(self) -> None:
        """Run the calls in order."""
        place = self.decoder.place
        for at, (first, end, args, options) in enumerate(self.calls):
            place.first, place.end = first, end
            place.counts.clear()
            self.bounds.append(self.count)
            result = self.target(*args, **{**options, **self.cache})
            output = next(iter(tensors(first_of(result))), None)
            if output is None:
                raise LookupError("the call gave no tensor")
            self.outputs.append(output.detach().clone())
            if at + 1 < len(self.calls):
                self.cache = self.way.onward(self.cache, result)


def axes_of(spec: Any) -> list[str]:
    """The axes of an argument as a plan has it, those of token numbers too; none of anything else."""
    if isinstance(spec, Mapping):
        spec = spec.get("_ids", [])
    return [str(axis) for axis in spec] if isinstance(spec, list) else []


def _narrowed(value: Any, spec: Any, first: int, end: int, total: int) -> Any:
    if isinstance(value, tuple):
        specs = spec["_tuple"] if isinstance(spec, Mapping) and "_tuple" in spec else [None] * len(value)
        return tuple(
            _narrowed(part, part_spec, first, end, total) for part, part_spec in zip(value, specs, strict=True)
        )
    if not isinstance(value, Tensor):
        return value
    shape = axes_of(spec)
    axes = [at for at, each in enumerate(shape) if each == "L"]
    if not shape:
        axes = [at for at, size in enumerate(value.shape) if size == total]
    for axis in axes:
        value = value.narrow(axis, first, end - first)
    # as a separate call would pass it
    return value.contiguous()
