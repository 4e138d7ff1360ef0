"""Page sources: a page is made of a model's run on a text, the maps of a watched model, those of a file, or one map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap, HeadMean
from headwise.maps.files import LoadedMaps
from headwise.pages.axis_tokens import AxisTokens, Tokens, sides_of
from headwise.pages.page import Layer, Page
from headwise.watching import Seen
from headwise.watching.sequences import layers_of
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from headwise.pages.links import Link
    from headwise.pages.text_look import Look
    from headwise.pages.words import Word

__all__ = ["Maps", "Tokens", "page_of_look", "page_of_maps"]

Maps = Seen | AttentionMap | HeadMean | Mapping[str, AttentionMap]
MOST_LINKS = 12


def page_of_maps(
    maps: Maps, *, tokens: Tokens | None, query: str | None, layer: Sequence[int], head: Sequence[int], lang: str
) -> Page:
    """The page of maps; see `look` for what tokens may be. layer, head: where it opens; query: a token's text."""
    named = _named(maps)
    if not named:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in getattr(maps, "unseen", {}).items())
        raise refusal("refuse.no_maps", reason=reasons or "-")
    for name, layer_map in named:
        if 0 in layer_map.shape:
            raise refusal("refuse.empty_map", name=name, shape=tuple(layer_map.shape))
    samples = min(layer_map.shape[0] for _, layer_map in named)
    candidates = sides_of(tokens if tokens is not None else getattr(maps, "tokens", None), samples)
    sides, layers = _sides(named, candidates)
    title = say("page.title", lang=lang)
    opening = _opening(layers, layer, head, title)
    sample, chosen = 0, None
    if query is not None:
        sample, first, chosen = _rows(sides[layers[opening["layer"]].queries], query)
        opening["token"] = first
    unseen = getattr(maps, "unseen", {})
    return Page(
        title=title,
        layers=layers,
        sides=sides,
        sample=sample,
        chosen=chosen,
        opening=opening,
        notes=tuple(say("look.unseen", lang=lang, module=name, reason=why) for name, why in unseen.items()),
        lang=lang,
    )


def page_of_look(look: Look) -> Page:
    """The page of a run on a text: its words joined on request, its strongest links, the rows asked for."""
    owner = {token: n for n, word in enumerate(look.words) for token in word.tokens}
    count = len(look.tokens)
    side = AxisTokens(
        tuple(token.text for token in look.tokens),
        tuple(owner.get(n, -1) for n in range(count)),
        tuple(word.text for word in look.words),
    )
    page = Page(
        title=look.model,
        text=look.text,
        layers=tuple(Layer(name, layer_map, 0, 0) for name, layer_map in look.maps),
        sides=(side,),
        chosen=look.queried or None,
        opening=_opening_of(look),
        links=tuple(_links(look)),
        has_all_links=look.is_query,
        notes=look.notes,
        lang=look.lang,
    )
    return page if look.comparison is None else page.with_table(look.comparison.heads)


def _opening_of(look: Look) -> dict[str, int | str]:
    """The head that is drawn, at the word whose link is the strongest there; without one, at the first word."""
    layer, head = look.drawn[0]
    here = [(link.weight, word) for word, link in _pairs(look) if (link.layer, link.head) == (layer, head)]
    first = [link.word for link in look.links[:1]]
    word = max(here, key=lambda pair: pair[0])[1] if here else next(iter(first), None)
    return {"layer": layer, "head": head, "token": 0 if word is None else word.tokens[0]}


def _pairs(look: Look) -> list[tuple[Word, Link]]:
    return [(each.word, link) for each in look.links for link in each.links]


def _links(look: Look) -> Iterator[Mapping[str, Any]]:
    """The strongest of the links that the terminal shows too."""
    for word, link in sorted(_pairs(look), key=lambda pair: -pair[1].weight)[:MOST_LINKS]:
        yield {
            "from": word.name,
            "to": link.to,
            "weight": link.weight,
            "layer": link.layer,
            "head": link.head,
            "query": word.tokens[0],
        }


def _named(maps: Maps) -> list[tuple[str, AttentionMap | HeadMean]]:
    if isinstance(maps, AttentionMap | HeadMean):
        return [("", maps)]
    if isinstance(maps, Seen | LoadedMaps):
        return [*layers_of(maps)]
    if isinstance(maps, Mapping) and all(isinstance(entry, AttentionMap | HeadMean) for entry in maps.values()):
        return list(maps.items())
    raise ArgumentError(
        f"what to show must be a text, code, a watch's maps, maps by their names, or a map; got {type(maps).__name__}"
    )


def _sides(
    named: Sequence[tuple[str, Any]], candidates: Sequence[AxisTokens]
) -> tuple[tuple[AxisTokens, ...], tuple[Layer, ...]]:
    """Every sequence of tokens once, and which of them each map's rows and columns are."""
    sides: list[AxisTokens] = []

    def place(side: AxisTokens) -> int:
        if side not in sides:
            sides.append(side)
        return sides.index(side)

    layers, matched = [], False
    for name, layer_map in named:
        lengths = tuple(layer_map.shape[2:])
        # rows take the first list that fits; columns the last, so that two lists of one length are queries and keys
        fits = [[candidate for candidate in candidates if len(candidate.tokens) == length] for length in lengths]
        matched = matched or any(fits)
        rows = fits[0][0] if fits[0] else _numbers(lengths[0])
        columns = fits[1][-1] if fits[1] else _numbers(lengths[1])
        layers.append(Layer(name, layer_map, place(rows), place(columns)))
    if candidates and not matched:
        shapes = ", ".join(f"{name!r}: Lq={m.shape[2]}, Lk={m.shape[3]}" for name, m in named[:4])
        counts = " and ".join(str(len(candidate.tokens)) for candidate in candidates)
        raise ArgumentError(f"there must be a token for each query or key, but {counts} came; the maps: {shapes}")
    return tuple(sides), tuple(layers)


def _opening(layers: Sequence[Layer], layer: Sequence[int], head: Sequence[int], title: str) -> dict[str, Any]:
    count = len(layers)
    for got in layer:
        if not 0 <= got < count:
            raise refusal("refuse.layer", model=title, last=count - 1, count=count, got=got)
    first = layer[0] if layer else 0
    heads = layers[first].map.shape[1]
    for got in head:
        if not 0 <= got < heads:
            raise refusal("refuse.head", layer=first, last=heads - 1, count=heads, got=got)
    return {"layer": first, "head": head[0] if head else 0}


def _numbers(length: int) -> AxisTokens:
    return AxisTokens(tuple(map(str, range(length))))


def _rows(side: AxisTokens, query: str) -> tuple[int, int, tuple[int, ...]]:
    """The first sample that has a token of this text, its first row with it, and such rows of all samples."""
    samples = (side, *side.others)
    matches = [[n for n, token in enumerate(each.tokens) if token.strip() == query.strip()] for each in samples]
    for sample, rows in enumerate(matches):
        if rows:
            return sample, rows[0], tuple(sorted({row for match in matches for row in match}))
    distinct = list(dict.fromkeys(token.strip() for each in samples for token in each.tokens))
    listed = ", ".join(distinct[:40]) + (", …" if len(distinct) > 40 else "")
    raise refusal("refuse.query", query=query, words=listed)
