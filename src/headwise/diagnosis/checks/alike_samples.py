"""Alike samples: whether samples that hold the same numbers get the same results, wherever they stand in the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Marks, Run, sample_of
from headwise.diagnosis.checks.batch_leak import samples_of
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect

__all__ = ["unlike_samples"]

# what chooses by the numbers that come, as experts that take so many tokens of a whole batch
CHOICES = frozenset({"topk", "sort", "argsort", "nonzero", "unique", "masked_select", "argmax", "one_hot"})
# relative to the largest entry
NEAR = 1e-6
# other random numbers
LUCK = 99


def unlike_samples(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The first operation that gives samples which hold the same numbers other results.

    Proved by a run in which all samples hold those of the first. What each sample is given beside that, or draws, may
    differ on purpose.
    """
    samples, of_output = samples_of(run, rerun)
    if run.output is None or not samples or any(entry.last in CHOICES for entry in run.seen):
        return []
    if any(_is_of_samples(run, name) for name in run.named if name not in samples):
        return []

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, numbers in samples.items():
            if isinstance(options.get(name), Tensor):
                options[name] = _of_the_first(options[name], numbers)

    alike: Run = rerun(more_change=change)
    if alike.failure is not None or alike.output is None or alike.output.shape != of_output.shape:
        return []
    # what is drawn is other for each sample
    is_drawn = distance(rerun(more_change=change, luck=LUCK).output, alike.output) > NEAR
    if _spread(alike.output, of_output) <= NEAR or is_drawn:
        return []
    place = next((entry for entry in alike.seen if any(spread > NEAR for spread in _spreads(entry))), None)
    return [] if place is None else [Suspect("samples-unlike", place.span, proved=True)]


def _is_of_samples(run: Run, name: str) -> bool:
    """Whether an argument says something of each sample, and not the same of all."""
    tensor, count = run.named[name], run.sizes.get("B", 0)
    axes = [axis for axis, size in enumerate(tensor.shape) if size == count]
    return any(not torch.equal(tensor, tensor.narrow(axis, 0, 1).expand(tensor.shape)) for axis in axes)


def _of_the_first(tensor: Tensor, samples: Tensor) -> Tensor:
    """What each sample holds, where it is what the first holds."""
    out = tensor.clone()
    for sample in samples.unique().tolist():
        out[samples == sample] = tensor[samples == 0]
    return out


def _spreads(entry: MarkedOp) -> Iterator[float]:
    """How far the results of an operation are apart from sample to sample."""
    for output, marks in zip(entry.outputs, entry.output_marks, strict=False):
        numbers = _samples(marks)
        if numbers is not None and output.value is not None and output.value.is_floating_point():
            yield _spread(output.value, numbers)


def _samples(marks: Marks | None) -> Tensor | None:
    """The sample of each entry; None: it is not known of all."""
    array = None if marks is None else marks.arrays.get("t" if marks.kind == "token" else "x")
    return None if array is None or bool((array < 0).any()) else sample_of(array)


def _spread(value: Tensor, samples: Tensor) -> float:
    """How far what one sample has is from what the first has, entry by entry; 0: they have not as many."""
    parts = [value.double()[samples == sample] for sample in samples.unique().tolist()]
    if len({part.numel() for part in parts}) != 1:
        return 0.0
    largest = max(1.0, float(value.detach().double().abs().nan_to_num(posinf=0.0).max())) if value.numel() else 1.0
    return max((distance(part, parts[0]) / largest for part in parts[1:]), default=0.0)
