"""Trial: runs a plan once, and changes it by what the error says."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from headwise.calls.code_errors import Silent
from headwise.calls.documented_ranks import SaidAxes, is_otherwise
from headwise.calls.plan import Plan
from headwise.recording import TRIAL, Budget, Guarded, Record, record, seeded, spend, tensors
from headwise.source import Span

__all__ = ["PROBES", "Attempt", "Attempts", "Tried", "furthest", "in_single", "quiet", "tried"]

# how many of the plans that failed are looked at again, and with how much work
LOOKED_AT, LOOKED_LONG = 8, 25_000
PROBES = 4
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Tried:
    """A plan that raised. span: where in the person's own code; None: outside of it."""

    plan: Plan
    error: Exception
    span: Span | None


@dataclass(frozen=True)
class Attempt:
    """How a run went. error: None: it ran, and gave tensors of these shapes, all finite. sum: of the first."""

    error: Exception | None
    shapes: tuple[tuple[int, ...], ...] = ()
    sum: float = 0.0
    is_built: bool = True


def attempted(plan: Plan, probe: int = -1, *, finite: bool = True) -> Attempt:
    """Build and call a plan with the sizes of one probe; -1: small ones. finite: whether NaN is a failure."""
    is_built = False
    with quiet():
        try:
            sizes = plan.sizes(probe)
            target = in_single(plan.build(sizes), plan)
            is_built = True
            if isinstance(plan.target, type) and _has_empty(target):
                # a width that was divided by more heads than it has features
                return Attempt(ValueError("the constructor made a weight without entries"), is_built=False)
            args, options = plan.arguments(sizes)
            out = target(*args, **options)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the person's, and tells what to try next
            return Attempt(error, is_built=is_built)
    if out is None:
        return Attempt(Silent())
    given = list(tensors(out))
    shapes = tuple(tuple(each.shape) for each in given)
    if not any(each.is_floating_point() or each.is_complex() for each in given):
        return Attempt(TypeError("the call gave no tensor of real numbers"), shapes)
    if not given[0].numel():
        return Attempt(ValueError("the call gave an empty tensor"), shapes)
    if finite and not all(bool(torch.isfinite(tensor).all()) for tensor in given[:1]):
        return Attempt(FloatingPointError("the call gave numbers that are not finite"), shapes)
    return Attempt(None, shapes, float(given[0].abs().sum()))


def _has_empty(target: Any) -> bool:
    """Whether a matrix of a module has no entries; a vector without any may stand for a device."""
    weights = target.parameters() if isinstance(target, nn.Module) else ()
    return any(not is_lazy(weight) and weight.ndim > 1 and not weight.numel() for weight in weights)


def in_single(target: Any, plan: Plan) -> Any:
    """What a class builds, with its weights in float32 where it chose less: inputs are, and what runs is found so."""
    is_own = isinstance(plan.target, type) and isinstance(target, nn.Module)
    if is_own and any(parameter.dtype in HALVES for parameter in target.parameters()):
        return target.float()
    return target


def tried(plan: Plan, user_files: Collection[str]) -> tuple[Tried | None, int]:
    """The plan with its error and the place of it, and how many operations ran before; None: it ran."""
    with quiet():
        try:
            sizes = plan.sizes(0)
            target = in_single(plan.build(sizes), plan)
            args, options = plan.arguments(sizes)
        except Exception as error:  # noqa: BLE001  a constructor may raise anything
            return Tried(plan, error, _place(plan, user_files)), -1
        model = target if isinstance(target, nn.Module) else None
        run: Record = record(lambda: target(*args, **options), model=model, user_files=user_files)
    if run.failure is None and run.result is None and run.operations:
        return Tried(plan, Silent(), None), len(run.operations)
    if run.failure is None or not isinstance(run.failure.error, Exception):
        return None, len(run.operations)
    return Tried(plan, run.failure.error, run.failure.span), len(run.operations)


class Attempts:
    """Tries plans. finite: whether NaN is a failure; has_nan: whether it was one. ranks: how many axes words give the
    arguments; is_contrary: a call that ran has other numbers of axes, or leaves inputs out.
    """

    def __init__(self, *, finite: bool, ranks: Mapping[str, SaidAxes] | None = None) -> None:
        self._finite, self.has_nan = finite, False
        self.ranks, self.is_contrary = ranks or {}, False

    def __call__(self, plan: Plan, probe: int = -1) -> Attempt:
        attempt = attempted(plan, probe, finite=self._finite)
        self.has_nan = self.has_nan or isinstance(attempt.error, FloatingPointError)
        return attempt

    def is_otherwise(self, plan: Plan) -> bool:
        """Whether a plan is not as words say."""
        is_contrary = is_otherwise(plan, self.ranks)
        self.is_contrary = self.is_contrary or is_contrary
        return is_contrary

    def all_run(self, plan: Plan) -> bool:
        """Whether a plan runs with the sizes of every probe, and is as words say."""
        return not self.is_otherwise(plan) and all(self(plan, probe).error is None for probe in range(PROBES))


def furthest(plans: Sequence[Plan], user_files: Collection[str]) -> tuple[Tried, ...]:
    """Of the first of some plans that failed, the one that came furthest; none where none failed."""
    failures: list[tuple[Tried, int]] = []
    budget = Budget(LOOKED_LONG)
    for plan in plans[:LOOKED_AT]:
        failure, count = tried(plan, user_files)
        failures += [(failure, count)] if failure is not None else []
        if budget.is_over:
            break
    return tuple(failure for failure, _ in sorted(failures, key=lambda pair: -pair[1])[:1])


def _place(plan: Plan, user_files: Collection[str]) -> Span | None:
    """Where in the person's own code a constructor failed."""

    def again() -> Any:
        plan.build(plan.sizes(0))

    run = record(again, user_files=user_files)
    return run.failure.span if run.failure is not None else None


@contextmanager
def quiet() -> Iterator[None]:
    """A block in which something is only tried: it prints and warns of nothing, and its work is counted."""
    spend(TRIAL)
    with ExitStack() as around:
        around.enter_context(redirect_stdout(io.StringIO()))
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        around.enter_context(torch.no_grad())
        around.enter_context(seeded())
        around.enter_context(Guarded())
        yield
