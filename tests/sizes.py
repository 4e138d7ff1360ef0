"""Sizes that all differ, so that a swapped axis cannot pass."""

SIZES = {"B": 2, "Hq": 6, "Hk": 3, "Lq": 5, "Lk": 7, "D": 11, "Dv": 13}
