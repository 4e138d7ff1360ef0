"""Axis order: inputs of a layer whose sizes fit only once batch and length are swapped."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import ShapeError

__all__ = ["check_axis_order"]


def check_axis_order(query: Tensor, key: Tensor | None, value: Tensor | None) -> None:
    """Raise ShapeError where query, key and value (B, L, E) do not fit, but would as (L, B, E).

    key None: the query; value None: the key. What fits neither way is left to the check of the heads.
    """
    key = query if key is None else key
    value = key if value is None else value
    if query.shape[0] == key.shape[0] and key.shape[:2] == value.shape[:2]:
        return
    if query.shape[1] == key.shape[1] == value.shape[1] and key.shape[0] == value.shape[0]:
        raise ShapeError(
            f"query has B={query.shape[0]}, but key has B={key.shape[0]}: give every tensor the same batch\n"
            + "".join(
                f"  {name}: (B, L, E) = {tuple(t.shape)}\n"
                for name, t in (("query", query), ("key", key), ("value", value))
            )
            + f"The batch comes first, (B, L, E): if the {query.shape[1]} that all three have second is the batch, "
            "swap the first two axes of each input with transpose(0, 1)"
        )
