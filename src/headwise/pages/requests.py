"""Requests: the arguments of a look at a text, refused before torch or a model is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.pages.models import MODEL, folder_of
from headwise.pages.text_tokens import check_text
from headwise.pages.words import Token, find, pieces, read_words
from headwise.wording import refusal, say
from headwise.wording.screen import visible

if TYPE_CHECKING:
    from headwise.pages.text_look import TextRequest

__all__ = ["check_maps", "check_places", "check_request", "places_to_ablate"]

# model types whose every layer attends once over the text, and what their config.json calls the two counts
COUNTS = {
    **dict.fromkeys(
        ("albert", "bert", "camembert", "electra", "ernie", "gemma", "gpt_neox", "llama", "mistral", "mpnet", "opt",
         "phi", "qwen2", "qwen3", "roberta", "xlm-roberta"), ("num_hidden_layers", "num_attention_heads"),
    ),
    "distilbert": ("n_layers", "n_heads"),
    "gpt2": ("n_layer", "n_head"),
}  # fmt: skip
# bytes of a header that are read twice for an early answer
MOST_HEADER = 1 << 24
# the name of a word that stands in a text several times: "the#2"
NUMBERED = re.compile(r"#\d+$")
# a layer and a head of it, both from 0
PLACE = re.compile(r"[Ll](\d+)[Hh](\d+)")


def check_request(asked: TextRequest) -> None:
    """Refuse a text, a queried word, a model, a layer or a head that cannot be, as far as texts and files show.

    What only the model tells, such as how its tokenizer cuts a word, is let through.
    """
    check_text(asked.text)
    if asked.pair is not None:
        check_text(asked.pair)
    if asked.against is not None:
        check_text(asked.against)
    if asked.against_model is not None:
        folder_of(asked.against_model)
    if asked.query is not None:
        _check_query("\n".join([asked.text] if asked.pair is None else [asked.text, asked.pair]), asked.query)
    if not isinstance(asked.model, tuple):
        folder = folder_of(asked.model)
        counts = None if folder is None else _counts(folder)
        if folder is not None and counts is not None:
            layers, heads = counts
            name = MODEL if asked.model is None else folder.resolve().name
            check_places(name, [heads] * layers, asked.layers, asked.heads)
            for layer, head in asked.ablate:
                check_places(name, [heads] * layers, [layer], [head])


def check_maps(file: Path, layers: Sequence[int], lang: str) -> None:
    """Refuse a file of maps that is not there, and a layer that it does not have; what only its tensors show passes.

    lang: in which the page is called what the sentence calls it.
    """
    if not file.is_file():
        raise refusal("refuse.no_maps_file", file=file)
    try:
        with file.open("rb") as data:
            size = int.from_bytes(data.read(8), "little")
            header: Any = json.loads(data.read(size)) if size <= MOST_HEADER else {}
        count = len(json.loads(header["__metadata__"]["headwise"])["maps"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        # refused where the maps are read
        return
    for layer in layers if count else ():
        if not 0 <= layer < count:
            raise refusal("refuse.layer", model=say("page.title", lang=lang), last=count - 1, count=count, got=layer)


def check_places(name: str, counts: Sequence[int], layers: Sequence[int], heads: Sequence[int]) -> None:
    """Refuse a layer or a head that a model does not have. counts: the heads of each layer."""
    for layer in layers:
        if not 0 <= layer < len(counts):
            raise refusal("refuse.layer", model=name, last=len(counts) - 1, count=len(counts), got=layer)
    for layer in layers if layers else range(len(counts)):
        count = counts[layer]
        for head in heads:
            if not 0 <= head < count:
                raise refusal("refuse.head", layer=layer, last=count - 1, count=count, got=head)


def places_to_ablate(written: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Heads as they are written on the command line; a Refusal where one is not.

    >>> places_to_ablate(["L3H1", "l0h11"])
    ((3, 1), (0, 11))
    """
    places = []
    for text in written:
        match = PLACE.fullmatch(text.strip())
        if match is None:
            raise refusal("refuse.ablate", got=text)
        places.append((int(match[1]), int(match[2])))
    return tuple(dict.fromkeys(places))


def _check_query(text: str, query: str) -> None:
    wanted = visible(query.strip()).casefold()
    # its own letters must stand in the text, whichever tokens they are
    if all(each not in visible(text).casefold() for each in (wanted, NUMBERED.sub("", wanted))):
        find(read_words(text, [Token(text[start:end], (start, end)) for start, end in pieces(text)]), query)


def _counts(folder: Path) -> tuple[int, int] | None:
    """How many layers and heads a model declares; None: its configuration is of an unknown kind."""
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        layers, heads = (config[name] for name in COUNTS[config["model_type"]])
    except (OSError, ValueError, LookupError, TypeError):
        # refused where the model is loaded
        return None
    are_counts = all(type(each) is int and each > 0 for each in (layers, heads))
    return (layers, heads) if are_counts else None
