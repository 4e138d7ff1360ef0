"""Axis tokens: the tokens of the rows and columns of maps, common to the batch or of each batch element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.errors import ArgumentError
from headwise.pages.vocabulary import read_names
from headwise.wording.screen import visible

__all__ = ["AxisTokens", "Tokens", "sides_of"]

Tokens = Sequence[str] | Sequence[Sequence[str]] | Mapping[str, Sequence[str] | Sequence[Sequence[str]]]
# a token without a letter
EMPTY = "∅"


@dataclass(frozen=True)
class AxisTokens:
    """The tokens of one sequence: their texts, which word each belongs to, and the words' texts; None: not known.

    others: the same of the samples 1, 2, ... of a batch where each has its own; none: all have these.
    """

    tokens: tuple[str, ...]
    words: tuple[int, ...] | None = None
    called: tuple[str, ...] | None = None
    others: tuple[AxisTokens, ...] = ()

    def of(self, sample: int) -> AxisTokens:
        """The side of one sample."""
        return (self, *self.others)[sample] if self.others else self

    def to_dict(self, longest: int) -> dict[str, Any]:
        """Its entry in a page's header, each text up to so many characters."""
        words, called = self.words and list(self.words), self.called and [_cut(word, longest) for word in self.called]
        fields = {"tokens": [_cut(token, longest) for token in self.tokens], "words": words, "called": called}
        return fields if not self.others else fields | {"others": [each.to_dict(longest) for each in self.others]}


def sides_of(tokens: Any, samples: int) -> list[AxisTokens]:
    """The sides that tokens may mean, in the order in which they are tried; see `look` for what tokens may be."""
    if tokens is None:
        return []
    if not isinstance(tokens, Mapping):
        return [_side(tokens, samples)]
    if set(tokens) - {"queries", "keys"}:
        raise ArgumentError(f'tokens by name are those of "queries" and "keys"; got {", ".join(map(str, tokens))}')
    return [_side(tokens[name], samples) for name in ("queries", "keys") if name in tokens]


def _side(tokens: Any, samples: int) -> AxisTokens:
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise ArgumentError(f"tokens must be a list of texts, or one for each sample; got {type(tokens).__name__}")
    if not tokens or isinstance(tokens[0], str) or not isinstance(tokens[0], Sequence):
        return _read(tokens)
    if len(tokens) != samples:
        raise ArgumentError(
            f"there must be a list of tokens for each of the {samples} samples, but {len(tokens)} came: give one for "
            "each, or one list of texts for all"
        )
    first, *others = map(_read, tokens)
    for sample, sample_side in enumerate(others, 1):
        if len(sample_side.tokens) != len(first.tokens):
            raise ArgumentError(
                f"the samples of a batch must have tokens of one number, but sample 0 has {len(first.tokens)} and "
                f"sample {sample} has {len(sample_side.tokens)}: add the padding's"
            )
    return AxisTokens(first.tokens, first.words, first.called, tuple(others))


def _read(tokens: Sequence[Any]) -> AxisTokens:
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise ArgumentError("tokens must be texts: decode their numbers with the tokenizer first")
    read = read_names(tokens)
    texts = tuple(visible(token) if token else EMPTY for token in read.tokens)
    return AxisTokens(texts, read.words, read.called and tuple(map(visible, read.called)))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
