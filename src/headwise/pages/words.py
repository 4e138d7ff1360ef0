"""Words: which tokens of a model make up which word of the text, as the text has it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.wording import refusal
from headwise.wording.screen import visible

__all__ = ["Token", "Word", "find", "is_punctuation", "pieces", "read_tokens", "read_words"]

Span = tuple[int, int]

# scripts written without spaces: there each character stands alone unless a token joins it to its neighbours
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# over the kinds of _kind: a run of letters with apostrophes inside it; one unspaced character; one other sign
_WORD = re.compile("w[wm]*(?:aw[wm]*)*|cm*|[pa]m*|m+")


@dataclass(frozen=True)
class Token:
    """One token: its text, and its place in the text; a special token, which the model adds, has none."""

    text: str
    span: Span | None


@dataclass(frozen=True)
class Word:
    """One word: its text, the name that numbers equal words ("the#2"), and the numbers of its tokens."""

    text: str
    name: str
    tokens: tuple[int, ...]


def read_tokens(text: str, names: Sequence[str], offsets: Sequence[Span], special: Sequence[bool]) -> tuple[Token, ...]:
    """The tokens as pieces of the text itself, so that those of a byte-level vocabulary read right too.

    names: the vocabulary's own names, used for special tokens. offsets: (start, end) of each token in the text.

    >>> read_tokens("a cat", ["<s>", "a", "Ġcat"], [(0, 0), (0, 1), (1, 5)], [True, False, False])
    (Token(text='<s>', span=None), Token(text='a', span=(0, 1)), Token(text='cat', span=(2, 5)))
    """
    tokens = []
    for name, (start, end), is_special in zip(names, offsets, special, strict=True):
        if is_special or start == end:
            tokens.append(Token(visible(name), None))
            continue
        piece = text[start:end]
        if piece.strip():
            start, end = start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
        tokens.append(Token(visible(text[start:end]), (start, end)))
    return tuple(tokens)


def read_words(text: str, tokens: Sequence[Token], *, query: str | None = None) -> tuple[Word, ...]:
    """The words of a text that has these tokens.

    A word is a run of letters and digits with the apostrophes inside it, a single character of a script without
    spaces, or another sign; a token that reaches over several makes one word of them. query: a word, or several side by
    side, that are to be one word wherever they stand.

    >>> tokens = read_tokens("didn't 你好", ["d", "t", "n"], [(0, 4), (4, 6), (7, 9)], [False] * 3)
    >>> [(word.text, word.tokens) for word in read_words("didn't 你好", tokens)]
    [("didn't", (0, 1)), ('你好', (2,))]
    """
    covers = [token.span for token in tokens if token.span is not None]
    covered = {place for start, end in covers for place in range(start, end)}
    spans = _joined([span for span in pieces(text) if not covered.isdisjoint(range(*span))], covers)
    if query is not None:
        spans = _joined(spans, _occurrences(text, query, spans))
    words: list[Word] = []
    for start, end in spans:
        inside = (n for n, token in enumerate(tokens) if token.span is not None and start <= token.span[0] < end)
        words.append(Word(visible(text[start:end]), "", tuple(inside)))
    return tuple(_named(words))


def find(words: Sequence[Word], query: str) -> tuple[int, ...]:
    """The numbers of the words that a query means: of this text, else of this name, else in other capitals.

    A query that is no word raises a Refusal that lists the words.
    """
    wanted = visible(query.strip())
    readings = (
        [word.text == wanted for word in words],
        [word.name == wanted for word in words],
        [word.text.casefold() == wanted.casefold() for word in words],
    )
    for reading in readings:
        if any(reading):
            return tuple(n for n, is_meant in enumerate(reading) if is_meant)
    distinct = list(dict.fromkeys(word.text for word in words))
    listed = ", ".join(distinct[:40]) + (", …" if len(distinct) > 40 else "")
    raise refusal("refuse.query", query=wanted, words=listed)


def is_punctuation(text: str) -> bool:
    """Whether every character is punctuation, by its Unicode category.

    >>> [is_punctuation(text) for text in (".", "……", "it", "+")]
    [True, True, False, False]
    """
    return all(unicodedata.category(character)[0] == "P" for character in text)


def pieces(text: str) -> Iterator[Span]:
    kinds = "".join(map(_kind, text))
    return (match.span() for match in _WORD.finditer(kinds))


def _kind(character: str) -> str:
    if _UNSPACED.match(character):
        return "c" if unicodedata.category(character)[0] != "M" else "m"
    if character.isspace():
        return " "
    if character in "'’":
        return "a"
    category = unicodedata.category(character)
    if category[0] == "M" or category == "Cf":
        return "m"
    return "w" if category[0] in "LN" or character == "_" else "p"


def _joined(spans: Sequence[Span], joins: Sequence[Span]) -> list[Span]:
    """The spans in order, with all those that one join touches made one (a join that touches none is added)."""
    joined: list[Span] = []
    for start, end in sorted([*spans, *joins]):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _occurrences(text: str, query: str, spans: Sequence[Span]) -> list[Span]:
    """Where the query stands in the text from the start of one word to the end of another."""
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    wanted = query.strip()
    for flags in (re.NOFLAG, re.IGNORECASE):
        matches = [m.span() for m in re.finditer(re.escape(wanted), text, flags) if wanted]
        inside = [span for span in matches if span[0] in starts and span[1] in ends]
        if inside:
            return inside
    return []


def _named(words: Sequence[Word]) -> Iterator[Word]:
    texts = [word.text for word in words]
    for n, word in enumerate(words):
        name = word.text if texts.count(word.text) == 1 else f"{word.text}#{texts[: n + 1].count(word.text)}"
        yield Word(word.text, name, word.tokens)
