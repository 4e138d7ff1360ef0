"""Batch leak: whether one sample changes the result of another, and whether samples took the place of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import MarkedOp, Marks, Run, attentions, place_of, sample_of
from headwise.diagnosis.checks.built_layers import untold_layer
from headwise.diagnosis.checks.pooled_samples import attends_rows
from headwise.diagnosis.checks.repeated_masks import repeated_mask
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Rebound

__all__ = ["SHARED", "differs", "first_changed", "is_leaking", "sample_leaks", "samples_of", "tells_samples"]

# what may be said once for all samples, however it was handed over
SHARED = frozenset({"encoding", "cosine", "sine", "cosine_sine", "frequencies", "positions", "bias", "pairs"})


def sample_leaks(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Whether one sample changes another: the first operation in which it does."""
    marks_by_name = _known(run)
    leak = _leak(run, rerun)
    if leak is None:
        return []
    sample, disturbed = leak
    entry = first_changed(run, disturbed, sample) or (attentions(run)[-1].context if attentions(run) else run.seen[-1])
    home = untold_layer(run, entry)
    if attends_rows(run, entry.at):
        return []

    def is_kept(stand_ins: Any) -> bool:
        def again(**options: Any) -> Run:
            fixed: Run = rerun(stand_ins, **options)
            return fixed

        fixed = again()
        return fixed.failure is None and tells_samples(fixed, again) and not is_leaking(fixed, again)

    if tiled := repeated_mask(run, entry, is_kept):
        return tiled
    is_turned = _is_turned(run, rerun, marks_by_name, sample) or (home is not None and not _leaks_turned(run, rerun))
    if not is_turned:
        # samples that cross each other by broadcasting were given too few axes
        return [Suspect("sample-leak", entry.span, guess="axes" if len(_grown(run, rerun)) > 1 else "")]
    return [Suspect("batch-length-confused", entry.span, home=home)]


def _leaks_turned(run: Run, rerun: Callable[..., Run]) -> bool:
    """Whether samples still change each other where torch's layers are handed samples along their axis of samples."""

    def turned(entry: MarkedOp) -> Callable[..., Any]:
        def right(layer: Any, *args: Any, **options: Any) -> Any:
            given = {name: _turned(value) for name, value in options.items()}
            output, weights = entry.function(layer, *map(_turned, args), **given)
            return _turned(output), weights

        return right

    layers = [entry for entry in run.seen if untold_layer(run, entry) is not None]
    stand_ins = {entry.site: Rebound(turned(entry), {}) for entry in layers}

    def again(**options: Any) -> Run:
        turned_run: Run = rerun(stand_ins, **options)
        return turned_run

    fixed = again()
    return fixed.failure is not None or not tells_samples(fixed, again) or is_leaking(fixed, again)


def _turned(value: Any) -> Any:
    is_batched = isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point()
    return value.transpose(0, 1) if is_batched else value


def is_leaking(run: Run, rerun: Callable[..., Run]) -> bool:
    """Whether anything of a sample's output changes with the other samples."""
    return _leak(run, rerun) is not None


def tells_samples(run: Run, rerun: Callable[..., Run]) -> bool:
    """Whether it is known which sample the entries of a run's inputs and of its output belong to, and other samples can
    hold other numbers.
    """
    if run.output is None or not samples_of(run, rerun)[0] or attends_rows(run):
        return False
    disturbed = run.fact(_beside_first, run, rerun)
    return disturbed.output is not None and disturbed.output.shape == run.output.shape


def samples_of(run: Run, rerun: Callable[..., Run]) -> tuple[dict[str, Tensor], Tensor]:
    """The number of the sample of each entry of the inputs, by their names, and of the output; none where not known."""
    marks_by_name = _known(run)
    samples = {
        name: of_output
        for name, marks in marks_by_name.items()
        if (of_output := _numbers(marks, sample_of)) is not None
    }
    if run.output is None or run.output.ndim == 0 or len(samples) < len(marks_by_name):
        return {}, torch.empty(0)
    of_output = _result(run, run.output_marks, sample_of)
    if of_output is None:
        of_output = _along_batch(run, rerun)
    # an output that leaves samples out is of no batch, such as the last of what was taken for tokens
    if of_output is None or of_output.unique().numel() <= int(of_output.max()):
        return {}, torch.empty(0)
    # what has no axis of samples, or not as many of them, is every sample's, as places said for all of them
    last = int(of_output.max())
    return {name: each for name, each in samples.items() if int(each.max()) == last > 0}, of_output


def _leak(run: Run, rerun: Callable[..., Run]) -> tuple[int, Run] | None:
    """The first or the last sample, where its output changes with the others, and the run in which it does."""
    samples, of_output = samples_of(run, rerun)
    if run.output is None or not samples:
        return None
    last = int(of_output.max())
    # where tokens took the place of samples and see only those before them, it is the last that sees the others
    for sample in (0, last):
        others = {name: each != sample for name, each in samples.items()}
        repeated = _disturbed(rerun, others) if sample else run.fact(_beside_first, run, rerun)
        if repeated.output is None or repeated.output.shape != run.output.shape:
            return None
        if bool((differs(repeated.output, run.output) & (of_output == sample)).any()):
            return sample, repeated
    return None


def _beside_first(run: Run, rerun: Callable[..., Run]) -> Run:
    """A run in which all samples but the first hold other numbers."""
    samples, _ = samples_of(run, rerun)
    return _disturbed(rerun, {name: each != 0 for name, each in samples.items()})


def _known(run: Run) -> dict[str, Marks]:
    """The marks of the arguments that hold tokens: their features, or their numbers in a vocabulary."""
    return {
        name: marks for name, marks in run.argument_marks.items()
        if call_role(name) not in SHARED and (run.named[name].is_floating_point() or _are_ids(run, name))
    }  # fmt: skip


def _are_ids(run: Run, name: str) -> bool:
    declared = run.plan.call.get(name)
    # one number in all can be changed to no other
    return isinstance(declared, Mapping) and "_ids" in declared and bool(run.named[name].max() > 0)


def _numbers(marks: Marks, number: Callable[[Tensor], Tensor]) -> Tensor | None:
    t = marks.arrays["t"]
    return None if bool((t < 0).any()) else number(t)


def _result(run: Run, marks: Marks | None, number: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The number of the sample, or of the place, of each entry of the output: as marked, or as those of the queries."""
    if marks is not None and marks.kind == "token":
        numbers = _numbers(marks, number)
        if numbers is not None:
            return numbers
    name, queries = next(iter(_known(run).items()), ("", None))
    if queries is None or run.output is None:
        return None
    has_features = run.named[name].is_floating_point()
    if (queries.shape[:-1] if has_features else queries.shape) != tuple(run.output.shape[:-1]):
        return None
    numbers = _numbers(queries, number)
    if numbers is None:
        return None
    return (numbers[..., :1] if has_features else numbers[..., None]).expand(run.output.shape)


def _along_batch(run: Run, rerun: Callable[..., Run]) -> Tensor | None:
    """The number of the sample of each entry of the output, as of pooled tokens: by the one axis that grows with the
    batch; None: there is no such axis, or there are several.
    """
    grown = _grown(run, rerun)
    if len(grown) != 1 or run.output is None:
        return None
    count = run.output.shape[grown[0]]
    shape = [count if axis == grown[0] else 1 for axis in range(run.output.ndim)]
    return torch.arange(count).view(shape).expand(run.output.shape)


def _grown(run: Run, rerun: Callable[..., Run]) -> list[int]:
    """The axes of the output that are as long as the batch, and longer where that is larger."""
    count = run.sizes.get("B")
    if count is None or run.output is None:
        return []
    larger = rerun(sizes={**run.sizes, "B": count + 1})
    if larger.failure is not None or larger.output is None or larger.output.ndim != run.output.ndim:
        return []
    shapes = zip(run.output.shape, larger.output.shape, strict=True)
    return [axis for axis, sizes in enumerate(shapes) if sizes == (count, count + 1)]


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

    Of whole numbers others that came as well, since a vocabulary ends somewhere; others are equal to each other then.
    """
    if not value.is_floating_point():
        places = torch.arange(value.numel()).reshape(value.shape)
        return ((value.long() + places) % (int(value.max()) + 1)).to(value.dtype)
    wave = torch.arange(value.numel(), dtype=value.dtype).cos().reshape(value.shape)
    return value * 1.3 + wave + 0.7


def differs(a: Tensor, b: Tensor) -> Tensor:
    """Where two results are further apart than rounding makes them, as where all samples have one largest score."""
    if a.dtype == torch.bool:
        return a != b
    return (a - b).abs().nan_to_num() > TOLERANCE * max(1.0, float(b.detach().abs().nan_to_num(posinf=0.0).max()))


def first_changed(run: Run, rerun: Run, sample: int) -> Any:
    """The first operation in which something of one sample changes with the others, wherever it lies."""
    for a, b in zip(run.seen, rerun.seen, strict=False):
        for x, y, *marks in zip(a.outputs, b.outputs, a.output_marks, b.output_marks, strict=False):
            own = [_of_sample(value, each, sample) for value, each in zip((x.value, y.value), marks, strict=True)]
            if own[0] is None or own[1] is None or own[0].shape != own[1].shape or not own[0].numel():
                continue
            if bool(differs(own[0], own[1]).any()):
                return a
    return None


def _of_sample(value: Tensor | None, marks: Marks | None, sample: int) -> Tensor | None:
    """The entries of one sample, in the order in which they lie; None: they are not known."""
    if value is None or marks is None or marks.kind != "token":
        return None
    samples = _numbers(marks, sample_of)
    return None if samples is None else value[(samples == sample).expand(value.shape)]


def _is_turned(run: Run, rerun: Callable[..., Run], marks_by_name: Mapping[str, Marks], which: int) -> bool:
    """Whether other tokens of its own sample change nothing for the last token, while other samples do."""
    places = {
        name: is_own for name, marks in marks_by_name.items() if (is_own := _numbers(marks, place_of)) is not None
    }
    samples = {
        name: is_own for name, marks in marks_by_name.items() if (is_own := _numbers(marks, sample_of)) is not None
    }
    if run.output is None or set(places) != set(marks_by_name):
        return False
    repeated = _disturbed(
        rerun, {name: (samples[name] == which) & (places[name] != places[name].max()) for name in places}
    )
    place, sample = (_result(run, run.output_marks, each) for each in (place_of, sample_of))
    if repeated.output is None or place is None or sample is None or repeated.output.shape != run.output.shape:
        return False
    is_own = (sample == which) & (place == place.max())
    return not bool((differs(repeated.output, run.output) & is_own).any())
