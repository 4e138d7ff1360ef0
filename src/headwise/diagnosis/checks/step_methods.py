"""Step methods: whether a method that takes one token at a time gives what forward gives for all of them at once."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import parameters
from headwise.dataflow import Run, default_dtype
from headwise.diagnosis.checks.second_generation import fresh, is_published
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect
from headwise.recording import tensors
from headwise.source import Span

__all__ = ["step_methods"]

STEP = re.compile(r"^_?(?:step|(?:forward|decode|decoding|inference|streaming|recurrent)_(?:step|one|token)"
                  r"|step_forward)$")  # fmt: skip
RESET = re.compile(r"^(?:reset|start|clear)(?:_(?:state|states|cache|caches|buffers?|stream|memory|streaming))?$")
STATE = re.compile(r"state|cache|past|mem|hidden|buf|(^|_)kv($|_)|carry")
PLACE = re.compile(r"^(?:t|i|pos|position|index|idx|offset|start_pos|step|time_?step)$")
# so many tokens are fewer than any window holds
TOKENS = 3
NEAR = 1e-6


def step_methods(run: Run) -> list[Suspect]:
    """A method that takes token after token, and gives other results than forward, which looks back only.

    Proved by both, of the same module and the same tokens.
    """
    kind, name = type(run.target), next(iter(run.known), "")
    if not isinstance(run.target, nn.Module) or is_published(kind) or len(run.known) != 1 or run.output is None:
        return []
    method = next((each for each in dir(kind) if STEP.match(each) and callable(getattr(kind, each))), "")
    tokens = run.given[name]
    if not method or run.output.shape[:2] != tokens.shape[:2] or run.output.ndim < len("btf"):
        return []
    plain = {key: value for key, value in run.plan.call.items() if isinstance(value, bool | int | float)}
    with torch.no_grad(), torch.random.fork_rng(devices=()), default_dtype(torch.float64):
        model = fresh(run)
        try:
            wholes = [first_tensor(model(**{name: tokens[:, :end]}, **plain)) for end in range(1, TOKENS + 1)]
            if not _looks_back(wholes):
                return []
            steps = _stepped(model, method, tokens)
        except Exception:  # noqa: BLE001  a stranger's: how it is meant to be called is not known
            return []
    last = [whole[:, -1] for whole in wholes]
    if [step.numel() for step in steps] != [each.numel() for each in last]:
        return []
    error = max(distance(step.reshape(each.shape), each) for step, each in zip(steps, last, strict=True))
    if error <= NEAR:
        return []
    code = inspect.unwrap(getattr(kind, method)).__code__
    lines = (number for *_, number in code.co_lines() if number is not None and number > code.co_firstlineno)
    place = Span(code.co_filename, code.co_qualname, min(lines, default=code.co_firstlineno))
    said = {"name": method, "how": "stepped"}
    return [Suspect("step-differs", place, said=said, proved=True, evidence=f"{error:.4g}")]


def first_tensor(result: Any) -> Tensor:
    return next(iter(tensors(result)))


def _looks_back(wholes: list[Tensor]) -> bool:
    """Whether more tokens leave what came out for those before as it was, and what comes out does not end there."""
    return all(distance(short, long[:, : short.shape[1]]) <= NEAR for short, long in pairwise(wholes))


def _stepped(model: nn.Module, method: str, tokens: Tensor) -> list[Tensor]:
    """What a method gives for token after token, handed what it returned for the last; empty: it asks for more."""
    step = getattr(model, method)
    arguments = parameters(step)[1:]
    state = next((each for each in arguments if STATE.search(each.name)), None)
    place = next((each for each in arguments if PLACE.match(each.name)), None)
    if any(each.default is each.empty and each is not state and each is not place for each in arguments):
        return []
    for reset in (each for each in dir(type(model)) if RESET.match(each)):
        needed = [each for each in parameters(getattr(model, reset)) if each.default is each.empty]
        getattr(model, reset)(*[tokens.shape[0] for _ in needed])
    handed: dict[str, Any] = {} if state is None or state.default is not state.empty else {state.name: None}
    out: list[Tensor] = []
    for at in range(TOKENS):
        if place is not None:
            handed[place.name] = at
        result = step(tokens[:, at], **handed)
        out.append(first_tensor(result))
        if state is not None:
            if not isinstance(result, tuple) or len(result) < len(("output", "state")):
                return []
            handed[state.name] = result[1] if len(result) == len(("output", "state")) else result[1:]
    return out
