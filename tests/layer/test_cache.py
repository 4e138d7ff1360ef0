"""Caches: token by token, in chunks or at once, padded on either side, dropping keys, reordered, cropped and reset."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.errors import ArgumentError, CacheError, MaskError, ShapeError
from headwise.layer.cache_stores import Counter
from headwise.testing import assert_within_budget
from tests.layer.test_layer import CONFIGURATIONS, E, pair

B, L = 3, 11
KINDS: dict[str, Callable[[hw.MultiHeadAttention], hw.KVCache]] = {
    "growing": lambda layer: layer.cache(),
    "static": lambda layer: layer.cache(length=L + 3, batch=B),
    "window": lambda layer: layer.cache(window=L),
}
STEPS = ([1] * L, [4, 1, 6], [L], [5, 6])


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def decoded(layer: hw.MultiHeadAttention, x: Tensor, cache: hw.KVCache, steps: list[int], **given: Any) -> Tensor:
    start, out = 0, []
    for n in steps:
        out.append(layer(x[:, start : start + n], cache=cache, **given))
        start += n
    assert cache.seen == start
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_in_any_steps_it_gives_the_numbers_of_one_call(name: str, kind: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x = torch.randn(B, L, E)
    for mask in (hw.causal(), hw.window(keys=3)):
        whole, want = layer(x, mask=mask), exact(x.double(), mask=mask)
        for steps in STEPS:
            assert_within_budget(decoded(layer, x, KINDS[kind](layer), steps, mask=mask), want, whole)


@pytest.mark.parametrize(("window", "sinks"), [(4, 0), (3, 2), (5, 1), (1, 1)])
@pytest.mark.parametrize("name", ["plain", "grouped", "rotary", "alibi", "capped, with a sink"])
def test_a_window_cache_equals_the_mask_of_its_window_and_sinks(name: str, window: int, sinks: int) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x = torch.randn(B, L, E)
    mask = hw.causal() & (hw.window(keys=window) | hw.prefix(sinks))
    whole, want = layer(x, mask=mask), exact(x.double(), mask=mask)
    for steps in (*STEPS, [1, 8, 2]):
        got = decoded(layer, x, layer.cache(window=window, sinks=sinks), steps, mask=hw.causal())
        assert_within_budget(got, want, whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["plain", "rotary", "alibi", "additive"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("told", ["once", "every time"])
def test_padding_is_remembered(told: str, side: str, name: str, kind: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x, prompt = torch.randn(B, L, E), 6
    keep = torch.ones(B, L, dtype=torch.bool)
    for b, n in enumerate((0, 2, 4)):
        keep[b, slice(0, n) if side == "left" else slice(prompt - n, prompt)] = False
    mask = hw.causal() & hw.keys(keep)
    whole, want = layer(x, mask=mask), exact(x.double(), mask=mask)
    cache = KINDS[kind](layer)
    out = [layer(x[:, :prompt], mask=hw.causal() & hw.keys(keep[:, :prompt]), cache=cache)]
    for t in range(prompt, L):
        more = hw.causal() if told == "once" else hw.causal() & hw.keys(keep[:, : t + 1])
        out.append(layer(x[:, t : t + 1], mask=more, cache=cache))
    assert_within_budget(torch.cat(out, dim=1), want, whole)


@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("name", ["plain", "rotary", "alibi", "relative"])
def test_samples_of_their_own_lengths_decode_as_if_alone(name: str, kind: str) -> None:
    layer, _ = pair(**CONFIGURATIONS[name])
    lengths, prompt, more = torch.tensor([6, 4, 1]), 6, 4
    tokens = [torch.randn(int(n) + more, E) for n in lengths]
    padded = torch.stack([torch.cat([t[:n], torch.randn(prompt - n, E)]) for t, n in zip(tokens, lengths, strict=True)])
    cache = KINDS[kind](layer)
    layer(padded, mask=hw.causal() & hw.lengths(lengths), cache=cache)
    for step in range(more):
        new = torch.stack([t[n + step] for t, n in zip(tokens, lengths, strict=True)])[:, None]
        # told once, positions go on from there
        positions = {"positions": lengths[:, None]} if step == 0 else {}
        got = layer(new, mask=hw.causal(), cache=cache, **positions)
        for b, n in enumerate(lengths):
            alone = layer(tokens[b][: n + step + 1], mask=hw.causal())[-1]
            assert torch.allclose(got[b, 0], alone, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_reorder_picks_samples_with_their_padding(kind: str) -> None:
    layer, _ = pair(position=hw.Rotary())
    x, order = torch.randn(B, L, E), torch.tensor([2, 2, 0])
    keep = torch.ones(B, L, dtype=torch.bool)
    keep[2, :3] = False
    cache = KINDS[kind](layer)
    layer(x[:, :7], mask=hw.causal() & hw.keys(keep[:, :7]), cache=cache)
    cache.reorder(order)
    got = layer(x[:, 7:8], mask=hw.causal(), cache=cache)
    beams = torch.cat([x[order, :7], x[:, 7:8]], dim=1)
    want = layer(beams, mask=hw.causal() & hw.keys(keep[order, :8]))[:, 7:8]
    assert torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_crop_and_reset_forget(kind: str) -> None:
    layer, _ = pair(position=hw.Rotary())
    x = torch.randn(B, L, E)
    whole, cache = layer(x, mask=hw.causal()), KINDS[kind](layer)
    layer(torch.cat([x[:, :5], torch.randn(B, 3, E)], dim=1), mask=hw.causal(), cache=cache)
    cache.crop(5)
    assert torch.allclose(decoded_rest(layer, x, cache, 5), whole[:, 5:], atol=1e-5)
    cache.reset()
    assert cache.seen == 0
    assert torch.allclose(decoded_rest(layer, x, cache, 0), whole, atol=1e-5)


def decoded_rest(layer: hw.MultiHeadAttention, x: Tensor, cache: hw.KVCache, start: int) -> Tensor:
    return torch.cat([layer(x[:, t : t + 1], mask=hw.causal(), cache=cache) for t in range(start, L)], dim=1)


def test_a_bias_goes_to_the_keys_it_speaks_of() -> None:
    layer, _ = pair()
    x, bias = torch.randn(B, L, E), torch.randn(L, L)
    mask = hw.causal() & hw.window(keys=4)
    whole = layer(x, mask=mask, attn_bias=bias)
    for cache in (layer.cache(), layer.cache(length=L, batch=B), layer.cache(window=4)):
        out = [
            layer(x[:, t : t + 1], mask=mask, attn_bias=bias[t : t + 1, : t + 1], cache=cache) for t in range(L)
        ]  # fmt: skip
        assert torch.allclose(torch.cat(out, dim=1), whole, atol=1e-5)


def test_a_growing_cache_copies_each_token_a_bounded_number_of_times() -> None:
    layer, moved = hw.MultiHeadAttention(8, 2), 0
    cache = layer.cache()
    x, before = torch.randn(1, 1, 8), None
    for _ in range(300):
        layer(x, cache=cache)
        buffer = cache._store.rows["k"]
        moved += 0 if before is None or buffer is before else before.shape[2]
        before = buffer
    assert moved < 2 * 300


def test_tensors_of_inference_mode_may_be_appended_to_outside_it() -> None:
    layer, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 4, 8)
    for cache in (layer.cache(), layer.cache(length=9, batch=1), layer.cache(window=9)):
        with torch.inference_mode():
            layer(x[:, :2], mask=hw.causal(), cache=cache)
        got = layer(x[:, 2:], mask=hw.causal(), cache=cache)
        assert torch.allclose(got, layer(x, mask=hw.causal())[:, 2:], atol=1e-6)


def test_what_a_cache_cannot_do_is_refused_and_changes_nothing() -> None:
    layer, x = hw.MultiHeadAttention(E, 4), torch.randn(B, 5, E)
    cache = layer.cache(length=6, batch=B)
    layer(x, cache=cache)
    with pytest.raises(CacheError, match="length 6 has seen 5 tokens and cannot take 5 more: make it with length=10"):
        layer(x, cache=cache)
    with pytest.raises(ShapeError, match="for B=3 samples, but B=2 came"):
        layer(x[:2, :1], cache=cache)
    with pytest.raises(MaskError, match=r"\(B=3, Lk=6\), but came as \(3, 2\)"):
        layer(x[:, :1], mask=hw.keys(torch.ones(B, 2).bool()), cache=cache)
    with pytest.raises(ShapeError, match=r"attn_bias must be \(Lq=1, Lk=6\).*came as \(1, 5\)"):
        layer(x[:, :1], attn_bias=torch.zeros(1, 5), cache=cache)
    with pytest.raises(CacheError, match=r"the cache holds torch\.float32, but torch\.bfloat16 came"):
        layer.bfloat16()(x[:, :1].bfloat16(), cache=cache)
    layer.float()
    with pytest.raises(CacheError, match="a cache is for self-attention, but key= came"):
        layer(x[:, :1], x, cache=cache)
    with torch.enable_grad(), pytest.raises(CacheError, match=r"gradients are on: call inside torch\.no_grad"):
        layer(x[:, :1], cache=cache)
    with pytest.raises(CacheError, match=r"crop\(length\) must lie in 0..5, the tokens seen; got 6"):
        cache.crop(6)
    assert cache.seen == 5
    ring = layer.cache(window=3)
    layer(x, cache=ring)
    with pytest.raises(CacheError, match=r"a window of 3 keys has dropped tokens after seeing 5, so crop\(4\)"):
        ring.crop(4)
    with pytest.raises(CacheError, match="a window cache counts tokens, so it takes no positions="):
        layer(x[:, :1], cache=ring, positions=torch.tensor([9]))
    assert ring.seen == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"length": 4}, "needs length= and batch=, but got length=4 and batch=None"),
        ({"length": 4, "batch": 2, "window": 3}, "length=4 and window=3 are two kinds of cache"),
        ({"sinks": 2}, "sinks=2 are what a window keeps besides"),
        ({"window": 0}, "window must be 1 or more; got window=0"),
        ({"length": 0, "batch": 2}, "length must be 1 or more; got length=0"),
    ],
)
def test_a_cache_that_cannot_be_made_is_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        hw.MultiHeadAttention(E, 4).cache(**given)


def test_a_refused_first_call_leaves_the_cache_empty() -> None:
    layer = hw.MultiHeadAttention(8, 2)
    cache = layer.cache()
    with pytest.raises(MaskError, match=r"\(B=2, Lk=3\), but came as \(2, 9\)"):
        layer(torch.randn(2, 3, 8), mask=hw.keys(torch.ones(2, 9).bool()), cache=cache)
    assert layer(torch.randn(3, 3, 8), cache=cache).shape == (3, 3, 8)
    additive = hw.MultiHeadAttention(8, 2, score=hw.Additive(4))
    cache = additive.cache()
    with pytest.raises(ArgumentError, match="attn_bias adds to dot products"):
        additive(torch.randn(2, 3, 8), attn_bias=torch.zeros(3, 3), cache=cache)
    assert cache.seen == 0


def test_a_length_of_each_query_is_not_remembered_as_padding() -> None:
    layer, x, n = hw.MultiHeadAttention(8, 2), torch.randn(1, 3, 8), torch.tensor([[1, 1, 3]])
    whole = layer(x, mask=hw.lengths(n))
    for cache in (layer.cache(), layer.cache(length=4, batch=1), layer.cache(window=5)):
        steps = [layer(x[:, t : t + 1], mask=hw.lengths(n[:, t : t + 1]), cache=cache) for t in range(3)]
        assert torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-6)


def test_a_static_cache_takes_masks_and_biases_of_all_its_slots() -> None:
    layer, x = hw.MultiHeadAttention(8, 2), torch.randn(2, 6, 8)
    bias, keep = torch.randn(6, 9), torch.ones(2, 9, dtype=torch.bool)
    keep[0, 1] = False
    whole = layer(x, mask=hw.causal() & hw.keys(keep[:, :6]), attn_bias=bias[:, :6])
    cache, out = layer.cache(length=9, batch=2), []
    for t in range(6):
        call = {"mask": hw.causal() & hw.keys(keep), "attn_bias": bias[t : t + 1]}
        out.append(layer(x[:, t : t + 1], cache=cache, **call))
    assert torch.allclose(torch.cat(out, dim=1), whole, atol=1e-6)


SMALL: dict[str, Callable[[hw.MultiHeadAttention], hw.KVCache]] = {
    "growing": lambda attn: attn.cache(),
    "static": lambda attn: attn.cache(length=12, batch=2),
    "window": lambda attn: attn.cache(window=4, sinks=1),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", SMALL)
def test_steps_read_no_number_from_the_device(kind: str, padded: bool) -> None:
    # a tensor of the meta device has none, and refuses to be read
    attn = hw.MultiHeadAttention(16, 4, num_kv_heads=2, position=hw.Rotary(), device="meta").eval()
    cache, seen = SMALL[kind](attn), 0
    for steps in (3, 1, 1):
        seen += steps
        keep = hw.keys(torch.empty(2, seen, dtype=torch.bool, device="meta"))
        mask = hw.causal() & keep if padded else hw.causal()
        out = attn(torch.empty(2, steps, 16, device="meta"), mask=mask, cache=cache)
        assert (out.shape, cache.seen) == ((2, steps, 16), seen)


def test_a_counter_knows_what_others_have_counted() -> None:
    counter = Counter(torch.device("cpu"))
    counter.add(3)
    assert counter.number == 3
    # as compiled steps do
    with torch.inference_mode():
        counter.tensor += 4
    assert counter.number == 7
    for again in (copy.deepcopy(counter), pickle.loads(pickle.dumps(counter))):
        counter.add(1)
        for _ in range(9):
            again.tensor += 1
        assert (again.number, int(again.tensor)) == (16, 16)
    counter.move(2)
    assert (counter.number, int(counter.tensor)) == (2, 2)


def test_compiled_and_plain_steps_count_together() -> None:
    attn = hw.MultiHeadAttention(16, 4).eval()
    x = torch.randn(2, 9, 16)
    cache = attn.cache(length=9, batch=2)
    torch.compiler.reset()
    compiled = torch.compile(attn, fullgraph=True, backend="aot_eager")
    found = []
    for t in range(9):
        run = compiled if t in (2, 3, 4, 7) else attn
        found.append(run(x[:, t : t + 1], mask=hw.causal(), cache=cache))
        assert cache.seen == t + 1
    torch.testing.assert_close(torch.cat(found, dim=1), attn(x, mask=hw.causal()))
