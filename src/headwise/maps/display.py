"""Display: maps as a figure, and as a picture in a notebook."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import Any

from headwise.errors import AttentionError

__all__ = ["Drawn", "page_of", "picture_of"]


class Drawn:
    """What a map is for matplotlib and for a notebook."""

    def plot(
        self,
        *,
        view: str = "map",
        head: int | None = None,
        token: int | None = None,
        sample: int = 0,
        tokens: Sequence[str] | None = None,
        scale: str = "linear",
        ax: Any = None,
    ) -> Any:
        """The map as a figure on matplotlib's `ax`, None: on axes of its own; those axes.

        view: "map", a heat map; "heads", lines between tokens; "row", what one token looks at; "entropy" of each query;
        or "received", the weight that each key gets. head: None is the mean of all, and all of them as lines. token:
        that of the row, 0 where it is None; of lines, None: every one. tokens: the texts of queries and keys, None:
        their numbers. scale: of a map or a row, "linear" or "log". A figure of its own is `.figure` of the axes:
        `m.plot().figure.savefig(...)`.
        """
        page = page_of(self, tokens).of_sample(sample)
        return page.plot(view=view, head=head, token=token, scale=scale, ax=ax)

    def _repr_html_(self) -> str:
        return picture_of(self)


def picture_of(maps: object) -> str:
    """The picture for a notebook; where there can be none, as of a map that is stale, what `repr` says."""
    try:
        picture: str = page_of(maps)._repr_html_()
    except AttentionError:
        return f"<pre>{html.escape(repr(maps))}</pre>"
    return picture


def page_of(maps: object, tokens: Sequence[str] | None = None) -> Any:
    """The page of maps, made by the public `look`.

    Drawing lies to the right of maps on the arrow, so it is reached as anybody outside reaches it: by the package's
    table of public names, which points everywhere.
    """
    package: Any = sys.modules[__name__.partition(".")[0]]
    return package.look(maps, tokens=tokens)
