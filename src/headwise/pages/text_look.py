"""Text look: what every head of a model attends to in one text, as a run and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.pages.files import MAX_MB, check_output, write
from headwise.pages.links import Link, Place, Strongest, WordLinks, distant_links, links_of, places, strongest
from headwise.pages.models import Progress, load
from headwise.pages.nan_weights import numbers_or_none, said_of_nan
from headwise.pages.requests import check_places, check_request
from headwise.pages.shape_walk import Walk
from headwise.pages.text_tokens import read
from headwise.pages.words import Token, Word, find, read_words
from headwise.wording import say
from headwise.wording.progress_bar import progress_bar

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwise.maps import AttentionMap
    from headwise.pages.page import Page
    from headwise.pages.text_comparison import TextComparison

__all__ = ["TextRequest", "Look", "Model", "looked"]

# characters of the text that `repr` shows
LONGEST = 40

Model = str | os.PathLike[str] | tuple["nn.Module", Any] | None


@dataclass(frozen=True, eq=False)
class Look:
    """What the heads of a model attend to in a text; `str` and a notebook show it.

    difference: the largest of any output between the watched run and one without headwise, which is 0. tokens, words:
    what the text was read as. links: the strongest of each queried word to all others; without a query, of each word to
    words that are no neighbours of it, punctuation left out. walk: the shapes in
    the first layer drawn. drawn: the (layer, head) pairs that are drawn. weights: layer -> (H, L, L), before dropout.
    maps: name and map of every layer. notes: sentences about what could not be done as well as it should. comparison:
    with a second run, None: none was asked for.
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
    comparison: TextComparison | None = None

    @property
    def queried(self) -> tuple[int, ...]:
        """The numbers of the tokens that were asked about, none if no word was."""
        return tuple(token for links in self.links for token in links.word.tokens) if self.is_query else ()

    def __repr__(self) -> str:
        heads = sum(int(weight.shape[0]) for weight in self.weights.values())
        text = self.text if len(self.text) <= LONGEST else f"{self.text[: LONGEST - 1]}…"
        return f"<Look at {text!r}: {self.model}, {len(self.weights)} layers, {heads} heads, {len(self.tokens)} tokens>"

    def __str__(self) -> str:
        from headwise.pages.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from headwise.pages.terminal import as_html

        return as_html(self)

    def page(self) -> Page:
        """Every head of every layer: one file that opens anywhere, and figures."""
        from headwise.pages.page_sources import page_of_look

        return page_of_look(self)

    def save(
        self, path: str | os.PathLike[str], *, force: bool = False, max_mb: float = MAX_MB,
        progress: Progress | None = None,
    ) -> Path:  # fmt: skip
        """Write the page, or a figure, the data or the text of it, as the suffix says (.html, .png, .svg, .pdf, .json,
        .txt), whole or not at all; a file that exists is kept unless `force`. The file.

        max_mb, progress: as in `Page.save`.
        """
        file = check_output(Path(path), force=force)
        with progress_bar(self.lang) if progress is None else nullcontext(progress) as tell:
            tell("step.writing", {"file": file})
            write(self, file, force=force, max_mb=max_mb, tell=tell)
        return file

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
            "left_out": [] if self.is_query else ["neighbours", "punctuation"],
            "links": [
                {
                    "word": word_links.word.name,
                    "links": [_link(link) for link in word_links.links],
                    "special": [_link(link) for link in word_links.special],
                }
                for word_links in self.links
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
            **({} if self.comparison is None else {"comparison": self.comparison.heads.to_dict()}),
            "maps": [
                {"layer": layer, "head": head, "weights": numbers_or_none(self.weights[layer][head])}
                for layer, head in self.drawn
            ],
        }


@dataclass(frozen=True)
class TextRequest:
    """What a look is asked for; see `look`. cut: a text that is too long is read as far as the model goes.

    against, against_model, ablate: what it is compared with: another text, another model, and heads that give zeros.
    """

    text: str
    pair: str | None = None
    model: Model = None
    query: str | None = None
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    cut: bool = False
    against: str | None = None
    against_model: str | None = None
    ablate: tuple[Place, ...] = ()
    lang: str = "en"


def looked(asked: TextRequest, tell: Progress) -> Look:
    """Run a model on a text."""
    check_request(asked)
    from headwise.pages.user_model import own_model

    loaded = own_model(asked.model) if isinstance(asked.model, tuple) else load(asked.model, tell)
    from headwise.pages.model_run import run
    from headwise.pages.text_comparison import compared

    reading = read(loaded, asked.text, pair=asked.pair, cut=asked.cut)
    words = read_words(reading.text, reading.tokens, query=asked.query)
    queried = [words[n] for n in find(words, asked.query)] if asked.query is not None else []
    model_run = run(loaded, reading, tell)
    layers, heads, lang = list(asked.layers), list(asked.heads), asked.lang
    check_places(loaded.name, [int(weight.shape[0]) for weight in model_run.weights.values()], layers, heads)
    comparison = compared(asked, loaded, reading, model_run, tell)
    tell("step.links", {})

    def read_links(best: Strongest) -> tuple[WordLinks, ...]:
        if asked.query is None:
            return distant_links(best, words, reading.tokens)
        return tuple(links_of(word, best, words, reading.tokens) for word in queried)

    drawn = places(model_run.weights, read_links, layers=layers, heads=heads)
    return Look(
        text=reading.text,
        model=loaded.name,
        model_type=loaded.config.model_type,
        difference=model_run.difference,
        tokens=reading.tokens,
        words=words,
        links=read_links(strongest(model_run.weights)),
        is_query=asked.query is not None,
        walk=model_run.walks[drawn[0][0]],
        drawn=drawn,
        weights=model_run.weights,
        maps=model_run.maps,
        lang=lang,
        notes=(
            *said_of_nan(model_run.weights, lang=lang),
            *(say("look.unseen", lang=lang, module=name, reason=why) for name, why in model_run.unseen.items()),
        ),
        comparison=comparison,
    )


def _link(link: Link) -> dict[str, str | int | float]:
    return {"to": link.to, "weight": link.weight, "layer": link.layer, "head": link.head}
