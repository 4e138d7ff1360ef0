"""Page: every head of one or more maps, as one file that opens anywhere, as figures, and as a picture in a notebook."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise import __version__
from headwise.errors import ArgumentError
from headwise.pages.carrying import Carried, Map, bytes_needed, carry, fitting_block
from headwise.pages.colours import bright, deep
from headwise.pages.document import as_base64, as_json, document, shell_bytes
from headwise.pages.files import MAX_MB
from headwise.wording import LANGUAGES, refusal
from headwise.written import write_whole

if TYPE_CHECKING:
    from headwise.pages.notebook import Frame

__all__ = ["Layer", "Page", "Side"]

# every row is carried exactly where all of them take no more bytes than this
EXACT_BYTES = 75_000
# a token is shown up to so many characters
LONGEST_TOKEN = 200


@dataclass(frozen=True)
class Side:
    """The tokens of one sequence: their texts, and which word each belongs to; None: words are not known."""

    tokens: tuple[str, ...]
    words: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """One map and its name; queries, keys: which of the page's sides its rows and columns are."""

    name: str
    made: Map
    queries: int
    keys: int


@dataclass(frozen=True, eq=False)
class Page:
    """Maps as a person looks at them: `save` writes the page, `plot` draws a figure, a notebook shows a picture.

    title: what was run, text: on what. sample: which of a batch is shown. chosen: the queries whose rows are carried
    as exact numbers; where there are few, all are. opening: the layer, head and token that the page opens
    at. links, notes: what it says of them, as `Look` found it. steps: a computation to show step by step, see
    docs/steps.md; None: the worked example. A page without layers shows its steps alone.
    """

    title: str
    layers: tuple[Layer, ...]
    sides: tuple[Side, ...]
    text: str = ""
    sample: int = 0
    chosen: tuple[int, ...] | None = None
    opening: Mapping[str, int | str] = field(default_factory=dict)
    links: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    steps: Mapping[str, Any] | None = None
    lang: str = "en"

    def __post_init__(self) -> None:
        if self.lang not in LANGUAGES:
            raise refusal("refuse.language", given=self.lang, languages=", ".join(LANGUAGES))
        if not self.layers and self.steps is None:
            raise ArgumentError("a page must show maps or steps, but has neither: give layers, or steps")
        least = min((layer.made.shape[0] for layer in self.layers), default=1)
        if not 0 <= self.sample < least:
            raise ArgumentError(
                f"sample must lie in 0..{least - 1}, since the maps have {least} samples; got {self.sample}"
            )

    def html(self, *, max_mb: float = MAX_MB) -> str:
        """The whole page, of at most so many million bytes: long maps are pooled until they fit."""
        from headwise.pages.steps import worked_example
        from headwise.wording import english_page

        chosen = self._chosen()
        block = self._block(max_mb, chosen)
        carried = [carry(layer.made, sample=self.sample, block=block, exact=chosen) for layer in self.layers]
        rest = {name: text for n, c in enumerate(carried) for name, text in _blocks(n, c).items()}
        # the overview, which is seen first, needs the thumbs, or the maps that are no larger
        first = {
            name: rest.pop(name) if c.thumbs is None else as_base64(c.thumbs)
            for n, c in enumerate(carried)
            for name in ([f"codes-{n}"] if c.thumbs is None else [f"thumbs-{n}"])
        }
        header = self.to_dict() | {
            "layers": [_described(layer, c) for layer, c in zip(self.layers, carried, strict=True)],
            "steps": self.steps if self.steps is not None else worked_example(),
            "colours": {"light": scale_bytes(deep()), "dark": scale_bytes(bright())},
        }
        keys = tuple(key for key in english_page.PAGE if key.startswith("page."))
        words = {lang: {key: table[key] for key in keys} for lang, table in LANGUAGES.items()}
        return document(lang=self.lang, title=self.title, header=header, words=words, first=first, rest=rest)

    def save(self, path: str | os.PathLike[str], *, force: bool = False, max_mb: float = MAX_MB) -> Path:
        """Write the page, whole or not at all; a file that exists is kept unless `force`. The file."""
        file, text = Path(path), self.html(max_mb=max_mb)

        def fill(unfinished: Path) -> None:
            unfinished.write_text(text, encoding="utf-8")

        write_whole(file, fill, force=force)
        return file

    def plot(self, *, layer: int = 0, head: int | None = None, scale: str = "linear", ax: Any = None) -> Any:
        """One head as a heat map on matplotlib's `ax`, None: on axes of its own; those axes.

        head: None is the mean of all heads. scale: "linear" or "log", how weights become colours.
        """
        from headwise.pages.figures import draw_head

        return draw_head(self, layer=layer, head=head, scale=scale, ax=ax)

    def plot_all(self, *, scale: str = "log") -> Any:
        """Every head of every layer as a small map: a matplotlib Figure."""
        from headwise.pages.figures import draw_all

        return draw_all(self, scale=scale)

    def of_sample(self, sample: int) -> Page:
        """The same page of another sample of the batch, without what was said of the first."""
        return dataclasses.replace(self, sample=sample, links=(), notes=())

    def show(self, *, height: int = 720, max_mb: float = MAX_MB) -> Frame:
        """The page itself in a notebook, as a frame so many pixels high."""
        from headwise.pages.notebook import Frame

        return Frame(self.html(max_mb=max_mb), height)

    def to_dict(self) -> dict[str, Any]:
        """What the page says of itself, without numbers of weights: {"schema": 1, ...}."""
        return {
            "schema": 1,
            "headwise": __version__,
            "lang": self.lang,
            "title": self.title,
            "text": self.text,
            "sample": self.sample,
            "samples": self.layers[0].made.shape[0] if self.layers else 1,
            "sides": [
                {"tokens": [_short(token) for token in side.tokens], "words": side.words and list(side.words)}
                for side in self.sides
            ],
            "layers": [
                {"name": layer.name, "heads": layer.made.shape[1], "queries": layer.queries, "keys": layer.keys}
                for layer in self.layers
            ],
            "opening": dict(self.opening),
            "links": [dict(link) for link in self.links],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        heads = sum(layer.made.shape[1] for layer in self.layers)
        return f"Page({self.title!r}, {len(self.layers)} layers, {heads} heads)"

    def _repr_html_(self) -> str:
        from headwise.pages.notebook import picture

        return picture(self)

    def _chosen(self) -> tuple[int, ...]:
        """The queries whose rows are carried exactly."""
        sizes = [layer.made.shape for layer in self.layers]
        if 4 * sum(math.prod(size[1:]) for size in sizes) <= EXACT_BYTES:
            return tuple(range(max((size[2] for size in sizes), default=0)))
        return self.chosen if self.chosen is not None else ()

    def _block(self, max_mb: float, chosen: Sequence[int]) -> int:
        """How many tokens, each way, one byte has to stand for."""
        if not max_mb > 0:
            raise ArgumentError(f"max_mb must be more than 0, since a page has bytes; got {max_mb}")
        shapes = [tuple(layer.made.shape) for layer in self.layers]
        if not shapes:
            return 1
        spoken = 2 * len(as_json(self.to_dict()).encode()) + sum(len(as_json(t).encode()) for t in LANGUAGES.values())
        rows = sum(4 * H * Lk * sum(row < Lq for row in chosen) for _, H, Lq, Lk in shapes)
        fixed = shell_bytes() + spoken + 400 * len(shapes) + 20_000 + math.ceil(rows * 4 / 3)
        block = fitting_block(shapes, int(max_mb * 1e6) - fixed)
        if block is None:
            coarsest = -(-max(max(shape[2:]) for shape in shapes) // 32)
            least = math.ceil((fixed + bytes_needed(shapes, coarsest)) / 1e5) / 10
            raise refusal("refuse.page_too_large", limit=f"{max_mb:g}", least=f"{least:g}", layers=len(shapes))
        return block


def _blocks(n: int, carried: Carried) -> dict[str, str]:
    """The data of layer n by the ids of their blocks."""
    blocks = {
        f"codes-{n}": as_base64(carried.codes),
        f"entropy-{n}": as_base64(carried.entropy),
        f"received-{n}": as_base64(carried.received),
    }
    if carried.exact:
        blocks[f"exact-{n}"] = as_base64(torch.stack(list(carried.exact.values())))
    return blocks


def scale_bytes(scale: Sequence[tuple[int, int, int]]) -> str:
    """A scale of colours as base64, three bytes a colour."""
    return as_base64(torch.tensor(scale, dtype=torch.uint8))


def _described(layer: Layer, carried: Carried) -> dict[str, Any]:
    """What the header says of a layer."""
    return {
        "name": layer.name,
        "heads": layer.made.shape[1],
        "queries": layer.queries,
        "keys": layer.keys,
        "lengths": list(carried.lengths),
        "block": list(carried.block),
        "size": list(carried.codes.shape[1:]),
        "thumb": list((carried.thumbs if carried.thumbs is not None else carried.codes).shape[1:]),
        "exact": list(carried.exact),
        "distance": [value if math.isfinite(value) else None for value in carried.distance.tolist()],
        "causal": carried.is_causal,
        "hidden": carried.hidden,
        "empty": carried.empty,
        "nan": carried.nan,
    }


def _short(token: str) -> str:
    return token if len(token) <= LONGEST_TOKEN else token[: LONGEST_TOKEN - 1] + "…"
