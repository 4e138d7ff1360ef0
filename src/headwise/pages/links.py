"""Links: which words a word attends to most, over all layers and heads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.pages.words import Token, Word, is_punctuation

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["COUNT", "Link", "Place", "Strongest", "WordLinks", "distant_links", "links_of", "places", "strongest"]

COUNT = 5

Place = tuple[int, int]


@dataclass(frozen=True)
class Link:
    """One word attends to another, or to a special token: with what weight, in which layer and head."""

    to: str
    weight: float
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.to} {self.weight:.2f} L{self.layer}H{self.head}"


@dataclass(frozen=True)
class WordLinks:
    """The strongest links of one word to other words, and apart from them those to special tokens."""

    word: Word
    links: tuple[Link, ...]
    special: tuple[Link, ...]


@dataclass(frozen=True, eq=False)
class Strongest:
    """For each pair of tokens (L, L) the largest weight over some layers and heads, and which layer and head has it."""

    weight: Tensor
    layer: Tensor
    head: Tensor


def strongest(weights: Mapping[int, Tensor], heads: Sequence[int] | None = None) -> Strongest:
    """The largest weights over layers of (H, L, L), and over these heads; None: all of them.

    Of equal weights that of the first layer and head counts; NaN is no weight, and counts as 0.
    """
    first, *others = (_within(layer, all_heads, heads) for layer, all_heads in weights.items())
    return functools.reduce(_larger, others, first)


def links_of(
    word: Word,
    best: Strongest,
    words: Sequence[Word],
    tokens: Sequence[Token],
    *,
    others: Sequence[Word] | None = None,
) -> WordLinks:
    """The COUNT strongest links of a word: at most one for each other word, its strongest; special tokens apart.

    A word of several tokens counts by its strongest: over the tokens of both words the largest weight is taken.
    others: the words it may be linked to; None: all but itself.
    """
    linked = {target.tokens[0] for target in (words if others is None else others)} - {word.tokens[0]}
    rows = list(word.tokens)
    weight, row = best.weight[rows].max(dim=0)
    owner = {token: owner_word for owner_word in words for token in owner_word.tokens}
    links: dict[int, Link] = {}
    special: list[Link] = []
    for token in weight.argsort(descending=True, stable=True).tolist():
        value, at = float(weight[token]), rows[int(row[token])]
        target = owner.get(token)
        if value <= 0.0 or (target is not None and target.tokens[0] not in linked):
            continue
        place = int(best.layer[at, token]), int(best.head[at, token])
        if target is None and len(special) < COUNT:
            special.append(Link(tokens[token].text, value, *place))
        elif target is not None and len(links) < COUNT:
            links.setdefault(target.tokens[0], Link(target.name, value, *place))
    return WordLinks(word, tuple(links.values()), tuple(special))


def distant_links(best: Strongest, words: Sequence[Word], tokens: Sequence[Token]) -> tuple[WordLinks, ...]:
    """The COUNT strongest links of every word to words that are no neighbours of it, punctuation left out."""
    spoken = {n: word for n, word in enumerate(words) if not is_punctuation(word.text)}
    return tuple(
        links_of(word, best, words, tokens, others=[target for m, target in spoken.items() if abs(m - n) != 1])
        for n, word in spoken.items()
    )


def _within(layer: int, weights: Tensor, heads: Sequence[int] | None) -> Strongest:
    chosen = list(range(weights.shape[0])) if heads is None else list(heads)
    weight, index = weights[chosen].nan_to_num(nan=0.0).max(dim=0)
    return Strongest(weight, index.new_full(index.shape, layer), index.new_tensor(chosen)[index])


def _larger(best: Strongest, other: Strongest) -> Strongest:
    more = other.weight > best.weight
    pairs = ((best.weight, other.weight), (best.layer, other.layer), (best.head, other.head))
    return Strongest(*(new.where(more, old) for old, new in pairs))


def places(
    weights: Mapping[int, Tensor],
    read: Callable[[Strongest], Sequence[WordLinks]],
    *,
    layers: Sequence[int],
    heads: Sequence[int],
) -> tuple[Place, ...]:
    """The layers and heads to draw: each of these layers with each of these heads.

    read: the links to choose by. Where only layers are given, the head of each that has the strongest of these; where
    only heads are, the layer of each; where neither, the place of the strongest of all.
    """
    if layers and heads:
        return tuple((layer, head) for layer in layers for head in heads)

    def best_place(among: Mapping[int, Tensor], only: Sequence[int] | None) -> Place:
        best_links = [link for word_links in read(strongest(among, only)) for link in word_links.links[:1]]
        top = max(best_links, key=lambda link: link.weight, default=None)
        return (top.layer, top.head) if top is not None else (min(among), min(only) if only is not None else 0)

    if layers:
        return tuple(best_place({layer: weights[layer]}, None) for layer in layers)
    if heads:
        return tuple(best_place(weights, [head]) for head in heads)
    return (best_place(weights, None),)
