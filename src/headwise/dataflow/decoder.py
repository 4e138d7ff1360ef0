"""Decoder: runs a target over a sequence in parts with its cache, and over the whole sequence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, Way
from headwise.dataflow.float64 import Unset, readied
from headwise.dataflow.propagation import Shadow
from headwise.dataflow.provenance import Marks
from headwise.dataflow.runner import (
    Run,
    StandIns,
    arguments,
    declared,
    default_dtype,
    first_of,
    named_tensors,
)
from headwise.recording import Record, Replacing, Site, record, tensors

__all__ = ["Decoded", "Decoder", "Place"]


@dataclass
class Place:
    """Which tokens the call that runs is of, and how often each site was met in it."""

    first: int = 0
    end: int = 0
    counts: dict[Site, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Decoded:
    """A sequence run in parts. outputs: of each call that ended; error: None where all did. run: with marks and
    values, where that was asked for; bounds: the first operation of each call in it. held: what was handed on last.
    """

    cuts: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    error: Exception | None = None
    run: Run | None = None
    bounds: tuple[int, ...] = ()
    held: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Decoder:
    """A target that is decoded with. plan: that runs without a cache, at these sizes; change: done to it before.

    opening: arguments that only the first call of a sequence is given.
    """

    plan: Plan
    sizes: Mapping[str, int]
    own: tuple[str, ...]
    dtype: torch.dtype = torch.float64
    change: Callable[[Any, dict[str, Any]], None] | None = None
    stand_ins: StandIns = field(default_factory=dict)
    place: Place = field(default_factory=Place)
    wholes: dict[tuple[int, bool], Decoded] = field(default_factory=dict)
    opening: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        """The number of tokens."""
        return self.sizes["L"]

    @property
    def axis(self) -> int:
        """Which axis of the output is that of the tokens."""
        shape = next(said for said in map(_shape_of, self.plan.call.values()) if "L" in said)
        return shape.index("L")

    def whole(self, end: int, *, recorded: bool = False) -> Decoded:
        """The first tokens, at once and without a cache."""
        key = (end, recorded)
        if key not in self.wholes:
            self.wholes[key] = self._decoded(Way("", self.plan), (end,), recorded=recorded)
        return self.wholes[key]

    def parts(self, way: Way, cuts: Sequence[int], **options: Any) -> Decoded:
        """The tokens in parts of these lengths, with a cache.

        stand_ins: operations that others stand in for. seed: of the inputs. recorded: whether the run is kept.
        disturbed: so many tokens at the beginning are others. again: whether another sequence was run before.
        """
        return self._decoded(way, tuple(cuts), **options)

    def _decoded(
        self,
        way: Way,
        cuts: tuple[int, ...],
        *,
        stand_ins: StandIns | None = None,
        seed: int = 0,
        recorded: bool = False,
        disturbed: int = 0,
        again: bool = False,
    ) -> Decoded:
        with default_dtype(self.dtype), torch.no_grad(), torch.random.fork_rng(devices=()):
            try:
                target, args, options = self._ready(way, seed)
                if again:
                    self._loop(_Loop(self, way, target, *self._ready(way, seed + 1)[1:], cuts))
                    if not way.names and way.prepare is not None:
                        way.prepare(target)
                if disturbed:
                    args, options = self._disturbed(args, options, disturbed)
                loop = _Loop(self, way, target, args, options, cuts)
            except Exception as error:  # noqa: BLE001  whatever it is, it is the person's, and tells what to try next
                return Decoded(cuts, (), error)
            every = {**self.stand_ins, **(stand_ins or {})}
            with Replacing(every, self.own):
                if not recorded:
                    return self._loop(loop)
                shadow = Shadow(loop.known, every)
                model = target if isinstance(target, nn.Module) else None

                def observe(at: int, *rest: Any) -> None:
                    loop.count = at + 1
                    shadow.observe(at, *rest)

                done = record(loop.run, model=model, user_files=self.own, values=True, observe=observe)
        shadow.follow(done.operations)
        return self._kept(loop, done, shadow, way)

    def _loop(self, loop: _Loop) -> Decoded:
        try:
            loop.run()
        except Exception as error:  # noqa: BLE001  as above
            return Decoded(loop.cuts, tuple(loop.outputs), error, held=loop.held)
        return Decoded(loop.cuts, tuple(loop.outputs), held=loop.held)

    def _kept(self, loop: _Loop, done: Record, shadow: Shadow, way: Way) -> Decoded:
        output = loop.outputs[-1] if loop.outputs else None
        run = Run(
            way.plan, self.sizes, done, tuple(shadow.seen), shadow.marks, loop.target, {}, {}, output, self.stand_ins
        )
        error = done.failure.error if done.failure is not None else None
        wrong = error if isinstance(error, Exception) else None
        return Decoded(loop.cuts, tuple(loop.outputs), wrong, run, tuple(loop.bounds), loop.held)

    def _ready(self, way: Way, seed: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
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
            shape = _shape_of(self.plan.call.get(name))
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
        way: Way,
        target: Any,
        args: tuple[Any, ...],
        options: dict[str, Any],
        cuts: tuple[int, ...],
    ) -> None:
        self.decoder, self.way, self.target, self.cuts = decoder, way, target, cuts
        self.outputs: list[Tensor] = []
        self.bounds: list[int] = []
        self.known: dict[int, Marks] = {}
        self.held: dict[str, Any] = way.start()
        self.count = 0
        self.calls = [self._call(args, options, sum(cuts[:at]), sum(cuts[: at + 1])) for at in range(len(cuts))]

    def _call(
        self, args: tuple[Any, ...], options: dict[str, Any], first: int, end: int
    ) -> tuple[int, int, tuple[Any, ...], dict[str, Any]]:
        plan, sizes = self.way.plan, self.decoder.sizes
        names = [name for name in plan.call if not name.startswith("_")]
        own = [self._part(name, each, first, end) for name, each in zip(names, args, strict=False)]
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
            part = own[names.index(name)] if part is None and name in names and names.index(name) < len(own) else part
            if marks is not None and isinstance(part, Tensor):
                self.known[id(part)] = marks.through(
                    lambda each, name=name: self._part(name, each, first, end)  # type: ignore[misc]
                )
        return first, end, tuple(own), more

    def _part(self, name: str, value: Any, first: int, end: int) -> Any:
        """The tokens of an argument that a call is of."""
        if name in self.way.tables:
            return value
        said = self.way.plan.call.get(name)
        mask = self.way.plan.call.get("_mask")
        if isinstance(mask, Mapping) and name == mask["argument"] and isinstance(value, Tensor):
            axes = [at for at, each in enumerate(mask["shape"]) if each == "L"]
            for axis in axes[:-1]:
                value = value.narrow(axis, first, end - first)
            return value.narrow(axes[-1], 0, end) if axes else value
        return _narrowed(value, said, first, end, self.decoder.total)

    def run(self) -> None:
        """Make the calls, one after the other."""
        place = self.decoder.place
        for at, (first, end, args, options) in enumerate(self.calls):
            place.first, place.end = first, end
            place.counts.clear()
            self.bounds.append(self.count)
            result = self.target(*args, **{**options, **self.held})
            output = next(iter(tensors(first_of(result))), None)
            if output is None:
                raise LookupError("the call gave no tensor")
            self.outputs.append(output.detach().clone())
            if at + 1 < len(self.calls):
                self.held = self.way.onward(self.held, result)


def _shape_of(said: Any) -> list[str]:
    if isinstance(said, Mapping):
        said = said.get("_ids", [])
    return [str(each) for each in said] if isinstance(said, list) else []


def _narrowed(value: Any, said: Any, first: int, end: int, total: int) -> Any:
    if isinstance(value, tuple):
        each_said = said["_tuple"] if isinstance(said, Mapping) and "_tuple" in said else [None] * len(value)
        return tuple(_narrowed(each, own, first, end, total) for each, own in zip(value, each_said, strict=True))
    if not isinstance(value, Tensor):
        return value
    shape = _shape_of(said)
    axes = [at for at, each in enumerate(shape) if each == "L"]
    if not shape:
        axes = [at for at, size in enumerate(value.shape) if size == total]
    for axis in axes:
        value = value.narrow(axis, first, end - first)
    # as a call of its own would bring it
    return value.contiguous()
