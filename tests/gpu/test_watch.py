"""On a GPU, a watched model keeps its output bit for bit, and the lse of each of torch's kernels is understood."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import headwise as hw
from headwise.ops.reference import attention_weights
from headwise.testing import assert_within_budget

KERNELS = {
    "flash": (SDPBackend.FLASH_ATTENTION, torch.bfloat16, ("no mask", "causal")),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, torch.float32, ("no mask", "causal", "bool", "bias")),
    "efficient in halves": (SDPBackend.EFFICIENT_ATTENTION, torch.float16, ("no mask", "causal", "bool")),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.bfloat16, ("no mask", "causal", "bool")),
    "math": (SDPBackend.MATH, torch.float32, ("no mask", "causal", "bool", "bias")),
}
CASES = [(kernel, mask) for kernel, (_, _, masks) in KERNELS.items() for mask in masks]
# not a multiple of any kernel's tile
B, H, L, D = 2, 4, 200, 64


class Attend(nn.Module):
    def __init__(self, kernel, **given):
        super().__init__()
        self.kernel, self.given = kernel, given

    def forward(self, q, k, v):
        with sdpa_kernel(self.kernel):
            return F.scaled_dot_product_attention(q, k, v, **self.given)


def given(mask):
    """What torch is given, and the same for the definition."""
    seen = torch.ones(L, L, dtype=torch.bool, device="cuda").tril(20)
    bias = torch.randn(B, H, L, L, device="cuda")
    return {
        "no mask": ({}, {}),
        "causal": ({"is_causal": True}, {"mask": hw.causal()}),
        "bool": ({"attn_mask": seen}, {"mask": seen}),
        "bias": ({"attn_mask": bias}, {"attn_bias": bias}),
    }[mask]


@pytest.mark.parametrize("wants_gradient", [False, True], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize(("kernel", "mask"), CASES)
def test_each_kernel_is_seen_with_the_lse_that_it_leaves(kernel, mask, wants_gradient):
    backend, dtype, _ = KERNELS[kernel]
    options, meaning = given(mask)
    q, k, v = (torch.randn(B, H, L, D, device="cuda", dtype=dtype, requires_grad=wants_gradient) for _ in range(3))
    model = Attend(backend, **options)
    alone = model(q, k, v)
    with hw.watch(model) as seen:
        watched = model(q, k, v)
    assert torch.equal(alone, watched)
    assert dict(seen.unseen) == {}
    m = seen[""]
    exact = attention_weights(q.detach().double(), k.detach().double(), **meaning)
    plain = attention_weights(q.detach(), k.detach(), **meaning)
    assert m.check() < 0.02
    # a kernel's lse is as exact as the products in its dtype are
    assert_within_budget(m.dense().to(dtype).cpu(), exact.cpu(), plain.to(dtype).cpu(), factor=4.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_torch_layers_keep_their_fast_path(dtype):
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False
    )
    encoder = encoder.eval().cuda().to(dtype)
    x = torch.randn(3, 40, 64, device="cuda", dtype=dtype)
    with torch.no_grad():
        alone = encoder(x)
        with hw.watch(encoder) as seen:
            watched = encoder(x)
    assert torch.equal(alone, watched)
    rows = torch.stack([m.dense().sum(-1) for _, m in seen.in_order()])
    torch.testing.assert_close(rows, torch.ones_like(rows))


def test_the_layer_is_seen_where_it_runs():
    attn = hw.MultiHeadAttention(256, 4, num_kv_heads=2, device="cuda")
    x = torch.randn(2, 50, 256, device="cuda")
    alone = attn(x, mask=hw.causal())
    with hw.watch(attn) as seen:
        watched = attn(x, mask=hw.causal())
    assert torch.equal(alone, watched)
    m = seen[""]
    assert m.device.type == "cuda"
    assert m.shape == (2, 4, 50, 50)
    torch.testing.assert_close(m.dense().sum(-1), torch.ones(2, 4, 50, device="cuda"))
