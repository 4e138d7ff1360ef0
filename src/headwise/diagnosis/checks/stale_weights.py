"""Stale weights: whether what eval mode computes from the weights is used after training has changed them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
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

    Proved by two runs: a module that was evaluated and then trained for a step, and another one that has loaded its
    `state_dict`, differ; and they do not where the step moves no weight.
    """
    if not isinstance(run.target, nn.Module) or not isinstance(run.plan.target, type):
        return []
    if changes_by_itself(run.target) or not (switches_of(run.target) or _keeps(run)):
        return []
    pair, still = _trained_and_loaded(rerun, MOVED), _trained_and_loaded(rerun, 0.0)
    if pair is None or still is None or _apart(*pair) <= NEAR or _apart(*still) > NEAR:
        return []
    trained, loaded = pair
    place = parting(loaded.seen, trained.seen) or (trained.seen[-1].span if trained.seen else None)
    values, evidence = {"how": "retrained"}, f"{_apart(*pair):.4g}"
    return [Suspect("stale-weights", _kept_at(trained, place) or place, values=values, proved=True, evidence=evidence)]


def _trained_and_loaded(rerun: Callable[..., Run], std: float) -> tuple[Run, Run] | None:
    """A run of a module that was evaluated and trained before, and one of another with its `state_dict`; None: one of
    them fails, or a call sets weights, as one that begins a scale does. std: how far the training moves weights.
    """
    trained = rerun(moved=std, earlier=0)
    if trained.failure is not None:
        return None
    state = copy.deepcopy(trained.target.state_dict())
    is_loaded: list[bool] = []

    def load(other: Any, _: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            other.load_state_dict(state)
            other.eval()
            is_loaded.append(True)

    loaded = rerun(training=True, more_change=load)
    if trained.output is None or loaded.output is None or trained.target.training or not is_loaded:
        return None
    is_set = any(not torch.equal(param, state[name]) for name, param in loaded.target.named_parameters())
    return None if is_set else (trained, loaded)


def _apart(a: Run, b: Run) -> float:
    """How far the outputs of two runs are from each other."""
    is_alike = a.output is not None and b.output is not None and a.output.shape == b.output.shape
    return distance(a.output, b.output) if is_alike else float("inf")


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
