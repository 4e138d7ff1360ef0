"""Draws every pattern of mask at 8 queries and 8 keys: python -m headwise.masks."""

from __future__ import annotations

import torch
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from torch import Tensor

from headwise.masks import Mask, allowed, causal, documents, keys, lengths, prefix, rule, window


def chessboard(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Every other key, starting with the query's own."""
    return (i + j) % 2 == 0


def patterns() -> list[Mask]:
    """One mask of each pattern, and the ways to join and move them."""
    ids = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    corner = torch.ones(8, 8, dtype=torch.bool).triu(3)
    return [
        causal(),
        window(keys=3),
        window(before=2, after=1),
        keys(ids[None] < 2),
        lengths([6]),
        documents(ids),
        prefix(3),
        allowed(corner),
        rule(chessboard),
        causal() & documents(ids),
        causal() | prefix(3),
        ~window(before=1, after=1),
        causal().at(torch.arange(4, 12), torch.arange(8)),
    ]


if __name__ == "__main__":
    panels = [Panel(pattern.draw(8, 8), title=Text(repr(pattern)), width=38) for pattern in patterns()]
    Console().print(Columns(panels))
