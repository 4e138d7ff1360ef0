"""On a GPU, the compiled Triton kernels hold to the laws that they hold to interpreted, and read watched maps."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from headwise.maps import device_summary, reductions
from headwise.ops import reference
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
def test_a_watched_map_is_read_by_the_kernels_as_by_torchs_operations(dtype, monkeypatch):
    q, k, v = (torch.randn(2, 4, 200, 64, device="cuda", dtype=dtype) for _ in range(3))
    found = []
    for is_taken in (False, True):
        if not is_taken:
            monkeypatch.setattr(device_summary, "is_taken", lambda call: False)
        else:
            monkeypatch.undo()
            monkeypatch.delattr(reductions, "summarize")
        model = Attend()
        with hw.watch(model) as seen:
            model(q, k, v)
        found.append([seen[""].entropy(), seen[""].received(), seen[""].max_logit(), seen[""].mass()])
    for by_torch, by_kernels in zip(*found, strict=True):
        torch.testing.assert_close(by_kernels, by_torch)


def test_additive_attention_takes_the_kernels_by_itself_and_little_memory():
    q, k, v = (torch.randn(1, 4, 4096, 32, device="cuda", requires_grad=True) for _ in range(3))
    weight = torch.randn(4, 32, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = hw.additive_attention(q, k, v, weight, mask=hw.causal())
    out.sum().backward()
    extra = torch.cuda.max_memory_allocated() - before
    assert q.grad.isfinite().all()
    # tanh(q + k) of all pairs takes 8 GiB
    assert extra <= 64 << 20, f"{extra / 2**20:.0f} MiB"
    first = [t[:, :, :100].detach() for t in (q, k, v)]
    torch.testing.assert_close(out[:, :, :100], reference.attention(*first, weight=weight, mask=hw.causal()))
