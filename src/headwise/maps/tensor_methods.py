"""Tensor methods: what a tensor can do and a map cannot, and what to write in its place."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["MapAttributeError", "refuse_attribute"]

# what a map has for it without being made dense
INSTEAD = {
    "argmax": ", or topk(1)[1] for the key that weighs most",
    "max": ", or topk(1)[0] for the largest weight of a row, or max_logit() for the largest score of a head",
    "mean": ", or mean_heads() for the mean of the heads",
    "size": ", or shape",
    "softmax": ", though its rows are normalised already",
    "sort": ", or topk(k)",
    "sum": ", or received() for the sums of the columns",
}


class MapAttributeError(ArgumentError, AttributeError):
    """A map was asked for what only a tensor has."""


def refuse_attribute(owner: object, name: str) -> NoReturn:
    """Raise for an attribute that is not there; for one of a tensor, with what to write in its place.

    >>> refuse_attribute(object(), "mean")
    Traceback (most recent call last):
    headwise.maps.tensor_methods.MapAttributeError: object has no mean, since it is computed only where it is indexed: \
write dense().mean for that of all of it, or mean_heads() for the mean of the heads
    """
    kind = type(owner).__name__
    if name.startswith("_") or not hasattr(Tensor, name):
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")
    raise MapAttributeError(
        f"{kind} has no {name}, since it is computed only where it is indexed: write dense().{name} for that of all "
        f"of it{INSTEAD.get(name, '')}"
    )
