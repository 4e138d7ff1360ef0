"""Attention, the layer and its caches read no device: tensors of the meta device refuse to be read.

Maps have a test of their own, `maps/test_device_reads.py`.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.ops import sdpa, sdpa_arguments
from headwise.ops.call import checked
from tests.cases import DIFFERENT, MASKS, Shape, rules, tensors

SQUARE = Shape(Hk=2, Lq=7)


def on_meta(given: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t.to("meta"), given)


@pytest.mark.parametrize("rule", ["no rule", "all of them"])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_and_its_gradients_read_no_number(mask: str, rule: str) -> None:
    given = on_meta(rules(mask, rule, DIFFERENT))
    leaves = [t.to("meta").requires_grad_() for t in tensors()]
    out = hw.attention(*leaves, **given)
    found = torch.autograd.grad(out, leaves, torch.empty_like(out), create_graph=True)
    assert [t.shape for t in (out, *found)] == [(2, 6, 5, 13), *(t.shape for t in leaves)]


@pytest.mark.parametrize("mask", MASKS)
def test_the_way_to_torchs_kernels_reads_no_number(mask: str) -> None:
    # by itself it is not taken for tensors of the meta device
    leaves = [t.to("meta").requires_grad_() for t in tensors()]
    out = sdpa.run(checked(*leaves, **on_meta(rules(mask, "bias", DIFFERENT))))
    found = torch.autograd.grad(out, leaves, torch.empty_like(out))
    assert [t.shape for t in found] == [t.shape for t in leaves]


@pytest.mark.parametrize("rule", ["no rule", "bias shared by samples"])
@pytest.mark.parametrize("mask", MASKS)
def test_torchs_kernels_on_a_device_are_given_whole_rows_in_the_dtype_of_q(mask: str, rule: str) -> None:
    # of one entry for all keys they read past its end, and a wider bias they read as numbers of q's dtype
    given = on_meta(rules(mask, rule, DIFFERENT))
    if "attn_bias" in given:
        given["attn_bias"] = given["attn_bias"].half()
    call = checked(*(t.half().to("meta") for t in tensors()), **given)
    passed = sdpa_arguments.arguments(call).attn_mask
    if passed is None:
        assert given["mask"] is None
        return
    assert (passed.shape[-1], passed.stride(-1)) == (7, 1)
    assert passed.dtype is (torch.float16 if "attn_bias" in given else torch.bool)
    if "attn_bias" in given:
        wide = checked(*(t.half().to("meta") for t in tensors()), **{**given, "attn_bias": given["attn_bias"].float()})
        assert sdpa.why_not(wide) == (
            "torch's GPU kernels read attn_bias as torch.float16, as q is, and it is torch.float32"
        )


def test_what_torchs_kernels_are_given_takes_no_more_than_one_of_what_is_shared() -> None:
    shared = torch.randn(1, 1, 5, 1).expand(3, 2, 5, 1)
    whole = sdpa_arguments.with_whole_rows(shared, 7)
    assert torch.equal(whole, shared.expand(3, 2, 5, 7))
    assert whole.untyped_storage().nbytes() == 5 * 7 * 4
    rows = torch.randn(1, 1, 5, 7).expand(3, 2, 5, 7)
    assert sdpa_arguments.with_whole_rows(rows, 7) is rows
    turned = torch.randn(1, 1, 7, 5).mT
    assert sdpa_arguments.with_whole_rows(turned, 7).stride(-1) == 1


@pytest.mark.parametrize("mask", MASKS)
def test_additive_attention_reads_no_number(mask: str) -> None:
    shape = DIFFERENT._replace(Hk=6)
    q, k, v, weight = (t.to("meta").requires_grad_() for t in (*tensors(shape), torch.zeros(6, 11)))
    out = hw.additive_attention(q, k, v, weight, mask=on_meta(MASKS[mask](shape)))
    assert [t.shape for t in torch.autograd.grad(out, (q, weight), torch.empty_like(out))] == [q.shape, (6, 11)]


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {"dropout": 0.25},
    "grouped, rotary": {"num_kv_heads": 2, "position": hw.Rotary(), "qk_norm": "rms"},
    "alibi, sink": {"position": hw.Alibi(), "score": hw.DotProduct(softcap=3.0, sink="learned")},
    "relative": {"position": hw.RelativeBias(num_buckets=8, max_distance=16)},
    "additive": {"score": hw.Additive(9)},
}


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "lengths, one of them 0", "documents"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_gradients_read_no_number(name: str, mask: str) -> None:
    layer = hw.MultiHeadAttention(16, 4, device="meta", **LAYERS[name])
    x = torch.empty(2, 7, 16, device="meta", requires_grad=True)
    out = layer(x, mask=on_meta(MASKS[mask](SQUARE)))
    found = torch.autograd.grad(out, (x, *layer.parameters()), torch.empty_like(out))
    assert (out.shape, found[0].shape) == ((2, 7, 16), (2, 7, 16))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["growing", "static", "window"])
def test_a_cache_that_is_reordered_cut_and_emptied_reads_no_number(kind: str) -> None:
    layer = hw.MultiHeadAttention(16, 4, position=hw.Rotary(), device="meta").eval()
    sizes: dict[str, Any] = {"growing": {}, "static": {"length": 12, "batch": 2}, "window": {"window": 9}}[kind]
    cache = layer.cache(**sizes)
    layer(torch.empty(2, 5, 16, device="meta"), cache=cache, mask=hw.causal())
    cache.reorder(torch.zeros(2, dtype=torch.int64, device="meta"))
    cache.crop(3)
    layer(torch.empty(2, 1, 16, device="meta"), cache=cache, mask=hw.causal())
    assert cache.seen == 4
    cache.reset()
    assert cache.seen == 0


def test_a_memory_of_cross_attention_reads_no_number() -> None:
    layer = hw.MultiHeadAttention(16, 4, device="meta").eval()
    keep = torch.empty(2, 7, dtype=torch.bool, device="meta")
    memory = layer.memory(torch.empty(2, 7, 16, device="meta"), mask=hw.keys(keep))
    assert layer(torch.empty(2, 5, 16, device="meta"), memory).shape == (2, 5, 16)
