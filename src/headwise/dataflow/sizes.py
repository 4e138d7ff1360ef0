"""Sizes: the size of an axis in each probe run, and arithmetic over all runs."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Sizes", "divides", "is_one", "less", "over", "product", "times"]

# one number for each probe run
Sizes = tuple[int, ...]


def times(a: Sizes, b: Sizes) -> Sizes:
    """a · b in each run."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def over(a: Sizes, b: Sizes) -> Sizes:
    """a / b in each run; b must divide a."""
    return tuple(x // y for x, y in zip(a, b, strict=True))


def divides(a: Sizes, b: Sizes) -> bool:
    """Whether a divides b in every run."""
    return all(x > 0 and y % x == 0 for x, y in zip(a, b, strict=True))


def less(a: Sizes, b: Sizes) -> bool:
    """Whether a is less than b in every run."""
    return all(x < y for x, y in zip(a, b, strict=True))


def is_one(a: Sizes) -> bool:
    """Whether a is 1 in every run."""
    return all(x == 1 for x in a)


def product(many: Iterable[Sizes], runs: int) -> Sizes:
    """The product of sizes; 1 in each run where there are none."""
    out: Sizes = (1,) * runs
    for sizes in many:
        out = times(out, sizes)
    return out
