"""Axis order: sizes of q, k and v that differ, with a hint where only the order of batch and length is wrong."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import ShapeError
from headwise.shapes import check_shapes

__all__ = ["refuse_sizes"]


def refuse_sizes(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ShapeError for q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv) whose sizes differ.

    The hint comes where they fit once B and L are swapped in all three. None: all fit.
    """
    try:
        check_shapes(q=(q, "B Hq Lq D"), k=(k, "B Hk Lk D"), v=(v, "B Hk Lk Dv"))
    except ShapeError as error:
        swapped = [t.transpose(0, 2) for t in (q, k, v)]
        if len({t.shape[0] for t in swapped}) > 1 or swapped[1].shape[:3] != swapped[2].shape[:3]:
            raise
        raise ShapeError(
            f"{error}\nThe batch comes first, (B, L, E): if the {q.shape[2]} that all three have second is the batch, "
            "swap the first two axes of each input with transpose(0, 1)"
        ) from None
