"""The walk of shapes through one attention layer, with the sizes it really had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Chain", "Shape", "Walk", "folded", "full_walk", "short_walk"]

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A shape in letters and in numbers.

    >>> str(Shape("B L D", (1, 16, 384)))
    '[B, L, D] = [1, 16, 384]'
    """

    letters: str
    sizes: Sizes

    def __str__(self) -> str:
        return f"[{', '.join(self.letters.split())}] = {list(self.sizes)}"


@dataclass(frozen=True)
class Chain:
    """What happens to one tensor: its name, its first shape, then each operation and the shape it gives."""

    name: str
    first: Shape
    steps: tuple[tuple[str, Shape], ...]


Walk = tuple[Chain, ...]


def full_walk(projections: Sequence[tuple[str, Sizes, Sizes]], heads: Sizes) -> Walk:
    """The walk through a layer in self-attention.

    projections: those of queries, keys, values and outputs: the name, what went in, what came out. heads: the shape of
    q after the split, (B, H, L, d).
    """
    scores = (*heads[:3], heads[2])
    split = [
        Chain(letter, Shape("B L D", given), ((name, Shape("B L H*d", out)), ("split", Shape("B H L d", heads))))
        for letter, (name, given, out) in zip("qkv", projections[:3], strict=True)
    ]
    last, joined, out = projections[3]
    return (
        *split,
        Chain(
            "q, k",
            Shape("B H L d", heads),
            (("q kᵀ / √d", Shape("B H L L", scores)), ("softmax", Shape("B H L L", scores))),
        ),
        Chain(
            "weights",
            Shape("B H L L", scores),
            (
                ("weights v", Shape("B H L d", heads)),
                ("join", Shape("B L H*d", joined)),
                (last, Shape("B L D", out)),
            ),
        ),
    )


def short_walk(hidden: Sizes, weights: Sizes) -> Walk:
    """What can be said of a layer whose projections are not known: what goes in and the weights it gives."""
    letters = "B L D" if len(hidden) == 3 else "B L"
    return (Chain("x", Shape(letters, hidden), (("softmax(q kᵀ)", Shape("B H L L", weights)),)),)


def folded(chain: Chain, width: int) -> list[str]:
    """The chain as lines of at most `width` characters, broken only before an arrow.

    >>> folded(Chain("q", Shape("B D", (1, 6)), (("relu", Shape("B D", (1, 6))),)), 30)
    ['[B, D] = [1, 6]', '→ relu → [B, D] = [1, 6]']
    """
    lines = [str(chain.first)]
    for operation, shape in chain.steps:
        piece = f"→ {operation} → {shape}"
        if len(lines[-1]) + 1 + len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines
