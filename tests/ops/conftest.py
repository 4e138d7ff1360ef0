"""Tiles of two by two, so that a map of a few pairs has many strips."""

from collections.abc import Iterator

import pytest

from headwise.ops import blockwise, strips, workspace


@pytest.fixture(scope="class")
def tiny_tiles() -> Iterator[None]:
    sizes = ((strips, "BLOCK", 2), (strips, "ROWS", 4), (blockwise, "SCORES", 16), (workspace, "BLOCK", 2))
    with pytest.MonkeyPatch.context() as patch:
        for module, name, size in sizes:
            patch.setattr(module, name, size)
        strips._of_no_mask.cache_clear()
        yield
    strips._of_no_mask.cache_clear()
