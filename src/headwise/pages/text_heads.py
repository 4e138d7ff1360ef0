"""Text heads: what the heads of a model do in a text, and what a change of each does to the output."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.analysis import HeadNames, name_heads
from headwise.intervening import Effects, head_effects
from headwise.pages.language_models import load_predicting, log_probability
from headwise.pages.model_run import run
from headwise.pages.models import LoadedModel, Progress, load, quiet
from headwise.pages.text_comparison import maps_of
from headwise.pages.text_tokens import TextTokens, check_text, read
from headwise.pages.user_model import in_evaluation
from headwise.wording import Sentence

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EffectRequest", "TextEffects", "TextHeads", "effects_of_text", "heads_of_text"]


@dataclass(frozen=True, eq=False)
class TextHeads:
    """What the heads of a model do in a text of so many tokens."""

    model: str
    tokens: int
    heads: HeadNames

    def to_dict(self) -> dict[str, Any]:
        """Plain values: {"schema": 1, ...}."""
        return {"schema": 1, "model": self.model, "tokens": self.tokens, **self.heads.to_dict()}


@dataclass(frozen=True)
class EffectRequest:
    """A text, and one metric of the output: the probability of a word, or the similarity to another text."""

    text: str
    model: str | os.PathLike[str] | None
    predict: str | None
    similar: str | None
    by: str = "zero"
    is_measured: bool = True
    cut: bool = False


@dataclass(frozen=True, eq=False)
class TextEffects:
    """What a change of each head of a model does to a metric; places: layer and head by the name of each module."""

    model: str
    request: EffectRequest
    effects: Effects

    @property
    def metric(self) -> Sentence:
        """What the effects are changes of."""
        if self.request.predict is not None:
            return Sentence("effects.metric.predict", word=self.request.predict)
        return Sentence("effects.metric.similar", text=self.request.similar)

    def place(self, name: str, head: int) -> str:
        """A head as pages name it."""
        return f"L{self.effects.names.index(name)}H{head}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values: {"schema": 1, ...}."""
        metric = {"predict": self.request.predict} if self.request.predict else {"similar": self.request.similar}
        return {
            "schema": 1, "model": self.model, "text": self.request.text, "metric": metric, **self.effects.to_dict(),
        }  # fmt: skip


def heads_of_text(
    text: str, *, model: str | None, pair: str | None, cut: bool, least: float, tell: Progress
) -> TextHeads:
    """Run a model on a text and measure its heads."""
    check_text(text)
    loaded = load(model, tell)
    reading = read(loaded, text, pair=pair, cut=cut)
    maps = maps_of(run(loaded, reading, tell))
    names = loaded.tokenizer.convert_ids_to_tokens(reading.inputs["input_ids"][0].tolist())
    return TextHeads(loaded.name, len(reading.tokens), name_heads(maps, names, least=least))


def effects_of_text(asked: EffectRequest, tell: Progress) -> TextEffects:
    """Run a model on a text, once for each of its heads, and measure what the change of that does."""
    for text in (asked.text, asked.similar):
        if text is not None:
            check_text(text)
    loaded = load(asked.model, tell) if asked.predict is None else load_predicting(asked.model, tell)
    reading = read(loaded, asked.text, cut=asked.cut)
    with quiet(), in_evaluation(loaded.model):
        metric = _metric(loaded, reading, asked)
        effects = head_effects(
            loaded.model, dict(reading.inputs), metric, by=asked.by, measure=asked.is_measured, progress=tell
        )
    return TextEffects(loaded.name, asked, effects)


def _metric(loaded: LoadedModel, reading: TextTokens, asked: EffectRequest) -> Callable[[Any], Tensor]:
    import torch

    if asked.predict is not None:
        return log_probability(loaded, reading.inputs["input_ids"], asked.predict)
    other = read(loaded, asked.similar or "", cut=asked.cut)
    with torch.no_grad():
        target = _embedding(loaded.model(**other.inputs), other.inputs)

    def similarity(out: Any) -> Tensor:
        return torch.nn.functional.cosine_similarity(_embedding(out, reading.inputs), target, dim=0)

    return similarity


def _embedding(out: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """The mean of the last hidden states of a text's tokens, (E,)."""
    hidden: Tensor = out.last_hidden_state[0]
    keep = inputs.get("attention_mask")
    return hidden.mean(0) if keep is None else hidden[keep[0].bool()].mean(0)
