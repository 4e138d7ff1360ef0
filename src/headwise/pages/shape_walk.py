"""Shape walk: the shapes through one attention layer, operation by operation, with the sizes it really had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ShapeChain", "LetteredShape", "Walk", "folded", "full_walk", "short_walk"]

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class LetteredShape:
    """A shape in letters and in numbers.

    >>> str(LetteredShape("B L D", (1, 16, 384)))
    '[B, L, D] = [1, 16, 384]'
    """

    letters: str
    sizes: Sizes

    def __str__(self) -> str:
        return f"[{', '.join(self.letters.split())}] = {list(self.sizes)}"


@dataclass(frozen=True)
class ShapeChain:
    """What happens to one tensor: its name, its first shape, then each operation and the shape it gives."""

    name: str
    first: LetteredShape
    steps: tuple[tuple[str, LetteredShape], ...]


Walk = tuple[ShapeChain, ...]


def full_walk(projections: Sequence[tuple[str, Sizes, Sizes]], heads: Sizes) -> Walk:
    """The walk through a layer in self-attention.

    projections: those of queries, keys, values and outputs: the name, what went in, what came out. heads: the shape of
    q after the split, (B, H, L, d).
    """
    scores = (*heads[:3], heads[2])
    split = [
        ShapeChain(
            letter,
            LetteredShape("B L D", into),
            ((name, LetteredShape("B L H*d", out)), ("split", LetteredShape("B H L d", heads))),
        )
        for letter, (name, into, out) in zip("qkv", projections[:3], strict=True)
    ]
    last, joined, out = projections[3]
    return (
        *split,
        ShapeChain(
            "q, k",
            LetteredShape("B H L d", heads),
            (("q kᵀ / √d", LetteredShape("B H L L", scores)), ("softmax", LetteredShape("B H L L", scores))),
        ),
        ShapeChain(
            "weights",
            LetteredShape("B H L L", scores),
            (
                ("weights v", LetteredShape("B H L d", heads)),
                ("join", LetteredShape("B L H*d", joined)),
                (last, LetteredShape("B L D", out)),
            ),
        ),
    )


def short_walk(hidden: Sizes, weights: Sizes) -> Walk:
    """The walk of a layer whose projections are not known: its input and its weights."""
    letters = "B L D" if len(hidden) == 3 else "B L"
    return (ShapeChain("x", LetteredShape(letters, hidden), (("softmax(q kᵀ)", LetteredShape("B H L L", weights)),)),)


def folded(chain: ShapeChain, width: int) -> list[str]:
    """The chain as lines of at most `width` characters, broken only before an arrow.

    >>> shape = LetteredShape("B D", (1, 6))
    >>> folded(ShapeChain("q", shape, (("relu", shape),)), 30)
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
