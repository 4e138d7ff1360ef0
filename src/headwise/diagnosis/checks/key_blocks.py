"""Key blocks: whether a softmax over blocks of keys gives the same for blocks of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from headwise.dataflow import ADDITIONS, MarkedOp, Run
from headwise.diagnosis.distance import distance
from headwise.diagnosis.modules import module_at
from headwise.diagnosis.repair import Change
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["block_size_suspects", "in_one_block"]

NEAR = 1e-6
# keys in a small block; a class may ask for blocks that are all full
SMALL = (3, 2)
EXPONENTIALS = frozenset({"exp", "exp_", "exp2"})
# the running maximum of the scores, or the logarithm of the running sum of weights
RUNNING = frozenset({"maximum", "max", "logaddexp", "fmax"})


def block_size_suspects(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The sum of an online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3) that is not rescaled
    from block to block of keys. Proved by runs with blocks of other sizes, whose outputs differ.

    run: without a mask; rerun: repeats it.
    """
    if not isinstance(run.target, nn.Module) or not any(entry.last in EXPONENTIALS for entry in run.seen):
        return []
    for path, name in _integers(run.target):
        whole = rerun(more_change=_setting(path, name, 1 + max(run.sizes.values())))
        if whole.failure is not None or whole.output is None:
            continue
        for size in SMALL:
            parted = rerun(more_change=_setting(path, name, size))
            if parted.failure is not None or parted.output is None or parted.output.shape != whole.output.shape:
                continue
            error, entry = distance(whole.output, parted.output), _unscaled(parted)
            if entry is None or error <= NEAR or _blocks(parted) <= _blocks(whole):
                break
            values = {"how": "blocks"}
            return [Suspect("softmax-blocks", entry.span, values=values, proved=True, evidence=f"{error:.4g}")]
    return []


def in_one_block(run: Run, rerun: Callable[..., Run]) -> Change | None:
    """What gives all keys of an online softmax to one block, which changes no output; None: it has one block, or it is
    not known what does. run: without a mask; rerun: repeats it.
    """
    if not isinstance(run.target, nn.Module) or not _blocks(run):
        return None
    for path, name in _integers(run.target):
        change = _setting(path, name, 1 + max(run.sizes.values()))
        whole = rerun(more_change=change)
        if whole.failure is None and not _blocks(whole) and distance(run.output, whole.output) <= NEAR:
            return change
    return None


def _integers(target: nn.Module) -> Iterator[tuple[str, str]]:
    """The whole numbers that modules of user code hold: the name of the module, and theirs."""
    for path, module in target.named_modules():
        if not type(module).__module__.startswith("torch."):
            yield from ((path, name) for name, value in vars(module).items() if type(value) is int and value > 1)


def _setting(path: str, name: str, size: int) -> Change:
    def change(target: Any, _: dict[str, Any]) -> None:
        setattr(module_at(target, path), name, size)

    return change


def _blocks(run: Run) -> int:
    """How often a running maximum is handed on."""
    return sum(entry.last in RUNNING and before is not None for entry, before in _turns(run))


def _unscaled(run: Run) -> MarkedOp | None:
    """The first sum that takes what it gave in the turn before as it was; None: each is multiplied in between."""
    return next((entry for entry, before in _turns(run) if entry.name in ADDITIONS and before is not None), None)


def _turns(run: Run) -> Iterator[tuple[MarkedOp, MarkedOp | None]]:
    """The operations, each with the one of the turn before at its site whose result it takes unchanged; None: none."""
    latest: dict[Site, MarkedOp] = {}
    written: dict[int, int] = {}
    for entry in run.seen:
        before = latest.get(entry.site)
        results = () if before is None else {*before.operation.results, *before.operation.writes}
        is_taken = before is not None and any(
            number in results and written.get(number, -1) <= before.at for number in entry.operation.taken
        )
        yield entry, before if is_taken else None
        latest[entry.site] = entry
        written.update(dict.fromkeys(entry.operation.writes, entry.at))
