"""Step methods: whether a method that takes one token at a time gives what forward gives for all of them at once."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.calls import parameters
from headwise.dataflow import Run, default_dtype
from headwise.diagnosis.checks.second_generation import fresh, is_published
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect
from headwise.recording import record, tensors
from headwise.source import Span

__all__ = ["step_methods"]

STEP = re.compile(r"^_?(?:step|(?:forward|decode|decoding|inference|streaming|recurrent)_(?:step|one|token)"
                  r"|step_forward)$")  # fmt: skip
RESET = re.compile(r"^(?:reset|start|clear)(?:_(?:state|states|cache|caches|buffers?|stream|memory|streaming))?$")
MADE = re.compile(
    r"^(?:init|initial|new|make|create|empty|fresh|begin)_(?:\w+_)?(?:state|cache|buffer|hidden|memory)s?$"
)
STATE = re.compile(r"state|cache|past|mem|hidden|buf|(^|_)kv($|_)|carry")
PLACE = re.compile(r"^(?:t|i|pos|position|index|idx|offset|start_pos|step|time_?step)$")
# so many tokens are fewer than any window holds, and one more than a window that is said
TOKENS, BEYOND = 3, 4
NEAR = 1e-6
# the arguments of what begins anew that are told how many samples come
BATCH = re.compile(r"^(?:b|n|bs|bsz|batch|batch_size|num_samples)$")


class StepCall(NamedTuple):
    """A way in which a method may be called. keeps_axis: with (batch, 1, features), and not (batch, features); first:
    the number of the first token.
    """

    keeps_axis: bool
    first: int


WAYS = tuple(StepCall(keeps_axis, first) for keeps_axis in (False, True) for first in (0, 1))


def step_methods(run: Run) -> list[Suspect]:
    """A method that takes token after token, and gives other results than forward, which looks back only.

    Proved by both, of the same module and the same tokens. Another method that happens to be called so is left: one
    that keeps nothing, that runs other layers than forward or is called by it, that makes what forward
    gives on its way and hands on something made of it, or tells the next token instead of this one.
    """
    kind, name = type(run.target), next(iter(run.argument_marks), "")
    if (
        not isinstance(run.target, nn.Module)
        or is_published(kind)
        or len(run.argument_marks) != 1
        or run.output is None
    ):
        return []
    method = next((each for each in dir(kind) if STEP.match(each) and callable(getattr(kind, each))), "")
    tokens = run.given[name]
    is_called = any(span.function.endswith(f".{method}") for span in run.spans)
    if not method or is_called or run.output.shape[:2] != tokens.shape[:2] or run.output.ndim < 3:
        return []
    count = BEYOND if run.plan.windows else TOKENS
    ends = range(1, count + 2)
    plain = {key: value for key, value in run.plan.call.items() if isinstance(value, bool | int | float)}
    with torch.no_grad(), torch.random.fork_rng(devices=()), default_dtype(torch.float64):
        try:
            model = fresh(run)
            forward = _called(model, lambda it: [_first(it(**{name: tokens[:, :end]}, **plain)) for end in ends])
            ways = [_called(model, partial(_stepped, method, tokens[:, :count], way)) for way in WAYS]
        except Exception:  # noqa: BLE001  a stranger's: how it is meant to be called is not known
            return []
    wholes = forward.result
    stepped = [steps for steps in ways if len(steps.result) == count]
    if not stepped or not _looks_back(wholes) or any(forward.layers != steps.layers for steps in stepped):
        return []
    last = [whole[:, -1] for whole in wholes[:count]]
    is_handed = any(STATE.search(parameter.name) for parameter in parameters(getattr(run.target, method))[1:])
    for steps in stepped:
        is_right = any(all(map(_is_near, steps.result, rows)) for rows in (last, [each[:, -1] for each in wholes[1:]]))
        if is_right or any(_is_near(value, last[-1]) for value in steps.values) or not (steps.is_kept or is_handed):
            return []
    steps = stepped[0]
    error = max(distance(step.reshape(each.shape), each) for step, each in zip(steps.result, last, strict=True))
    code = inspect.unwrap(getattr(kind, method)).__code__
    lines = (number for *_, number in code.co_lines() if number is not None and number > code.co_firstlineno)
    place = Span(code.co_filename, code.co_qualname, min(lines, default=code.co_firstlineno))
    said = {"name": method, "how": "stepped"}
    return [Suspect("step-differs", place, values=said, proved=True, evidence=f"{error:.4g}")]


@dataclass(frozen=True)
class _Calls:
    """What calls of a copy of a module gave. layers: the names of those that ran; values: all tensors on the way;
    is_kept: whether something is kept from call to call.
    """

    result: list[Tensor]
    layers: frozenset[str]
    values: list[Tensor]
    is_kept: bool


def _called(model: nn.Module, call: Callable[[nn.Module], list[Tensor]]) -> _Calls:
    """Calls of a copy of a module; what they raise is of how it was called, and gives nothing."""
    own, layers = copy.deepcopy(model), set[str]()
    for name, layer in own.named_modules():
        # of a table one row may be read by itself
        if name and not any(layer.children()) and not isinstance(layer, nn.Embedding):
            layer.register_forward_hook(lambda *_, name=name: layers.add(name))
    before, weights = _kept(own), [weight.clone() for weight in own.parameters()]
    recording = record(lambda: call(own), model=own, values=True)
    is_same = all(map(torch.equal, weights, own.parameters()))
    if recording.failure is not None or not is_same:
        return _Calls([], frozenset(), [], is_kept=False)
    values = [tensor.value for op in recording.operations for tensor in op.outputs if tensor.value is not None]
    return _Calls(recording.result, frozenset(layers), values, _kept(own) != before)


def _kept(model: nn.Module) -> list[object]:
    """What a module holds beside its weights, as far as that tells whether it has changed."""
    buffers = [(name, tuple(buffer.shape), buffer.double().sum().item()) for name, buffer in model.named_buffers()]
    attributes = [
        value for module in model.modules() for name, value in vars(module).items() if not name.startswith("_")
    ]
    return [*buffers, *(value for value in attributes if isinstance(value, int)), sum(1 for _ in tensors(attributes))]


def _is_near(a: Tensor, b: Tensor) -> bool:
    return a.numel() == b.numel() and distance(a.reshape(b.shape).to(b.dtype), b) <= NEAR


def _first(result: Any) -> Tensor:
    return next(iter(tensors(result)))


def _looks_back(wholes: list[Tensor]) -> bool:
    """Whether more tokens leave what came out for those before as it was, and what comes out does not end there."""
    return all(distance(short, long[:, : short.shape[1]]) <= NEAR for short, long in pairwise(wholes))


def _stepped(method: str, tokens: Tensor, way: StepCall, model: nn.Module) -> list[Tensor]:
    """What a method gives for token after token, handed what it returned for the last; empty: it asks for more, or
    returns several that may be the output.
    """
    step = getattr(model, method)
    arguments = parameters(step)[1:]
    state = next((argument for argument in arguments if STATE.search(argument.name)), None)
    place = next((argument for argument in arguments if PLACE.match(argument.name)), None)
    if any(
        argument.default is argument.empty and argument is not state and argument is not place for argument in arguments
    ):
        return []
    made: list[Any] = []
    for name in (each for each in dir(type(model)) if RESET.match(each) or (state is not None and MADE.match(each))):
        needed = [
            parameter.name for parameter in parameters(getattr(model, name)) if parameter.default is parameter.empty
        ]
        if not all(BATCH.search(each) for each in needed):
            if MADE.match(name):
                continue
            return []
        result = getattr(model, name)(*[tokens.shape[0] for _ in needed])
        made += [result] if MADE.match(name) and result is not None else []
    handed: dict[str, Any] = {} if state is None or state.default is not state.empty else {state.name: None}
    handed |= {state.name: made[0]} if state is not None and len(made) == 1 else {}
    out: list[Tensor] = []
    for at in range(tokens.shape[1]):
        if place is not None:
            handed[place.name] = at + way.first
        result = step(tokens[:, at : at + 1] if way.keeps_axis else tokens[:, at], **handed)
        parts = list(result) if isinstance(result, tuple) else [result]
        outputs = [n for n, part in enumerate(parts) if isinstance(part, Tensor) and part.shape[:1] == tokens.shape[:1]]
        if len(outputs) != 1 or (state is not None and len(parts) < 2 and len(made) != 1):
            return []
        out.append(parts.pop(outputs[0]))
        # what is made for the calls may be changed in place
        if state is not None and parts:
            handed[state.name] = parts[0] if len(parts) == 1 else tuple(parts)
        kept = [tensor.dtype for tensor in tensors([handed, *vars(model).values()]) if tensor.is_floating_point()]
        if not set(kept) <= {out[0].dtype} or any(tensor.dtype == torch.int8 for tensor in tensors([handed])):
            # what is kept in fewer bits gives other numbers
            return []
    return out
