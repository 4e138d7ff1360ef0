"""Page: every head of one or more maps, as one file that opens anywhere, as figures, and as a picture in a notebook."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import __version__
from headwise.atomic_write import write_whole
from headwise.errors import ArgumentError
from headwise.pages.axis_tokens import AxisTokens
from headwise.pages.colours import bright, deep
from headwise.pages.document import document
from headwise.pages.files import MAX_MB, write_text
from headwise.pages.models import Progress, silent
from headwise.pages.number_tables import GeneratedToken, NumberTable, PatchedImage, tables_of
from headwise.wording import LANGUAGES, refusal
from headwise.wording.progress_bar import progress_bar

if TYPE_CHECKING:
    from headwise.analysis import HeadTable
    from headwise.pages.encode_maps import Map
    from headwise.pages.notebook import Frame
    from headwise.pages.page_data import Packed

__all__ = ["Layer", "Page"]

# a token is shown up to so many characters
LONGEST_TOKEN = 200


@dataclass(frozen=True, eq=False)
class Layer:
    """One map and its name; queries, keys: which of the page's sides its rows and columns are."""

    name: str
    map: Map
    queries: int
    keys: int


@dataclass(frozen=True, eq=False)
class Page:
    """Maps to show: `save` writes the page, `plot` draws a figure, a notebook shows a picture.

    title: what was run, text: on what. sample: that of a batch which is drawn, and which the page opens at. samples:
    those that it holds; None: as many as fit without being pooled. chosen: the queries whose rows are carried as exact
    numbers; where there are few, all are. opening: the layer, head and token that the page opens at. links, notes:
    what it says of them, as `Look` found it. has_all_links: False where neighbours and punctuation were left out.
    steps: a computation to show step by step, see docs/steps.md; None: the worked example. tables: numbers of all heads
    beside the maps, see `with_table`. generated: tokens that a model generated, whose queries the rows can be stepped
    through. picture: whose patches are the tokens, None: they are none. A page without layers shows its steps
    alone.
    """

    title: str
    layers: tuple[Layer, ...]
    sides: tuple[AxisTokens, ...]
    text: str = ""
    sample: int = 0
    samples: tuple[int, ...] | None = None
    chosen: tuple[int, ...] | None = None
    opening: Mapping[str, int | str] = field(default_factory=dict)
    links: tuple[Mapping[str, Any], ...] = ()
    has_all_links: bool = True
    notes: tuple[str, ...] = ()
    steps: Mapping[str, Any] | None = None
    tables: tuple[NumberTable, ...] = ()
    generated: tuple[GeneratedToken, ...] = ()
    picture: PatchedImage | None = None
    lang: str = "en"

    def __post_init__(self) -> None:
        if self.lang not in LANGUAGES:
            raise refusal("refuse.language", given=self.lang, languages=", ".join(LANGUAGES))
        if not self.layers and self.steps is None:
            raise ArgumentError("a page must show maps or steps, but has neither: give layers, or steps")
        least = min((layer.map.shape[0] for layer in self.layers), default=1)
        for sample in (self.sample, *(self.samples if self.samples is not None else ())):
            if not 0 <= sample < least:
                raise ArgumentError(
                    f"sample must lie in 0..{least - 1}, since the maps have {least} samples; got {sample}"
                )
        if self.samples is not None and self.sample not in self.samples:
            raise ArgumentError(f"a page opens at one of the samples it holds, {self.samples}; got {self.sample}")

    def html(self, *, max_mb: float = MAX_MB, progress: Progress | None = None) -> str:
        """The whole page, of at most so many million bytes: long maps are pooled until they fit.

        progress: is told of each layer.
        """
        if not isinstance(max_mb, int | float) or not max_mb > 0:
            raise ArgumentError(f"max_mb must be more than 0, since a page has bytes; got {max_mb!r}")
        data = self._packed(max_mb, progress if progress is not None else silent)
        header = self.to_dict() | {
            "carried": list(data.samples) if data is not None else [],
            "layers": list(data.layers) if data is not None else [],
            "steps": self._steps(),
            "colours": {"light": scale_bytes(deep()), "dark": scale_bytes(bright())},
        }
        first, rest = (data.first, data.rest) if data is not None else ({}, {})
        return document(lang=self.lang, title=self.title, header=header, words=self.words(), first=first, rest=rest)

    def words(self) -> dict[str, dict[str, str]]:
        """What its script may say: the sentence of each key, by language."""
        from headwise.wording import english_page

        keys = tuple(key for key in english_page.PAGE if key.startswith("page."))
        return {lang: {key: table[key] for key in keys} for lang, table in LANGUAGES.items()}

    def _packed(self, max_mb: float, tell: Progress) -> Packed | None:
        """The numbers of the maps; None of a page of steps alone, which is made without torch."""
        if not self.layers:
            return None
        from headwise.pages.page_data import packed

        return packed(self, max_mb, tell)

    def _steps(self) -> Mapping[str, Any]:
        if self.steps is not None:
            return self.steps
        from headwise.pages.steps import worked_example

        return worked_example()

    def save(
        self, path: str | os.PathLike[str], *, force: bool = False, max_mb: float = MAX_MB,
        progress: Progress | None = None,
    ) -> Path:  # fmt: skip
        """Write the page, whole or not at all; a file that exists is kept unless `force`. The file.

        progress: called for each layer; None: a bar on stderr, where that is a terminal. Of maps that ranks share every
        rank calls it, and the first of them writes.
        """
        file = Path(path)
        with self._telling(progress) as tell:
            text = self.html(max_mb=max_mb, progress=tell)
            self.write_once(file, lambda: write_whole(file, lambda part: write_text(text, part, tell), force=force))
        return file

    def write_once(self, file: Path, write: Callable[[], object]) -> None:
        """Call `write`, which writes a file; of maps that ranks share on the first of these, as all make the same."""
        if not self.layers:
            write()
            return
        from headwise.maps.shared_file import write_once

        write_once([layer.map for layer in self.layers], write, str(file))

    def plot(
        self, *, view: str = "map", layer: int = 0, head: int | None = None, token: int | None = None,
        scale: str = "linear", ax: Any = None,
    ) -> Any:  # fmt: skip
        """One view of a layer on matplotlib's `ax`, None: on axes of its own; those axes.

        view: "map", the heat map; "heads", lines between tokens; "row", what one token attends to; "entropy" of each
        query; or "received", the weight that each key gets. head: None is the mean of all heads, and all of them as
        lines. token: that of the row, None: the one that the page opens at; of lines, None: every one. scale: of a map
        or a row, "linear" or "log".
        """
        from headwise.pages.views import draw_view

        return draw_view(self, view, layer=layer, head=head, token=token, scale=scale, ax=ax)

    def plot_all(self, *, view: str = "overview", scale: str = "log", progress: Progress | None = None) -> Any:
        """Every head of every layer as a matplotlib Figure.

        view: "overview", a small map of each; "statistics", the mean entropy and distance of each in tables; "compare"
        or "effects", the tables that `with_table` put beside the maps.
        progress: called for each layer; None: a bar on stderr, where that is a terminal.
        """
        from headwise.pages.views import draw_view_of_all

        with self._telling(progress) as tell:
            return draw_view_of_all(self, view, scale=scale, tell=tell)

    def _telling(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        """The report of slow steps: the caller's function, or a bar on stderr where that is a terminal."""
        return progress_bar(self.lang) if progress is None else nullcontext(progress)

    def with_table(self, table: HeadTable, *, metric: str = "") -> Page:
        """The same page with the view Compare or Effects: of what `hw.compare` or `hw.head_effects` gave of its heads.

        metric: what the effects are changes of, as the page names it; "": it has no name.

        >>> import torch, headwise as hw
        >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
        >>> with hw.watch(attn) as seen:
        ...     _ = attn(x)
        >>> page = hw.look(seen).with_table(hw.head_effects(attn, x, lambda out: out.sum()), metric="the sum")
        >>> [table.key for table in page.tables]
        ['page.effects.measured', 'page.effects.estimated']
        """
        tables = tables_of(table, metric=metric)
        heads = tuple(layer.map.shape[1] for layer in self.layers)
        if table.heads != heads:
            raise ArgumentError(
                f"a table must be of the heads of the page, {list(heads)} in its layers, but is of {list(table.heads)}"
            )
        others = tuple(each for each in self.tables if each.view != tables[0].view)
        return dataclasses.replace(self, tables=(*others, *tables))

    def with_image(self, image: Any, *, patches: tuple[int, int]) -> Page:
        """The same page with a picture under its patches, whose tokens are the last ones, row by row.

        image: a Tensor (3, h, w) of 0..1, before it was normalised, or an image of pillow. patches: how many rows and
        columns. Tokens without names are named by row and column, again where another picture takes the place of one.

        >>> import torch, headwise as hw
        >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 7, 8)
        >>> with hw.watch(attn) as seen:
        ...     _ = attn(x)
        >>> page = hw.look(seen).with_image(torch.rand(3, 8, 12), patches=(2, 3))
        >>> page.sides[0].tokens[:3], page.picture.first
        (('[CLS]', '0,0', '0,1'), 1)
        """
        from headwise.pages.patched_image import image_under

        picture, sides = image_under(self.layers, self.sides, image, patches, self.picture)
        return dataclasses.replace(self, picture=picture, sides=sides, opening={**self.opening, "view": "row"})

    def of_sample(self, sample: int) -> Page:
        """The same page of another sample of the batch, without the notes on the first."""
        return dataclasses.replace(self, sample=sample, samples=None, links=(), has_all_links=True, notes=())

    def of_samples(self, samples: Sequence[int]) -> Page:
        """The same page that holds these samples of the batch and opens at the first of them."""
        if not samples:
            raise ArgumentError("a page must hold a sample at least, but none came: name one")
        kept = tuple(dict.fromkeys(samples))
        return dataclasses.replace(self, sample=samples[0], samples=kept, links=(), has_all_links=True)

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
            "samples": self.layers[0].map.shape[0] if self.layers else 1,
            "sides": [side.to_dict(LONGEST_TOKEN) for side in self.sides],
            "layers": [
                {"name": layer.name, "heads": layer.map.shape[1], "queries": layer.queries, "keys": layer.keys}
                for layer in self.layers
            ],
            "opening": dict(self.opening),
            "links": [dict(link) for link in self.links],
            "has_all_links": self.has_all_links,
            "tables": [table.to_dict() for table in self.tables],
            "generated": [token.to_dict() for token in self.generated],
            "picture": None if self.picture is None else self.picture.to_dict(),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        heads = sum(layer.map.shape[1] for layer in self.layers)
        return f"Page({self.title!r}, {len(self.layers)} layers, {heads} heads)"

    def _repr_html_(self) -> str:
        from headwise.pages.notebook import picture

        return picture(self)


def scale_bytes(scale: Sequence[tuple[int, int, int]]) -> str:
    """A scale of colours as base64, three bytes a colour."""
    return base64.b64encode(bytes(itertools.chain.from_iterable(scale))).decode("ascii")
