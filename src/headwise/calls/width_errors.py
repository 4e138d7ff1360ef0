"""Width errors: which width torch's errors say that they needed."""

from __future__ import annotations

import re

__all__ = ["CONVOLUTION", "told_widths"]

LINEAR = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
PRODUCT = re.compile(r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)")
NORM = re.compile(r"normalized_shape=\[(\d+)\].*got input of size\s*\[(?:\d+, )*(\d+)\]", re.DOTALL)
CONVOLUTION = re.compile(r"to have (\d+) channels, but got (\d+) channels|running_mean should contain")
STATISTICS = re.compile(r"running_mean should contain (\d+) elements not (\d+)")


def told_widths(text: str) -> tuple[int, int] | None:
    """The size of an axis that came, and the one that was needed."""
    if found := LINEAR.search(text):
        return int(found[2]), int(found[3])
    if found := STATISTICS.search(text):
        return int(found[1]), int(found[2])
    if found := CONVOLUTION.search(text):
        return int(found[2]), int(found[1])
    if found := NORM.search(text):
        return int(found[2]), int(found[1])
    if found := PRODUCT.search(text):
        return int(found[2]), int(found[1])
    return None
