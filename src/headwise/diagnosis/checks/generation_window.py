"""Generation window: whether a method that generates goes on from the last tokens when its model takes no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import Run
from headwise.diagnosis.checks.second_generation import (
    COUNT,
    arguments_of,
    fresh,
    is_published,
    method_of,
    recorded,
)
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Record, tensors
from headwise.source import Span

__all__ = ["window_suspects"]

# what a class calls the most tokens that it takes, and a table of their positions
LIMIT = re.compile(r"block_size|context|ctx|window|n_pos|max_?(?:seq|len|pos|tok)|seq_?len", re.IGNORECASE)
TABLE = re.compile(r"pos|wpe", re.IGNORECASE)
# the longest prompt that is tried, and how many limits are
LONGEST, MOST = 512, 3


@dataclass(frozen=True)
class ForwardCall:
    """A call of forward: the tensors that it took, what else it took, and what it gave."""

    taken: list[Tensor]
    others: list[object]
    output: list[Tensor]


def window_suspects(run: Run) -> list[Suspect]:
    """Where a method that generates crops a text that is too long for the model to its first tokens.

    Proved by a prompt as long as the limit of the model: forward gives the same for two tokens that follow each other,
    of the same first tokens or of all of them, though another token has been added. What is cached, encoded apart, or
    refused at the limit is left, and so is a method that gives anything but the prompt and what it adds to it.
    """
    kind = type(run.target)
    if not isinstance(run.target, nn.Module) or not isinstance(run.plan.target, type) or is_published(kind):
        return []
    name = method_of(kind)
    arguments = arguments_of(run, name) if name else None
    prompts = {key: value for key, value in (arguments or {}).items() if isinstance(value, Tensor)}
    if arguments is None or len(prompts) != 1:
        return []
    ((prompt, ids),) = prompts.items()
    if ids.is_floating_point() or ids.is_complex() or ids.ndim != 2 or ids.unique().numel() < 2:
        return []
    for limit in _limits(fresh(run)):
        picked = torch.randint(ids.numel(), (len(ids), limit), generator=torch.Generator().manual_seed(0))
        model = fresh(run)
        calls = _listened(model)
        recording = recorded(model, name, {**arguments, prompt: ids.flatten()[picked]}, run)
        place = _stale_crop(recording, calls, ids.flatten()[picked])
        if place is not None:
            return [Suspect("generation-window", place, values={"name": name}, proved=True)]
    return []


def _limits(model: nn.Module) -> list[int]:
    """How many tokens a model may take, by its attributes, its config and its tables of positions; the fewest first."""
    return sorted({limit for limit in _sizes(model) if 1 < limit <= LONGEST})[:MOST]


def _sizes(model: nn.Module) -> Iterator[int]:
    for path, module in model.named_modules():
        attributes = vars(module)
        configs = [vars(value) for value in attributes.values() if hasattr(value, "__dict__")]
        for holder in (attributes, *(each for each in configs if "_modules" not in each)):
            yield from (value for name, value in holder.items() if LIMIT.search(name) and type(value) is int)
        if isinstance(module, nn.Embedding) and TABLE.search(path.rpartition(".")[2]):
            yield module.num_embeddings
        tables = {**module._parameters, **module._buffers}
        yield from (table.shape[-2] for name, table in tables.items()
                    if TABLE.search(name) and table is not None and table.ndim > 1)  # fmt: skip


def _listened(model: nn.Module) -> list[ForwardCall]:
    """The calls of the forward of a model, which are added as they are made."""
    calls: list[ForwardCall] = []
    forward = model.forward

    def listening(*args: Any, **options: Any) -> Any:
        handed = [*args, *options.values()]
        taken = [tensor.clone() for tensor in tensors(handed)]
        result = forward(*args, **options)
        others: list[object] = [value for value in handed if isinstance(value, bool | int | float | str)]
        calls.append(ForwardCall(taken, others, [tensor.clone() for tensor in tensors(result)]))
        return result

    model.forward = listening
    return calls


def _stale_crop(recording: Record, calls: list[ForwardCall], prompt: Tensor) -> Span | None:
    """Where the tokens are cropped of which forward gives the same for the last two tokens; None: it does not."""
    text = recording.result
    if recording.failure is not None or not isinstance(text, Tensor) or len(calls) != COUNT:
        return None
    length = prompt.shape[1] + COUNT
    if text.shape != (len(prompt), length) or not torch.equal(text[:, : prompt.shape[1]], prompt):
        return None
    before, last = calls[-2:]
    # one and no more is the text, up to somewhere
    if len(before.taken) != 1 or len(last.taken) != 1 or before.others != last.others:
        return None
    if not (_is_start(before.taken[0], text) and _is_start(last.taken[0], text) and _is_same(before, last)):
        return None
    written = text[:, :-1]
    for op in reversed(recording.operations):
        cropped = next((tensor.value for tensor in op.outputs), None)
        taken = [tensor.value for tensor in op.inputs if tensor.value is not None]
        if cropped is None or not any(torch.equal(value, written) for value in taken if value.shape == written.shape):
            continue
        if _is_start(cropped, text) and cropped.shape[1] < written.shape[1]:
            is_end = torch.equal(cropped, written[:, -cropped.shape[1] :])
            return None if is_end else op.span
    return None


def _is_start(ids: Tensor, text: Tensor) -> bool:
    """Whether tokens are the first of a text."""
    return ids.ndim == 2 and ids.shape[1] > 0 and torch.equal(ids, text[:, : ids.shape[1]])


def _is_same(first: ForwardCall, second: ForwardCall) -> bool:
    """Whether two calls gave the same."""
    pairs = zip(first.output, second.output, strict=False)
    is_alike = bool(first.output) and len(first.output) == len(second.output)
    return is_alike and all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
