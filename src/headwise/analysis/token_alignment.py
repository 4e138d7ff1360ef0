"""Token alignment: which places of two runs hold the same token, where their tokens differ."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["Alignment", "aligned", "in_place"]


class Alignment(NamedTuple):
    """The places of one sample that belong together: first and second, each (n,) ascending, of two lengths."""

    first: Tensor
    second: Tensor
    lengths: tuple[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether every place of both has one in the other."""
        return self.first.numel() == self.lengths[0] == self.lengths[1]


def in_place(first: int, second: int) -> Alignment:
    """Each place with that of its own number; ArgumentError where the lengths differ."""
    if first != second:
        raise ArgumentError(
            f"runs of {first} and {second} tokens need to know which belong together: give tokens=(those of the first "
            "run, those of the second)"
        )
    return Alignment(torch.arange(first), torch.arange(first), (first, first))


def aligned(first: list[Any], second: list[Any]) -> Alignment:
    """The tokens that both have, in the order of both, by the longest runs that they share; None is no token.

    >>> aligned(["the", "cat", "sat"], ["the", "old", "cat", "sat"]).second
    tensor([0, 2, 3])
    """
    # padding is a token of its own on either side, so that it is never matched
    texts = [
        [token if token is not None else (side, n) for n, token in enumerate(tokens)]
                for side, tokens in enumerate((first, second))]  # fmt: skip
    blocks = SequenceMatcher(a=texts[0], b=texts[1], autojunk=False).get_matching_blocks()
    places = [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
    both = torch.tensor(places, dtype=torch.long).reshape(-1, 2)
    return Alignment(both[:, 0], both[:, 1], (len(first), len(second)))
