"""Key blocks: whether a softmax that is computed block by block gives the same for blocks of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from headwise.dataflow import SOFTMAXES, MarkedOp, Run
from headwise.diagnosis.distance import distance
from headwise.diagnosis.modules import module_at
from headwise.diagnosis.suspects import Suspect

__all__ = ["unlike_blocks"]

# relative to nothing: outputs are as large as 1
NEAR = 1e-6
# keys in a small block; not every number of keys is a multiple of all of them
SMALL = (3, 2)
EXPONENTIALS = frozenset({"exp", "exp_", "exp2"})
# of two tensors: what holds the largest score, or the logarithm of the sum of weights, of all blocks so far
CARRIED = frozenset({"maximum", "max", "logaddexp", "fmax"})
SUMS = frozenset({"+", "+=", "add", "add_"})


def unlike_blocks(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """A softmax over blocks of keys, with the largest score so far carried from one to the next (Milakov and Gimelshein
    2018, arXiv:1805.02867, algorithm 3), whose output depends on the size of a block: the sum that is not rescaled.

    run: without a mask; rerun: repeats it.
    """
    if not isinstance(run.target, nn.Module) or not any(entry.last in EXPONENTIALS for entry in run.seen):
        return []
    if any(entry.last in SOFTMAXES for entry in run.seen):
        return []
    for path, name in _numbers(run.target):
        whole = rerun(more_change=_setting(path, name, 1 + max(run.sizes.values())))
        if whole.failure is not None or whole.output is None:
            continue
        for size in SMALL:
            parted = rerun(more_change=_setting(path, name, size))
            if parted.failure is not None or parted.output is None or parted.output.shape != whole.output.shape:
                continue
            carried = _carrying(parted)
            if len(carried) <= max(1, len(_carrying(whole))):
                # no number of keys
                break
            error = distance(whole.output, parted.output)
            if error <= NEAR:
                return []
            entry = _unscaled(parted) or carried[0]
            said = {"how": "blocks"}
            return [Suspect("softmax-blocks", entry.span, values=said, proved=True, evidence=f"{error:.4g}")]
    return []


def _numbers(target: nn.Module) -> Iterator[tuple[str, str]]:
    """The whole numbers that the modules of a target hold: the name of the module, and theirs."""
    for path, module in target.named_modules():
        for name, value in vars(module).items():
            if type(value) is int and value > 1:
                yield path, name


def _setting(path: str, name: str, size: int) -> Callable[[Any, dict[str, Any]], None]:
    def change(target: Any, _: dict[str, Any]) -> None:
        setattr(module_at(target, path), name, size)

    return change


def _carrying(run: Run) -> list[MarkedOp]:
    """The operations that carry something of the blocks so far on to the next."""
    return [entry for entry in run.seen if entry.last in CARRIED and len(entry.inputs) > 1]


def _unscaled(run: Run) -> MarkedOp | None:
    """The first sum that takes what it gave a block before as it was; None: each is multiplied in between."""
    for at, entry in enumerate(run.seen):
        before = next((each for each in reversed(run.seen[:at]) if each.site == entry.site), None)
        if entry.last not in SUMS or before is None:
            continue
        results = before.operation.results | set(before.operation.writes)
        between = run.seen[run.seen.index(before) + 1 : at]
        written = {number for each in between for number in each.operation.writes}
        if (results & entry.operation.taken) - written:
            return entry
    return None
