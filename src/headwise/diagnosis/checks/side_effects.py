"""Side effects: whether a call changes its arguments or its module, so that a second call differs."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.parameters import apart
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.suspects import Suspect
from headwise.recording import site_of
from headwise.source import Span

__all__ = ["changed_arguments", "left_over", "memories"]

# the seed of the inputs of the call before
BEFORE = 17
NEAR = 1e-9
# what is kept from call to call on purpose
MEMORIES = re.compile(r"cache|past|mems?($|_)|memory|history|stream|recurrent|(^|_)state($|_)", re.IGNORECASE)


def changed_arguments(run: Run) -> list[Suspect]:
    """Arguments that a call changed in place: the first line that did it; what is there to be written to may be."""
    out = []
    for name, held in run.given.items():
        if MEMORIES.search(name) or _is_equal(held, run.named[name]):
            continue
        writer = _writer(run, run.named[name])
        if writer is None:
            continue
        # a mask that a call makes ready for itself is the same mask to the next call, or else that call is wrong
        severity = "note" if name == run.plan.mask else "fault"
        out.append(
            Suspect(
                "input-modified", writer.operation.span, {site_of(writer.operation): apart(writer)}, severity=severity,
                said={"name": name},
            )
        )  # fmt: skip
    return out


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.detach().nan_to_num())


def _writer(run: Run, argument: Tensor) -> MarkedOp | None:
    """The first operation that wrote into the memory of an argument."""
    place = argument.untyped_storage().data_ptr()
    for entry in run.seen:
        written = [
            tensor
            for seen, tensor in zip(entry.operation.inputs, entry.tensors, strict=False)
            if seen.number in entry.operation.writes
        ]
        if any(each.untyped_storage().data_ptr() == place for each in written if each.layout is torch.strided):
            return entry
    return None


def left_over(run: Run, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """Whether a call after another one gives what it gives as the first, in eval; and what was tried."""
    if run.output is None:
        return [], Missed("doctor.missed.no_output")
    for earlier in (0, BEFORE):
        again = rerun(earlier=earlier)
        raised = again.record.failure
        if raised is not None:
            place = raised.span
        elif again.output is None or _is_near(run.output, again.output):
            continue
        else:
            place = _parting(run, again)
        kept = memories(run)
        if kept:
            return [], Missed("doctor.missed.memory", {"name": kept[0]})
        forgot = rerun(earlier=earlier, forgets=True)
        if forgot.record.failure is not None or forgot.output is None or not _is_near(run.output, forgot.output):
            return [Suspect("stateful-forward", place)], True
        error = _apart(run.output, again.output) if raised is None else type(raised.error).__name__
        said = {"how": "forgotten" if raised is None else "raised_laws"}
        return [Suspect("stateful-forward", place, said=said, proved=True, evidence=error)], True
    return [], True


def _apart(a: Tensor, b: Tensor | None) -> str:
    """How far two outputs are apart, as it is said."""
    if b is None or a.shape != b.shape:
        return "inf"
    return f"{float((a - b).detach().abs().nan_to_num(nan=float('inf')).max()):.4g}"


def _is_near(a: Tensor, b: Tensor) -> bool:
    if a.dtype is torch.bool:
        return torch.equal(a, b)
    if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return False
    # infinity less infinity is none
    return bool(((a - b).detach().abs().nan_to_num() <= NEAR).all())


def _parting(first: Run, second: Run) -> Span | None:
    """Where two runs on the same inputs part."""
    for a, b in zip(first.seen, second.seen, strict=False):
        if a.operation.span != b.operation.span or a.operation.name != b.operation.name:
            return b.operation.span
        for x, y in zip(a.operation.outputs, b.operation.outputs, strict=False):
            if x.value is not None and y.value is not None and not _is_near(x.value, y.value):
                return b.operation.span
    return first.seen[-1].operation.span if first.seen else None


def memories(run: Run) -> list[str]:
    """The names of what a target keeps from one call to the next, where they say that it is kept on purpose."""
    if not isinstance(run.target, nn.Module):
        return []
    names = [name for module in run.target.modules() for name in (*vars(module), *module._buffers)]
    names = [name for name in names if not name.startswith("_")]
    return [name for name in (*names, *run.plan.init, *run.plan.call) if MEMORIES.search(name)]
