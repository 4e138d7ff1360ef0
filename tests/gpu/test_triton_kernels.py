"""On a GPU, the compiled Triton kernels hold to the laws that they hold to interpreted, and read watched maps."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from headwise.maps.device_summary import keep_summary
from headwise.ops.triton_kernels import additive, statistics
from tests.cases import Shape, rules
from tests.maps.oracle import inputs
from tests.ops.kernel_laws import AdditiveLaws, StatisticsLaws, additive_inputs

# more than one tile of the size that programs use, and none whole at the end
LONG = Shape(B=2, Hq=4, Hk=2, Lq=200, Lk=265, D=64, Dv=48)
LONG_MASKS = ["no mask", "causal", "window", "padding and causal", "documents", "dense, a head each"]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16, so that the small maps of the laws have several."""
    for module in (additive, statistics):
        monkeypatch.setattr(module, "BLOCK", 16)


@pytest.mark.usefixtures("small_tiles")
class TestStatistics(StatisticsLaws):
    device = "cuda"


@pytest.mark.usefixtures("small_tiles")
class TestAdditive(AdditiveLaws):
    device = "cuda"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", LONG_MASKS)
class TestLongMaps:
    def test_statistics(self, mask, dtype):
        TestStatistics().assert_exact(inputs(LONG, dtype, **rules(mask, "no rule", LONG)))

    def test_additive(self, mask, dtype):
        TestAdditive().assert_exact(additive_inputs(LONG, dtype, **rules(mask, "no rule", LONG)))


class Attend(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_kernels_read_a_watched_map_as_torchs_operations_do(dtype):
    q, k, v = (torch.randn(2, 4, 200, 64, device="cuda", dtype=dtype) for _ in range(3))
    found = []
    for is_kept in (False, True):
        model = Attend()
        with hw.watch(model) as seen:
            model(q, k, v)
        if is_kept:
            keep_summary(seen[""])
        found.append([seen[""].entropy(), seen[""].received(), seen[""].max_logit(), seen[""].mass()])
    for by_torch, by_kernels in zip(*found, strict=True):
        torch.testing.assert_close(by_kernels, by_torch)
