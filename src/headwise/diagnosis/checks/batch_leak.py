"""Batch leak: whether one sample changes the result of another, and whether samples took the place of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import Marks, Run, attentions, place_of, sample_of
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.suspects import Suspect

__all__ = ["is_leaking", "sample_leaks", "tells_samples"]

# what may be said once for all samples, however it was handed over
SHARED = frozenset({"encoding", "cosine", "sine", "cosine_sine", "frequencies", "positions", "bias", "pairs"})


def sample_leaks(done: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Whether one sample changes another: the first operation in which it does."""
    known = _known(done)
    found = _leak(done, rerun)
    if found is None:
        return []
    sample, then = found
    entry = _first(done, then, sample) or attentions(done)[-1].context
    kind = "batch-length-confused" if _is_turned(done, rerun, known, sample) else "sample-leak"
    return [Suspect(kind, entry.operation.span)]


def is_leaking(done: Run, rerun: Callable[..., Run]) -> bool:
    """Whether anything of a sample's output changes with the other samples."""
    return _leak(done, rerun) is not None


def tells_samples(done: Run, rerun: Callable[..., Run]) -> bool:
    """Whether it is known which sample the entries of a run's inputs and of its output belong to."""
    return bool(_samples(done, rerun)[0])


def _samples(done: Run, rerun: Callable[..., Run]) -> tuple[dict[str, Tensor], Tensor]:
    """The number of the sample of each entry of the inputs, by their names, and of the output; none where not known."""
    known = _known(done)
    samples = {name: own for name, marks in known.items() if (own := _numbers(marks, sample_of)) is not None}
    if done.output is None or done.output.ndim == 0 or len(samples) < len(known):
        return {}, torch.empty(0)
    own = _result(done, done.output_marks, sample_of)
    if own is None:
        own = _along_batch(done, rerun)
    # an output that leaves samples out is of no batch, such as the last of what was taken for tokens
    if own is None or own.unique().numel() <= int(own.max()):
        return {}, torch.empty(0)
    # what has no axis of samples, or not as many of them, is every sample's, as places said for all of them
    last = int(own.max())
    return {name: each for name, each in samples.items() if int(each.max()) == last > 0}, own


def _leak(done: Run, rerun: Callable[..., Run]) -> tuple[int, Run] | None:
    """The first or the last sample, where its output changes with the others, and the run in which it does."""
    samples, own = _samples(done, rerun)
    if done.output is None or not samples:
        return None
    last = int(own.max())
    # where tokens took the place of samples and see only those before them, it is the last that sees the others
    for sample in (0, last):
        then = _disturbed(rerun, {name: each != sample for name, each in samples.items()})
        if then.output is None or then.output.shape != done.output.shape:
            return None
        if bool((_differs(then.output, done.output) & (own == sample)).any()):
            return sample, then
    return None


def _known(done: Run) -> dict[str, Marks]:
    """The marks of the arguments that hold tokens: their features, or their numbers in a vocabulary."""
    return {
        name: marks for name, marks in done.known.items()
        if call_role(name) not in SHARED and (done.named[name].is_floating_point() or _are_ids(done, name))
    }  # fmt: skip


def _are_ids(done: Run, name: str) -> bool:
    said = done.plan.call.get(name)
    # one number in all can be changed to no other
    return isinstance(said, Mapping) and "_ids" in said and bool(done.named[name].max() > 0)


def _numbers(marks: Marks, number: Callable[[Tensor], Tensor]) -> Tensor | None:
    t = marks.arrays["t"]
    return None if bool((t < 0).any()) else number(t)


def _result(done: Run, marks: Marks | None, number: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The number of the sample, or of the place, of each entry of the output: as marked, or as those of the queries."""
    if marks is not None and marks.kind == "token":
        found = _numbers(marks, number)
        if found is not None:
            return found
    name, queries = next(iter(_known(done).items()), ("", None))
    if queries is None or done.output is None:
        return None
    has_features = done.named[name].is_floating_point()
    if (queries.shape[:-1] if has_features else queries.shape) != tuple(done.output.shape[:-1]):
        return None
    found = _numbers(queries, number)
    if found is None:
        return None
    return (found[..., :1] if has_features else found[..., None]).expand(done.output.shape)


def _along_batch(done: Run, rerun: Callable[..., Run]) -> Tensor | None:
    """The number of the sample of each entry of the output, as of pooled tokens: by the one axis that grows with the
    batch; None: there is no such axis, or there are several.
    """
    count = done.sizes.get("B")
    if count is None or done.output is None:
        return None
    larger = rerun(sizes={**done.sizes, "B": count + 1})
    if larger.record.failure is not None or larger.output is None or larger.output.ndim != done.output.ndim:
        return None
    shapes = zip(done.output.shape, larger.output.shape, strict=True)
    grown = [axis for axis, sizes in enumerate(shapes) if sizes == (count, count + 1)]
    if len(grown) != 1:
        return None
    shape = [count if axis == grown[0] else 1 for axis in range(done.output.ndim)]
    return torch.arange(count).view(shape).expand(done.output.shape)


def _disturbed(rerun: Callable[..., Run], where: Mapping[str, Tensor]) -> Run:
    """A run in which some entries of the arguments hold other numbers."""

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, there in where.items():
            value = options.get(name)
            if isinstance(value, Tensor):
                options[name] = value.where(~there, _other_numbers(value))

    return rerun(more_change=change)


def _other_numbers(value: Tensor) -> Tensor:
    """Numbers that a norm of features tells from those of `value`: it takes the same shift and factor of all away.

    Of whole numbers others that came as well, since a vocabulary ends somewhere.
    """
    if not value.is_floating_point():
        return (value + 1) % (value.max() + 1)
    wave = torch.arange(value.numel(), dtype=value.dtype).cos().reshape(value.shape)
    return value * 1.3 + wave + 0.7


def _differs(a: Tensor, b: Tensor) -> Tensor:
    """Where two results are further apart than rounding makes them, as where all samples have one largest score."""
    return (a - b).abs().nan_to_num() > TOLERANCE * max(1.0, float(b.detach().abs().nan_to_num(posinf=0.0).max()))


def _first(done: Run, then: Run, sample: int) -> Any:
    """The first operation in which something of one sample changes with the others."""
    for a, b in zip(done.seen, then.seen, strict=False):
        for x, y, m in zip(a.operation.outputs, b.operation.outputs, a.made, strict=False):
            if m is None or m.kind != "token" or x.value is None or y.value is None:
                continue
            own = _numbers(m, sample_of)
            if own is not None and bool((_differs(x.value, y.value) & (own == sample)).any()):
                return a
    return None


def _is_turned(done: Run, rerun: Callable[..., Run], known: Mapping[str, Marks], which: int) -> bool:
    """Whether other tokens of its own sample change nothing for the last token, while other samples do."""
    places = {name: own for name, marks in known.items() if (own := _numbers(marks, place_of)) is not None}
    samples = {name: own for name, marks in known.items() if (own := _numbers(marks, sample_of)) is not None}
    if done.output is None or set(places) != set(known):
        return False
    then = _disturbed(rerun, {name: (samples[name] == which) & (places[name] != places[name].max()) for name in places})
    place, sample = (_result(done, done.output_marks, each) for each in (place_of, sample_of))
    if then.output is None or place is None or sample is None or then.output.shape != done.output.shape:
        return False
    own = (sample == which) & (place == place.max())
    return not bool((_differs(then.output, done.output) & own).any())
