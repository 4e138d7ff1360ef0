"""What an edit of one head costs beside the model as it is, and what the effects of all its heads cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import ADDED_MEGABYTES, TIMES, Absent, Case, Cases, Tensors, WrongNumbersError
from benchmarks.minilm import of_minilm
from headwise import MultiHeadAttention
from headwise.intervening import Edits, head_effects, intervene

TOKENS, LAYER, HEAD = 512, "layer.3", 1
# a layer as wide as MiniLM's, of so many tokens, and the most that an edit of one head may add at the peak
LONG, WIDTH, HEADS, MOST_ADDED = 32768, 384, 12, 300.0
MOST_OF_AN_EDIT, MOST_OF_ZERO, MOST_OF_THE_ESTIMATE = 1.15, 1.1, 4.0


def effects() -> Cases:
    """Edits of one head of MiniLM at 512 tokens, and the effects of its 72 heads, beside plain forward passes."""
    yield edited("one head zeroed", lambda edits: edits.find(LAYER).zero(heads=[HEAD]))
    yield edited("one head blocked", lambda edits: edits.find(LAYER).block(TOKENS // 2, [2, 3], heads=[HEAD]))
    yield estimated()
    yield measured()
    yield added("memory, one head zeroed", lambda edits: edits.find("").zero(heads=[HEAD]))
    yield added("memory, one head blocked", lambda edits: edits.find("").block(None, [2, 3], heads=[HEAD]))


def edited(name: str, edit: Callable[[Edits], object], *, tokens: int | None = None) -> Case | Absent:
    """A forward with one edit, beside the same forward without it."""

    def make(model: nn.Module, ids: Tensor, shape: str) -> Case:
        def ours() -> Tensors:
            with intervene(model) as edits:
                edit(edits)
                return _forward(model, ids)

        def check() -> None:
            if torch.equal(ours()[0], _forward(model, ids)[0]):
                raise WrongNumbersError("ours leaves the output as it is")

        return Case(
            name, "unedited", shape, "float32", ours, lambda: _forward(model, ids), check, TIMES, MOST_OF_AN_EDIT
        )

    return of_minilm(make, name, "unedited", tokens=tokens or TOKENS)


def added(name: str, edit: Callable[[Edits], object]) -> Case:
    """The memory at the peak of a layer with one edit beyond that of the layer as it is."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(WIDTH, HEADS).eval()
    x = torch.randn(1, LONG, WIDTH)

    def plain(x: Tensor) -> Tensors:
        with torch.no_grad():
            return (layer(x),)

    def ours(x: Tensor) -> Tensors:
        with intervene(layer) as edits:
            edit(edits)
            return plain(x)

    def check() -> None:
        few = x[:, :64]
        if torch.equal(ours(few)[0], plain(few)[0]):
            raise WrongNumbersError("ours leaves the output as it is")

    return Case(
        name, "unedited", f"layer, B=1 L={LONG} E={WIDTH} H={HEADS}", "float32", lambda: ours(x), lambda: plain(x),
        check, ADDED_MEGABYTES, MOST_ADDED, is_in_bytes=True, is_long=True,
    )  # fmt: skip


def estimated(*, tokens: int | None = None) -> Case | Absent:
    """The effects of all heads as gradients estimate them, beside one forward."""

    def make(model: nn.Module, ids: Tensor, shape: str) -> Case:
        def ours() -> Tensors:
            found = head_effects(model, {"input_ids": ids}, _metric, by="zero", measure=False)
            return () if found.estimated is None else (found.estimated,)

        return _of_all_heads("effects, estimated", model, ids, shape, ours, passes=1, target=MOST_OF_THE_ESTIMATE)

    return of_minilm(make, "effects, estimated", "1 forward", tokens=tokens or TOKENS)


def measured(*, tokens: int | None = None) -> Case | Absent:
    """The effects of all heads, each zeroed by itself, beside as many forwards."""

    def make(model: nn.Module, ids: Tensor, shape: str) -> Case:
        def ours() -> Tensors:
            found = head_effects(
                model, {"input_ids": ids}, _metric, by="zero", estimate=False, progress=lambda done, of: None
            )
            return () if found.measured is None else (found.measured,)

        return _of_all_heads(
            "effects, by zero", model, ids, shape, ours, passes=math.prod(_heads(model)), target=MOST_OF_ZERO
        )

    return of_minilm(make, "effects, by zero", "a forward a head", tokens=tokens or TOKENS)


def _of_all_heads(
    name: str, model: nn.Module, ids: Tensor, shape: str, ours: Callable[[], Tensors], *, passes: int, target: float
) -> Case:
    """The case of effects beside that many forwards, of which there must be one for each head, and not all 0."""

    def theirs() -> None:
        for _ in range(passes):
            _forward(model, ids)

    def check() -> None:
        (found,) = ours()
        if tuple(found.shape) != _heads(model):
            raise WrongNumbersError(f"ours gives effects of {tuple(found.shape)}, but heads are {_heads(model)}")
        if not found.isfinite().all() or not found.any():
            raise WrongNumbersError("ours gives effects that are 0 or not finite")

    beside = "1 forward" if passes == 1 else "a forward a head"
    return Case(name, beside, shape, "float32", ours, theirs, check, TIMES, target, is_long=passes > 1)


def _heads(model: nn.Module) -> tuple[int, int]:
    """The layers, and the heads of each."""
    config: Any = model.config
    return config.num_hidden_layers, config.num_attention_heads


def _forward(model: nn.Module, ids: Tensor) -> Tensors:
    with torch.no_grad():
        return (model(input_ids=ids).last_hidden_state,)


def _metric(output: object) -> Tensor:
    hidden: Tensor = output.last_hidden_state  # type: ignore[attr-defined]
    return hidden[0].mean(0).square().sum()
