"""Stale weights: whether what eval mode computes from the weights is used after training has changed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from headwise.dataflow import Run
from headwise.diagnosis.checks.mode_switches import MOVED, changes_by_itself, switches_of
from headwise.diagnosis.checks.parameters import held
from headwise.diagnosis.checks.parted_runs import parting
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, kept

__all__ = ["stale_weights"]

NEAR = 1e-6
# where torch keeps what has a name of its own
INNER = ("_parameters", "_buffers", "_modules")


def stale_weights(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """What eval() or a call in it computes from the weights and keeps, and a later call reads though they have changed.

    Proved by two runs after a step of training: a module that was evaluated before it, and one that was not, differ;
    and they do not where the step moves no weight.
    """
    if not isinstance(run.target, nn.Module) or not isinstance(run.plan.target, type):
        return []
    if changes_by_itself(run.target) or not (switches_of(run.target) or _keeps(run)):
        return []
    first, error = _compared(rerun, MOVED)
    if first is None or error <= NEAR or _compared(rerun, 0.0)[1] > NEAR:
        return []
    second = rerun(moved=MOVED, earlier=0)
    place = parting(first.seen, second.seen) or (second.seen[-1].span if second.seen else None)
    said = {"how": "retrained"}
    return [
        Suspect("stale-weights", _kept_at(second, place) or place, values=said, proved=True, evidence=f"{error:.4g}")
    ]


def _compared(rerun: Callable[..., Run], std: float) -> tuple[Run | None, float]:
    """A run after a step of training, and how far it is from one of a module that was evaluated before that step; None:
    one of them fails.
    """
    trained, evaluated = rerun(moved=std, training=True), rerun(moved=std, earlier=0)
    for each in (trained, evaluated):
        if each.failure is not None or each.output is None or each.target.training:
            return None, float("inf")
    a, b = trained.output, evaluated.output
    is_alike = a is not None and b is not None and a.shape == b.shape
    return trained, distance(a, b) if is_alike else float("inf")


def _keeps(run: Run) -> bool:
    """Whether a target holds tensors after a call that it does not hold when it is built."""
    built = run.plan.build(run.sizes)
    return isinstance(built, nn.Module) and len(list(_attributes(run.target))) > len(list(_attributes(built)))


def _attributes(target: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """The tensors that the modules of a target hold, but for their parameters, by the names of their attributes."""
    for module in target.modules():
        named: dict[str, Any] = {name: value for name, value in vars(module).items() if name not in INNER}
        for name, value in (*named.items(), *module._buffers.items()):
            yield from ((module, name, tensor) for tensor in held(value, 0) if not isinstance(value, nn.Module))


def _kept_at(run: Run, place: Span | None) -> Span | None:
    """Where what an operation at some place takes was put into an attribute of a module; None: it is in none."""
    taken = {id(tensor) for entry in run.seen if entry.span == place for tensor in entry.tensors}
    spans = (kept(module, name) for module, name, tensor in _attributes(run.target) if id(tensor) in taken)
    return next((span for span in spans if span is not None), None)
