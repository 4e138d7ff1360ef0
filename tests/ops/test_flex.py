"""FlexAttention gives the numbers of the definition, uncompiled for every law, and compiled once for a structure."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import headwise as hw
from tests.contract import GradientLaws

HALVES_AND_SINGLES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.usefixtures("uncompiled_flex")
class TestFlexUncompiled(GradientLaws):
    refused_shapes: ClassVar[frozenset[str]] = frozenset({"no sample", "no query"})
    dtypes: ClassVar[tuple[torch.dtype, ...]] = HALVES_AND_SINGLES

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="flex", **given)
