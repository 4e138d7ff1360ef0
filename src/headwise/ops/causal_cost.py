"""Causal cost: how many scores torch's fused kernel on the CPU computes under a causal mask."""

from __future__ import annotations

import math

# it takes so many rows at a time, by the length from which on it does, and skips keys in blocks of so many
ROWS, COLUMNS = ((768, 256), (192, 64), (0, 32)), 512


def causal_pairs(L: int) -> int:
    """Of L queries and as many keys, the pairs in the blocks of keys that the kernel does not skip."""
    rows = next(rows for least, rows in ROWS if L >= least)
    return sum(
        min(rows, L - start) * min(L, math.ceil(min(start + rows, L) / COLUMNS) * COLUMNS)
        for start in range(0, L, rows)
    )
