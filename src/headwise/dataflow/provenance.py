"""Provenance: the token and feature that each entry of a tensor comes from; of a score, its query and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LOST", "Marks", "numbered", "own_of", "place_of", "sample_of", "source_of", "token", "tokens"]

# a token is said as one number: where it comes from, its sample, its place; no call has as many of them
SOURCE, SAMPLE = 10**12, 10**6


@dataclass(frozen=True)
class Marks:
    """kind "token": arrays t (token) and f (feature); "pair": x and y (two tokens) and h (head); "lost": it depends on
    the inputs, but how is not known. Each array has the shape of the tensor, -1 where it is not one token.
    """

    kind: str
    arrays: Mapping[str, Tensor]

    def through(self, change: Callable[[Tensor], Tensor]) -> Marks:
        """The marks of a tensor whose entries went elsewhere."""
        return Marks(self.kind, {name: change(each) for name, each in self.arrays.items()})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(next(iter(self.arrays.values())).shape)


LOST = Marks("lost", {})


def token(source: int, sample: Tensor, place: Tensor) -> Tensor:
    """Numbers of tokens."""
    return source * SOURCE + sample * SAMPLE + place


def source_of(t: Tensor) -> Tensor:
    """Which argument tokens come from; -1 where there is none."""
    return torch.where(t < 0, t, t // SOURCE)


def sample_of(t: Tensor) -> Tensor:
    """Which sample tokens belong to."""
    return torch.where(t < 0, t, t % SOURCE // SAMPLE)


def place_of(t: Tensor) -> Tensor:
    """Which place in its sample a token has."""
    return torch.where(t < 0, t, t % SAMPLE)


def own_of(t: Tensor) -> Tensor:
    """Sample and place of tokens together, whichever argument they come from; -1 where there is none."""
    return torch.where(t < 0, -1, t % SOURCE)


def numbered(heads: Tensor, features: Tensor) -> Tensor:
    """A number from 0 for each pair of a head and a feature of it, in their order; -1 where one is not known."""
    pairs = heads * (features.max() + 1) + features if features.numel() else features
    numbers: Tensor = torch.unique(pairs, return_inverse=True)[1]
    return torch.where((heads < 0) | (features < 0), -1, numbers.reshape(pairs.shape))


def tokens(shape: tuple[int, ...], roles: tuple[str, ...], source: int) -> Marks:
    """The marks of an argument. roles: of each axis, "sample", "place" or "feature"."""
    codes = {role: torch.zeros(shape, dtype=torch.int64) for role in ("sample", "place", "feature")}
    for axis, role in enumerate(roles):
        line = torch.arange(shape[axis]).reshape([-1 if each == axis else 1 for each in range(len(shape))])
        codes[role] = codes[role] * shape[axis] + line
    return Marks("token", {"t": token(source, codes["sample"], codes["place"]), "f": codes["feature"]})
