"""Tiles of two by two, so that a map of a few pairs has many strips."""

from collections.abc import Iterator

import pytest
from torch.nn.attention import flex_attention

from headwise.ops import blockwise, flex, strips, workspace


@pytest.fixture(scope="class")
def tiny_tiles() -> Iterator[None]:
    sizes = ((strips, "BLOCK", 2), (strips, "ROWS", 4), (blockwise, "BYTES", 64), (workspace, "BLOCK", 2))
    with pytest.MonkeyPatch.context() as patch:
        for module, name, size in sizes:
            patch.setattr(module, name, size)
        strips._of_no_mask.cache_clear()
        yield
    strips._of_no_mask.cache_clear()


@pytest.fixture(scope="class")
def uncompiled_flex() -> Iterator[None]:
    """FlexAttention as torch computes it without compiling, which gives an lse on the CPU too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "compiled", lambda function, **how: function)
        patch.setattr(flex, "gives_lse", lambda device: True)
        # torch refuses gradients on the CPU before it asks its own definition, which has them
        patch.setattr(flex, "has_backward", lambda device: True)
        patch.setattr(flex_attention, "_validate_device", lambda *tensors: None)
        # else torch compiles the call itself, anew for each function of a mask
        patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        yield
