"""Runs: every attention weight of a model on one text, by headwise layers with a proof, or by its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.compat.bert import attention_layers, take_over, why_not
from headwise.layer import MultiHeadAttention
from headwise.pages.models import Loaded, Progress, first_line, quiet
from headwise.pages.reading import Reading
from headwise.pages.walk import Walk, full_walk, short_walk
from headwise.watching.calls import RecordedCalls
from headwise.wording import refusal

__all__ = ["LARGEST_DIFFERENCE", "Run", "run"]

LARGEST_DIFFERENCE = 1e-5

Sizes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Run:
    """The weights of every layer (H, L, L), the walk through each, and how far the hidden states are from the model's.

    difference: the largest, of any hidden state; None where the model ran on its own attention.
    """

    weights: Mapping[int, Tensor]
    walks: Mapping[int, Walk]
    difference: float | None


def run(loaded: Loaded, reading: Reading, progress: Progress) -> Run:
    """Run a model on headwise layers where they can take over, else on its own eager attention.

    On headwise layers, a hidden state that differs by more than LARGEST_DIFFERENCE raises a Refusal with the figure.
    """
    with quiet(), torch.no_grad():
        if why_not(loaded.model):
            progress("step.eager", {})
            return _by_itself(loaded, reading)
        return _by_headwise(loaded, reading, progress)


def _by_headwise(loaded: Loaded, reading: Reading, progress: Progress) -> Run:
    progress("step.headwise", {})
    theirs = loaded.model.float()
    ours = take_over(theirs)
    layers = [layer for _, layer in attention_layers(ours)]
    with RecordedCalls() as seen, _sizes_of_projections(layers) as sizes:
        out = ours(**reading.inputs, output_hidden_states=True).hidden_states
    progress("step.untouched", {})
    wanted = theirs(**reading.inputs, output_hidden_states=True).hidden_states
    # max of Python passes over what is not a number; that of torch keeps it
    difference = float(torch.stack([(a - b).abs().max() for a, b in zip(out, wanted, strict=True)]).max())
    # a difference that is not a number is no proof either
    if not difference <= LARGEST_DIFFERENCE:
        raise refusal("refuse.unequal", limit=LARGEST_DIFFERENCE, difference=difference, model=loaded.name)
    weights = {n: call.weights()[0] for n, call in enumerate(seen.calls)}
    walks = {n: full_walk(sizes[n], tuple(call.q.shape)) for n, call in enumerate(seen.calls)}
    return Run(weights, walks, difference)


def _by_itself(loaded: Loaded, reading: Reading) -> Run:
    length, kind = len(reading.tokens), loaded.config.model_type
    try:
        out = loaded.model(**reading.inputs, output_attentions=True)
    except (AttributeError, TypeError, ValueError) as error:
        reason = first_line(error)
        raise refusal("refuse.no_attention", model=loaded.name, model_type=kind, reason=reason) from error
    given = [tensor for tensor in getattr(out, "attentions", None) or () if tensor is not None]
    wrong = [tuple(tensor.shape) for tensor in given if tensor.ndim != 4 or tensor.shape[-2:] != (length, length)]
    if wrong or not given:
        reason = f"attentions {wrong[0]}" if wrong else "attentions = None"
        raise refusal("refuse.no_attention", model=loaded.name, model_type=kind, reason=reason)
    weights = {n: tensor[0].float() for n, tensor in enumerate(given)}
    walks = {n: short_walk(tuple(out.last_hidden_state.shape), tuple(t.shape)) for n, t in enumerate(given)}
    return Run(weights, walks, None)


@contextmanager
def _sizes_of_projections(layers: list[MultiHeadAttention]) -> Iterator[list[dict[str, tuple[Sizes, Sizes]]]]:
    """The sizes that went into and came out of each projection of each layer, measured while a block runs."""
    measured: list[dict[str, tuple[Sizes, Sizes]]] = [{} for _ in layers]
    with ExitStack() as hooks:
        for sizes, layer in zip(measured, layers, strict=True):
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):

                def note(_: Any, given: Any, out: Tensor, *, sizes: Any = sizes, name: str = name) -> None:
                    sizes[name] = tuple(given[0].shape), tuple(out.shape)

                hooks.enter_context(_hooked(layer.get_submodule(name), note))
        yield measured


@contextmanager
def _hooked(module: torch.nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
