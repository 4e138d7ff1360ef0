"""Side effects: whether a call changes its arguments or its module, so that a second call differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import other_lengths
from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.backward import apart
from headwise.diagnosis.checks.mode_switches import switched_modes
from headwise.diagnosis.checks.parted_runs import parting
from headwise.diagnosis.checks.stale_weights import stale_weights
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.distance import distance
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["BEFORE", "changed_arguments", "changed_masks", "left_over", "memories"]

# the seed of the inputs of the call before
BEFORE = 17
NEAR = 1e-9
Sizes = tuple[tuple[str, int], ...]
# how many tokens the call before may have had
WAYS = ("shorter", "longer")
# numbers below it hide what they are added to; the name with which a statement begins
HIDDEN, FIRST = -1e3, re.compile(r"[A-Za-z_]\w*")
# what keeps nothing by itself: a number or a word, and how a width is given to a constructor
NUMBERS = int | float | str
WIDTHS = ("D", "d", "H*d")
# what is kept from call to call on purpose
MEMORIES = re.compile(r"cache|past|mems?($|_)|memory|history|stream|recurrent|(^|_)state($|_)", re.IGNORECASE)


def changed_arguments(run: Run) -> list[Suspect]:
    """Arguments that a call changed in place: the first line that did it; what is there to be written to may be."""
    out = []
    for name, marks in run.given.items():
        if MEMORIES.search(name) or _is_equal(marks, run.named[name]):
            continue
        writer = _writer(run, run.named[name])
        if writer is None:
            continue
        # a mask that a call makes ready for itself is the same mask to the next call, or else that call is wrong
        severity = "note" if name == run.plan.mask else "fault"
        out.append(
            Suspect(
                "input-modified",
                writer.span,
                Repair({writer.site: apart(writer)}),
                severity=severity,
                values={"name": name},
            )
        )
    return out


def changed_masks(run: Run) -> list[Suspect]:
    """A mask that one layer is handed, lays over its own scores and changes in place, and that hides keys in another
    layer after it, which does not change it: what was made for one attention is laid over all.
    """
    for entry in run.seen:
        layer = entry.operation.module
        for before, marks in zip(entry.inputs, entry.given, strict=True) if layer else ():
            is_written = before.number in entry.operation.writes and (marks is None or marks.kind != "pair")
            if not is_written or not _is_of_outside(run, entry, before.storage):
                continue
            after = next((output.value for output in entry.outputs if output.storage == before.storage), None)
            if after is None or before.value is None or not _hides_more(before.value, after):
                continue
            users = [
                op for op in run.seen if op.at > entry.at and op.pair is not None and before.storage in _storages(op)
            ]
            others = [op for op in users if not _is_within(op, layer) and not _writes(run, op, before.storage)]
            if others and any(_is_within(op, layer) for op in users):
                name = FIRST.match(entry.span.source)
                said = {"name": name[0] if name else "mask"}
                return [Suspect("input-modified", entry.span, values=said, proved=True)]
    return []


def _writes(run: Run, user: MarkedOp, storage: int) -> bool:
    """Whether the module of an operation changes a tensor itself."""
    written = (op for op in run.seen if op.operation.module == user.operation.module)
    return any(
        tensor.storage == storage and tensor.number in op.operation.writes for op in written for tensor in op.inputs
    )


def _is_of_outside(run: Run, entry: MarkedOp, storage: int) -> bool:
    """Whether a tensor that an operation changes was made outside of the module of that operation."""
    maker = next((op for op in run.seen if any(output.storage == storage for output in op.outputs)), None)
    return maker is None or (maker.at < entry.at and not _is_within(maker, entry.operation.module))


def _is_within(entry: MarkedOp, module: str) -> bool:
    return entry.operation.module == module or entry.operation.module.startswith(f"{module}.")


def _storages(entry: MarkedOp) -> set[int]:
    return {tensor.storage for tensor in entry.inputs}


def _hides_more(before: Tensor, after: Tensor) -> bool:
    """Whether a mask is another after a change: one of true and false at all, one that is added where it hides more."""
    if before.shape != after.shape or before.ndim < 2:
        return False
    if before.dtype is torch.bool:
        return not torch.equal(before, after)
    return before.is_floating_point() and bool(((after < HIDDEN) & (before > HIDDEN)).any())


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.detach().nan_to_num())


def _writer(run: Run, argument: Tensor) -> MarkedOp | None:
    """The first operation that wrote into the memory of an argument."""
    place = argument.untyped_storage().data_ptr()
    for entry in run.seen:
        written = [
            tensor
            for operand, tensor in zip(entry.inputs, entry.tensors, strict=False)
            if operand.number in entry.operation.writes
        ]
        if any(tensor.untyped_storage().data_ptr() == place for tensor in written if tensor.layout is torch.strided):
            return entry
    return None


def left_over(run: Run, rerun: Callable[..., Run], calls: Sequence[int] = (0, BEFORE)) -> tuple[list[Suspect], Tried]:
    """Whether a call after another one, or after eval() again, gives what the first gives, in eval; what was tried.

    calls: the seeds of the inputs of the calls before; after those of the same lengths come calls with others.
    """
    if run.output is None:
        return [], Missed("doctor.missed.no_output")
    for earlier, before in chain(((seed, ()) for seed in calls), _of_other_lengths(run, calls[-1])):
        again = rerun(earlier=earlier, before=before)
        raised = again.failure
        if raised is not None:
            place = raised.span
        elif again.output is None or distance(run.output, again.output) <= NEAR:
            continue
        else:
            place = parting(run.seen, again.seen) or (run.seen[-1].span if run.seen else None)
        if before and rerun(sizes=dict(before), seed=earlier).failure is not None:
            # that call does not run by itself
            continue
        kept = memories(run)
        if kept:
            return [], Missed("doctor.missed.memory", {"name": kept[0]})
        forgot = rerun(earlier=earlier, before=before, forgets=True)
        if forgot.failure is not None or forgot.output is None or distance(run.output, forgot.output) > NEAR:
            return [Suspect("stateful-forward", place)], True
        error = f"{distance(run.output, again.output):.4g}" if raised is None else type(raised.error).__name__
        values = {"how": "forgotten" if raised is None else "raised_laws"}
        return [Suspect("stateful-forward", place, values=values, proved=True, evidence=error)], True
    return switched_modes(run, rerun) or stale_weights(run, rerun), True


def _of_other_lengths(run: Run, seed: int) -> Iterator[tuple[int, Sizes]]:
    """The seed and the sizes of calls with fewer and with more tokens."""
    for way in WAYS:
        sizes = other_lengths(run.plan, run.sizes, way)
        if sizes != run.sizes:
            yield seed, tuple(sizes.items())


def memories(run: Run) -> list[str]:
    """The names of what a target keeps from one call to the next, where they say that it is kept on purpose."""
    if not isinstance(run.target, nn.Module):
        return []
    attributes = [pair for module in run.target.modules() for pair in (*vars(module).items(), *module._buffers.items())]
    attributes = [pair for pair in attributes if MEMORIES.search(pair[0]) and not pair[0].startswith("_")]
    # a number that no call changes, as the width of a state, keeps nothing
    built = run.plan.build(run.sizes) if any(isinstance(value, NUMBERS) for _, value in attributes) else run.target
    fixed = {} if built is run.target else _numbers(built)
    names = [name for name, value in attributes if not isinstance(value, NUMBERS) or fixed.get(name) != value]
    options = [name for name, size in run.plan.init.items() if size not in WIDTHS]
    return [*names, *(name for name in (*options, *run.plan.call) if MEMORIES.search(name))]


def _numbers(target: Any) -> dict[str, Any]:
    """The numbers and words that a module and those in it hold, by name."""
    modules = target.modules() if isinstance(target, nn.Module) else ()
    return {name: value for module in modules for name, value in vars(module).items() if isinstance(value, NUMBERS)}
