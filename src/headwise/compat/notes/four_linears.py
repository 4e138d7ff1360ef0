"""FourLinears: attention over four linear layers that bear the names of a note."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from headwise.compat.inputs import check_sequence, count
from headwise.compat.notes.table import Note
from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.ops import attention

__all__ = ["FourLinears"]


class FourLinears(nn.Module):
    """Four linear layers width -> width with the names of a note's row, made and initialised as torch does.

    num_heads divides width. `attend` runs them and attention between them.
    """

    def __init__(self, note: Note, width: int, num_heads: int) -> None:
        super().__init__()
        of_width, of_heads = note.takes[:2]
        if count(of_width, width) % count(of_heads, num_heads):
            raise ArgumentError(
                f"{of_heads}={num_heads} must divide {of_width}={width} so that heads are equally wide: change one of "
                "them"
            )
        self._note, self._heads, self._width = note, num_heads, width
        for name in note.projections:
            self.add_module(name, nn.Linear(width, width, bias=note.has_bias))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask | Tensor | None, dropout: float) -> Tensor:
        """q (B, L, D), k and v (B, S, D) -> (B, L, D); mask as in `headwise.attention`."""
        for name, x in zip(self._note.forward, (q, k, v), strict=False):
            check_sequence(name, x, self._width, called=self._note.takes[0])
        of_q, of_k, of_v, of_out = (cast(nn.Linear, getattr(self, name)) for name in self._note.projections)
        heads = [
            linear(x).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for linear, x in ((of_q, q), (of_k, k), (of_v, v))
        ]
        mixed = attention(*heads, mask=mask, dropout=dropout)
        out: Tensor = of_out(mixed.transpose(1, 2).flatten(2))
        return out
