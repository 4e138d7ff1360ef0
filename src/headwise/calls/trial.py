"""Trial: runs a plan once, and changes it by what the error says."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headwise.calls.code_errors import Silent
from headwise.calls.documented_ranks import SaidAxes, is_otherwise
from headwise.calls.plan import Plan, evaluated
from headwise.calls.symbols import spoken
from headwise.recording import TRIAL, Budget, Guarded, Record, record, seeded, spend, tensors
from headwise.source import Span

__all__ = [
    "Attempt", "Attempts", "Tried", "expression_of", "furthest", "in_single", "mended", "quiet", "told_widths", "tried",
]  # fmt: skip

# how many of the plans that failed are looked at again, and with how much work
LOOKED_AT, LOOKED_LONG = 8, 25_000
PROBES = 4
# what the axes of tokens are called
TOKEN_AXES = ("L", "S")
HALVES = (torch.float16, torch.bfloat16)
ARITHMETIC = re.compile(r"operator, with a bool tensor is not supported")
LINEAR = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
PRODUCT = re.compile(r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)")
NORM = re.compile(r"normalized_shape=\[(\d+)\].*got input of size\s*\[(?:\d+, )*(\d+)\]", re.DOTALL)
CONVOLUTION = re.compile(r"to have (\d+) channels, but got (\d+) channels|running_mean should contain")
STATISTICS = re.compile(r"running_mean should contain (\d+) elements not (\d+)")


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


def mended(plan: Plan, error: Exception, *, declared: Collection[str] = ()) -> list[Plan]:
    """The plans that the error of a plan suggests, the likeliest first; none where it tells nothing.

    declared: sizes of the constructor that are lengths because the user declares them so: features may be as many.
    """
    said_mask = plan.call.get("_mask")
    if ARITHMETIC.search(str(error)) and isinstance(said_mask, Mapping) and "dtype" not in said_mask:
        return [replace(plan, call={**plan.call, "_mask": {**said_mask, "dtype": "float"}})]
    widths = told_widths(str(error))
    if widths is None:
        return []
    have, need = widths
    sizes = plan.sizes(-1)
    axis = 1 if CONVOLUTION.search(str(error)) else -1
    fitting = [
        name
        for name, value in plan.call.items()
        if isinstance(value, list) and len(value) >= abs(axis) + (axis > 0) and _size(value[axis], sizes) == have
    ]
    if not fitting:
        return _joined(plan, have, need, sizes)
    width = expression_of(need, plan, sizes)
    out = []
    shapes = {name: plan.call[name] for name in fitting if axis == 1 and len(plan.call[name]) == 3}
    turned = [name for name, shape in shapes.items() if shape[-1] == width or shape[1] in TOKEN_AXES]
    if turned:
        # channels before tokens
        call = {n: [v[0], width, v[1]] if n in turned else v for n, v in plan.call.items()}
        out.append(replace(plan, call=call))
    for names in [*([[name] for name in fitting]), *([fitting] if len(fitting) > 1 else [])]:
        call = {
            name: [*value[:axis], width, *(value[axis + 1 :] if axis > 0 else [])] if name in names else value
            for name, value in plan.call.items()
        }
        if width.isdigit() or width in declared or not any(width in plan.call[name][1:] for name in names):
            # places that are as many as channels are would be told from them by nothing
            out.append(replace(plan, call=call))
    return [*out, *_as_one(plan, have, need, sizes)]


def _as_one(plan: Plan, have: int, need: int, sizes: Mapping[str, int]) -> list[Plan]:
    """The plan in which two widths of a constructor are one, where one argument is used as both, and is no query."""
    init = [value for value in plan.init.values() if isinstance(value, str)]
    free = {
        symbol.name
        for symbol in plan.symbols
        if not symbol.equals and symbol.fixed is None and symbol.meaning == "parameter"
    }
    a, b = ([name for name in init if name in free and sizes[name] == size] for size in (have, need))
    if len(a) != 1 or len(b) != 1 or sum(a[0] in spoken(value) for value in plan.call.values()) != 1:
        return []
    return [
        replace(
            plan,
            symbols=tuple(replace(symbol, equals=a[0]) if symbol.name == b[0] else symbol for symbol in plan.symbols),
        )
    ]


def _joined(plan: Plan, have: int, need: int, sizes: Mapping[str, int]) -> list[Plan]:
    """The plans where two arguments, put side by side, have the width that was needed."""
    inputs = {name: value for name, value in plan.call.items() if isinstance(value, list)}
    pairs = [(a, b) for a in inputs for b in inputs if a < b]
    widths = list(dict.fromkeys(value for value in plan.init.values() if isinstance(value, str)))
    widths += [f"2*{each}" for each in widths]
    out = []
    for a, b in pairs:
        if _size(inputs[a][-1], sizes) + _size(inputs[b][-1], sizes) != have:
            continue
        labels = {symbol.name: symbol.said or symbol.name for symbol in plan.symbols}
        for x in sorted(widths, key=lambda width: not _resembles(a, width, labels)):
            for y in widths:
                if x != y and _size(x, sizes) + _size(y, sizes) == need:
                    call = {**plan.call, a: [*inputs[a][:-1], x], b: [*inputs[b][:-1], y]}
                    out.append(replace(plan, call=call))
    return out


def _resembles(argument: str, expression: str, labels: Mapping[str, str]) -> bool:
    """Whether what an argument is called begins as what a symbol is: `encoder_outputs` and `enc_hid_dim`."""
    return any(labels.get(name, name)[:3] == argument[:3] for name in spoken(expression))


def expression_of(need: int, plan: Plan, sizes: Mapping[str, int]) -> str:
    """The simplest expression for a size that was needed; the number where there is none."""
    init = [value for value in plan.init.values() if isinstance(value, str)]
    symbols = [name for name in sizes if name not in ("B", "L", "S")]
    names = [*("D" for name in symbols if name == "D"), *init, *symbols]
    names += [f"{a}*{b}" for a in symbols for b in symbols]
    names += [f"{factor}*{name}" for factor in (2, 3, 4) for name in symbols]
    for expression in names:
        if set(spoken(expression)) <= set(sizes) and _size(expression, sizes) == need:
            return expression
    return str(need)


def _size(value: Any, sizes: Mapping[str, int]) -> int:
    try:
        return evaluated(value, sizes) if isinstance(value, str) else int(value)
    except (KeyError, SyntaxError, ValueError, TypeError):
        return -1


def told_widths(text: str) -> tuple[int, int] | None:
    """The size of an axis that came, and the one that was needed."""
    if match := LINEAR.search(text):
        return int(match[2]), int(match[3])
    if match := STATISTICS.search(text):
        return int(match[1]), int(match[2])
    if match := CONVOLUTION.search(text):
        return int(match[2]), int(match[1])
    if match := NORM.search(text):
        return int(match[2]), int(match[1])
    if match := PRODUCT.search(text):
        return int(match[2]), int(match[1])
    return None
