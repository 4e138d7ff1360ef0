"""What every head of a model looks at in one text: the whole job, and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.pages.files import check_output, write
from headwise.pages.links import Link, Place, WordLinks, links_of, places, strongest
from headwise.pages.models import Loaded, Progress, load
from headwise.pages.reading import check_text, read
from headwise.pages.walk import Walk
from headwise.pages.words import Token, Word, find, read_words
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Look", "look"]


@dataclass(frozen=True, eq=False)
class Look:
    """What the heads of a model look at in a text; `str` and a notebook show it to a person.

    difference: the largest of any output between the watched run and one without headwise, which is 0. tokens, words:
    what the text was read as. links: the strongest of each word shown, the queried ones or all. walk: the shapes in
    the first layer drawn. drawn: the (layer, head) pairs that are drawn. weights: layer -> (H, L, L), before dropout.
    notes: sentences about what could not be done as well as it should.
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
    lang: str = "en"
    notes: tuple[str, ...] = ()

    @property
    def queried(self) -> tuple[int, ...]:
        """The numbers of the tokens that were asked about, none if no word was."""
        return tuple(token for links in self.links for token in links.word.tokens) if self.is_query else ()

    def __str__(self) -> str:
        from headwise.pages.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from headwise.pages.terminal import as_html

        return as_html(self)

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
                {"layer": layer, "head": head, "weights": self.weights[layer][head].tolist()}
                for layer, head in self.drawn
            ],
        }


def look(
    text: str,
    *,
    model: str | os.PathLike[str] | None = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Look:
    """Which words every head of a pretrained model links in a text.

    The untouched model runs twice, the second time watched, and the result is given only if both runs agree bit for
    bit. Its weights are computed exactly from its queries and keys, whichever kernel it uses.

    model: a Hugging Face name or a folder, None: the embedded all-MiniLM-L6-v2. query: a word of the text, or several
    side by side, whose links alone are shown; None: those of all words. layer, head: what is drawn, from 0; None: the
    head of the strongest link shown. output: a file to write too, whose suffix says how (.png, .svg, .pdf, .json,
    .txt); one that exists is kept unless `force`. lang: "en" or "zh". progress: is told of each slow step.

    What cannot be used raises a Refusal (an InputError), one sentence long.

    >>> seen = look("The animal didn't cross the street because it was too tired.", query="it")
    >>> print(*seen.links[0].links[:3], sep="; ")
    because 1.00 L0H2; was 0.75 L1H8; tired 0.71 L2H1
    """
    tell = progress if progress is not None else _silent
    # a language that is not there is refused before anything slow begins
    say("step.starting", lang=lang)
    check_text(text)
    file = check_output(Path(output), force=force) if output is not None else None
    loaded = load(model, tell)
    result = _look(loaded, text, query, _numbers(layer), _numbers(head), lang, tell)
    if file is None:
        return result
    tell("step.writing", {"file": file})
    return write(result, file, force=force)


def _look(
    loaded: Loaded, text: str, query: str | None, layers: list[int], heads: list[int], lang: str, tell: Progress
) -> Look:
    from headwise.pages.runs import run

    reading = read(loaded, text)
    words = read_words(text, reading.tokens, query=query)
    shown = [words[n] for n in find(words, query)] if query is not None else list(words)
    done = run(loaded, reading, tell)
    _check_places(loaded.name, done.weights, layers, heads)
    tell("step.links", {})
    best = strongest(done.weights)
    drawn = places(done.weights, shown, words, reading.tokens, layers=layers, heads=heads)
    return Look(
        text=text,
        model=loaded.name,
        model_type=loaded.config.model_type,
        difference=done.difference,
        tokens=reading.tokens,
        words=words,
        links=tuple(links_of(word, best, words, reading.tokens) for word in shown),
        is_query=query is not None,
        walk=done.walks[drawn[0][0]],
        drawn=drawn,
        weights=done.weights,
        lang=lang,
        notes=tuple(say("look.unseen", lang=lang, module=name, reason=why) for name, why in done.unseen.items()),
    )


def _check_places(name: str, weights: Mapping[int, Tensor], layers: list[int], heads: list[int]) -> None:
    for layer in layers:
        if layer not in weights:
            last, count = max(weights), len(weights)
            raise refusal("refuse.layer", model=name, last=last, count=count, got=layer)
    for layer in layers if layers else weights:
        count = int(weights[layer].shape[0])
        for head in heads:
            if not 0 <= head < count:
                raise refusal("refuse.head", layer=layer, last=count - 1, count=count, got=head)


def _numbers(given: int | Sequence[int] | None) -> list[int]:
    if given is None:
        return []
    return list(dict.fromkeys([given] if isinstance(given, int) else given))


def _link(link: Link) -> dict[str, str | int | float]:
    return {"to": link.to, "weight": link.weight, "layer": link.layer, "head": link.head}


def _silent(key: str, values: Mapping[str, object]) -> None:
    """Tell nobody."""
