"""Text tokens: a text as the tokens of a model, refused where the model cannot take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.pages.models import LoadedModel, quiet
from headwise.pages.words import Token, read_tokens
from headwise.wording import refusal

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TextTokens", "check_text", "read"]

# all weights of all heads are held at once, in float32
MOST_MEBIBYTES = 2048


@dataclass(frozen=True, eq=False)
class TextTokens:
    """A text, its tokens, and what the model is called with."""

    text: str
    tokens: tuple[Token, ...]
    inputs: Mapping[str, Tensor]


def check_text(text: str) -> None:
    """Refuse a text that no model can read, before anything slow begins."""
    if not text.strip():
        raise refusal("refuse.empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise refusal("refuse.unicode", place=error.start + 1) from error


def read(loaded: LoadedModel, text: str, *, pair: str | None = None, cut: bool = False) -> TextTokens:
    """The text as tokens. One with no word for this model, with too many, or unknown to it raises a Refusal.

    pair: a second text, which stands below the first in the Reading's text. cut: read only as many tokens as the model
    takes.
    """
    texts = (text,) if pair is None else (text, pair)
    if not getattr(loaded.tokenizer, "is_fast", False):
        return _read_own(loaded, texts, cut=cut)
    options = {"truncation": True, "max_length": _limit(loaded)} if cut and _limit(loaded) is not None else {}
    with quiet():
        encoded = loaded.tokenizer(
            *texts, return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="pt", **options
        )
    offsets, special = encoded.pop("offset_mapping")[0].tolist(), encoded.pop("special_tokens_mask")[0].tolist()
    names = encoded.tokens()
    _check_length(loaded, len(names))
    # the second text begins after the first and the line's end between them
    starts = [0 if which in (0, None) else len(text) + 1 for which in encoded.sequence_ids(0)]
    spans = [(start + first, start + last) for start, (first, last) in zip(starts, offsets, strict=True)]
    text = "\n".join(texts)
    tokens = read_tokens(text, names, spans, list(map(bool, special)))
    return _checked(loaded, TextTokens(text, tokens, dict(encoded)))


def _read_own(loaded: LoadedModel, texts: tuple[str, ...], *, cut: bool) -> TextTokens:
    """What a tokenizer that does not know where its tokens stand makes of a text."""
    from headwise.pages.user_model import encoded

    text, tokens, inputs = encoded(loaded, texts)
    limit = _limit(loaded)
    if cut and limit is not None:
        tokens, inputs = tokens[:limit], {name: value[:, :limit] for name, value in inputs.items()}
    _check_length(loaded, len(tokens))
    return _checked(loaded, TextTokens(text, tokens, inputs))


def _checked(loaded: LoadedModel, reading: TextTokens) -> TextTokens:
    if all(token.span is None for token in reading.tokens):
        raise refusal("refuse.no_words", model=loaded.name)
    vocabulary, largest = getattr(loaded.config, "vocab_size", None), int(reading.inputs["input_ids"].max())
    if vocabulary is not None and largest >= vocabulary:
        raise refusal("refuse.vocabulary", model=loaded.name, known=vocabulary, got=largest)
    return reading


def _check_length(loaded: LoadedModel, length: int) -> None:
    limit = _limit(loaded)
    if limit is not None and length > limit:
        raise refusal("refuse.too_long", model=loaded.name, limit=limit, got=length, over=length - limit)
    heads = getattr(loaded.config, "num_hidden_layers", 1) * getattr(loaded.config, "num_attention_heads", 1)
    most = MOST_MEBIBYTES << 20
    need = 4 * heads * length**2
    if need > most:
        fits = int((most / 4 / heads) ** 0.5)
        raise refusal("refuse.too_big", limit=MOST_MEBIBYTES, got=length, heads=heads, need=need >> 20, fits=fits)


def _limit(loaded: LoadedModel) -> int | None:
    """The most tokens the model takes, or None where it has no limit: a tokenizer without one says 10**30."""
    positions: Any = getattr(loaded.config, "max_position_embeddings", None)
    limits = [getattr(loaded.tokenizer, "model_max_length", 10**30)]
    if isinstance(positions, int) and positions > 0:
        # RoBERTa's positions begin after the padding's own
        table = getattr(getattr(loaded.model, "embeddings", None), "position_embeddings", None)
        offset = 0 if table is None or table.padding_idx is None else table.padding_idx + 1
        limits.append(positions - offset)
    smallest = min(limits)
    return smallest if smallest < 10**9 else None
