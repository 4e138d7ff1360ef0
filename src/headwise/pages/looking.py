"""What every head of a model looks at in one text: the whole job, and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from headwise.errors import ArgumentError
from headwise.pages.files import check_output, write, write_page
from headwise.pages.links import Link, Place, WordLinks, links_of, places, strongest
from headwise.pages.models import Progress, load, silent
from headwise.pages.not_numbers import numbers_or_none, said_of_nan
from headwise.pages.reading import read
from headwise.pages.requests import check_places, check_request
from headwise.pages.walk import Walk
from headwise.pages.words import Token, Word, find, read_words
from headwise.wording import say
from headwise.wording.bar import told

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwise.maps import AttentionMap
    from headwise.pages.page import Page
    from headwise.pages.subjects import Maps, Tokens

__all__ = ["Asked", "Look", "look", "looked"]

# characters of the text that `repr` shows
LONGEST = 40

Model = str | os.PathLike[str] | tuple["nn.Module", Any] | None


@dataclass(frozen=True, eq=False)
class Look:
    """What the heads of a model look at in a text; `str` and a notebook show it to a person.

    difference: the largest of any output between the watched run and one without headwise, which is 0. tokens, words:
    what the text was read as. links: the strongest of each word shown, the queried ones or all. walk: the shapes in
    the first layer drawn. drawn: the (layer, head) pairs that are drawn. weights: layer -> (H, L, L), before dropout.
    maps: name and map of every layer. notes: sentences about what could not be done as well as it should.
    """

    text: str
    model: str
    model_type: str
    difference: float
    tokens: tuple[Token, ...]
    words: tuple[Word, ...]
    links: tuple[WordLinks, ...]
    is_query: bool
    walk: Walk
    drawn: tuple[Place, ...]
    weights: Mapping[int, Tensor] = field(repr=False)
    maps: tuple[tuple[str, AttentionMap], ...] = field(repr=False)
    lang: str = "en"
    notes: tuple[str, ...] = ()

    @property
    def queried(self) -> tuple[int, ...]:
        """The numbers of the tokens that were asked about, none if no word was."""
        return tuple(token for links in self.links for token in links.word.tokens) if self.is_query else ()

    def __repr__(self) -> str:
        heads = sum(int(each.shape[0]) for each in self.weights.values())
        text = self.text if len(self.text) <= LONGEST else f"{self.text[: LONGEST - 1]}…"
        return f"<Look at {text!r}: {self.model}, {len(self.weights)} layers, {heads} heads, {len(self.tokens)} tokens>"

    def __str__(self) -> str:
        from headwise.pages.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from headwise.pages.terminal import as_html

        return as_html(self)

    def page(self) -> Page:
        """Every head of every layer, to look at: one file that opens anywhere, and figures."""
        from headwise.pages.subjects import page_of_look

        return page_of_look(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights that are not drawn, as lists, numbers and strings: {"schema": 1, ...}."""
        return {
            "schema": 1,
            "text": self.text,
            "model": self.model,
            "model_type": self.model_type,
            "layers": len(self.weights),
            "heads": [int(heads.shape[0]) for heads in self.weights.values()],
            "largest_difference": self.difference,
            "tokens": [{"text": token.text, "span": token.span and list(token.span)} for token in self.tokens],
            "words": [{"text": word.text, "name": word.name, "tokens": list(word.tokens)} for word in self.words],
            "links": [
                {
                    "word": found.word.name,
                    "links": [_link(link) for link in found.links],
                    "special": [_link(link) for link in found.special],
                }
                for found in self.links
            ],
            "walk": [
                {
                    "name": chain.name,
                    "steps": [
                        {"operation": operation, "letters": shape.letters.split(), "sizes": list(shape.sizes)}
                        for operation, shape in (("", chain.first), *chain.steps)
                    ],
                }
                for chain in self.walk
            ],
            "maps": [
                {"layer": layer, "head": head, "weights": numbers_or_none(self.weights[layer][head])}
                for layer, head in self.drawn
            ],
        }


@overload
def look(
    text: str | tuple[str, str],
    *,
    tokens: None = None,
    model: Model = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Look: ...


@overload
def look(
    text: Maps,
    *,
    tokens: Tokens | None = None,
    model: None = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Page: ...


def look(
    text: str | tuple[str, str] | Maps,
    *,
    tokens: Tokens | None = None,
    model: Model = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Look | Page:
    """Which words every head of a pretrained model links in a text; or a Page of maps that have been made already.

    text: a text, or a pair of them. The untouched model runs twice, the second time watched, and the result is given
    only if both runs agree bit for bit. Its weights are computed exactly from its queries and keys, whichever kernel it
    uses. Or maps: those of `watch`, of `load_maps`, by their names, or one map; of a batch as many samples as fit.

    model: a Hugging Face name, a folder, or (module, tokenizer): any module that `watch` can see, which runs in eval
    mode, and what makes input_ids of a text. None: the embedded all-MiniLM-L6-v2. query: a word of the text, or
    several side by side, whose links alone are shown; None: those of all words. layer, head: what is drawn, from 0;
    None: the head of the strongest link shown. tokens, of maps: their texts, or their names in a vocabulary, a list of
    them for each sample, or {"queries": ..., "keys": ...}; None: numbers. output: a file to write too, whose suffix
    says how (.html, .png, .svg, .pdf, .json, .txt; of maps, all but the last two); one that exists is kept unless
    `force`. lang: "en" or "zh". progress: is told of each slow step;
    None: nobody, but maps that are written show a bar on stderr where that is a terminal.

    What cannot be used raises a Refusal (an InputError), one sentence long.

    >>> seen = look("The animal didn't cross the street because it was too tired.", query="it")
    >>> print(*seen.links[0].links[:3], sep="; ")
    because 1.00 L0H2; was 0.75 L1H8; tired 0.71 L2H1
    """
    tell = progress if progress is not None else silent
    # a language that is not there is refused before anything slow begins
    say("step.starting", lang=lang)
    is_text = isinstance(text, str | tuple)
    file = None if output is None else check_output(Path(output), force=force, of_maps=not is_text)
    if not isinstance(text, str | tuple):
        if model is not None:
            raise ArgumentError("model reads a text, and these maps have been made already: leave it out")
        return _page(text, tokens, query, (_numbers(layer), _numbers(head)), file, force, lang, progress)
    if tokens is not None:
        raise ArgumentError("tokens are of maps; those of a text come from the model's tokenizer: leave them out")
    if isinstance(text, tuple) and (len(text) != 2 or not all(isinstance(each, str) for each in text)):
        raise ArgumentError(
            f"a tuple to look at must be two texts, the second a pair to the first; got {len(text)} things"
        )
    if model is not None and not isinstance(model, str | os.PathLike | tuple):
        raise ArgumentError(
            f"a model reads a text through its tokenizer, but {type(model).__name__} came alone: give "
            "model=(module, tokenizer)"
        )
    first, pair = (text, None) if isinstance(text, str) else text
    asked = Asked(first, pair, model, query, tuple(_numbers(layer)), tuple(_numbers(head)), lang=lang)
    result = looked(asked, tell)
    if file is not None:
        tell("step.writing", {"file": file})
    return result if file is None else write(result, file, force=force, tell=tell)


@dataclass(frozen=True)
class Asked:
    """What a look is asked for; see `look`. cut: a text that is too long is read as far as the model goes."""

    text: str
    pair: str | None = None
    model: Model = None
    query: str | None = None
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    cut: bool = False
    lang: str = "en"


def looked(asked: Asked, tell: Progress) -> Look:
    """The look at a text."""
    check_request(asked)
    from headwise.pages.own import own_model

    loaded = own_model(asked.model) if isinstance(asked.model, tuple) else load(asked.model, tell)
    from headwise.pages.runs import run

    reading = read(loaded, asked.text, pair=asked.pair, cut=asked.cut)
    words = read_words(reading.text, reading.tokens, query=asked.query)
    shown = [words[n] for n in find(words, asked.query)] if asked.query is not None else list(words)
    done = run(loaded, reading, tell)
    layers, heads, lang = list(asked.layers), list(asked.heads), asked.lang
    check_places(loaded.name, [int(each.shape[0]) for each in done.weights.values()], layers, heads)
    tell("step.links", {})
    best = strongest(done.weights)
    drawn = places(done.weights, shown, words, reading.tokens, layers=layers, heads=heads)
    return Look(
        text=reading.text,
        model=loaded.name,
        model_type=loaded.config.model_type,
        difference=done.difference,
        tokens=reading.tokens,
        words=words,
        links=tuple(links_of(word, best, words, reading.tokens) for word in shown),
        is_query=asked.query is not None,
        walk=done.walks[drawn[0][0]],
        drawn=drawn,
        weights=done.weights,
        maps=done.maps,
        lang=lang,
        notes=(
            *said_of_nan(done.weights, lang=lang),
            *(say("look.unseen", lang=lang, module=name, reason=why) for name, why in done.unseen.items()),
        ),
    )


def _page(
    maps: Maps, tokens: Tokens | None, query: str | None, where: tuple[list[int], list[int]], file: Path | None,
    force: bool, lang: str, progress: Progress | None,
) -> Page:  # fmt: skip
    from headwise.pages.subjects import page_of_maps

    page = page_of_maps(maps, tokens=tokens, query=query, layer=where[0], head=where[1], lang=lang)
    if file is not None:
        # a text is looked at in a moment, long maps are not
        with told(lang) if progress is None else nullcontext(progress) as tell:
            tell("step.writing", {"file": file})
            write_page(page, file, force=force, tell=tell)
    return page


def _numbers(given: int | Sequence[int] | None) -> list[int]:
    if given is None:
        return []
    several = [given] if isinstance(given, int) else given
    if isinstance(several, str) or not all(isinstance(number, int) for number in several):
        raise ArgumentError(f"layers and heads are told by their numbers, from 0; got {given!r}")
    return list(dict.fromkeys(several))


def _link(link: Link) -> dict[str, str | int | float]:
    return {"to": link.to, "weight": link.weight, "layer": link.layer, "head": link.head}
