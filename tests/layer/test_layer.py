"""The layer itself: widths, specs, unbatched inputs, initialisation, agreement with nn.MultiheadAttention, refusals."""

from typing import Any

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError, AttentionError, MaskError, ShapeError
from headwise.testing import assert_path_invariant, assert_within_budget

E, KDIM, VDIM = 24, 10, 14
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_kv_heads": 2},
    "multi-query": {"num_kv_heads": 1},
    "widths": {"head_dim": 5, "v_head_dim": 3, "out_dim": 7},
    "no bias": {"bias": False},
    "capped, with a sink": {"score": hw.DotProduct(softcap=2.0, sink="learned")},
    "softmax off by one": {"score": hw.DotProduct(sink="zero")},
    "additive": {"score": hw.Additive(5), "num_kv_heads": 2},
    "rotary": {"position": hw.Rotary()},
    "rotary in pairs, in part": {"position": hw.Rotary(pairing="interleaved", dim=4)},
    "alibi": {"position": hw.Alibi()},
    "relative": {"position": hw.RelativeBias(num_buckets=8, max_distance=6)},
    "rms": {"qk_norm": "rms", "num_kv_heads": 2},
    "layer norm": {"qk_norm": "layer"},
    "l2": {"qk_norm": "l2", "score": hw.DotProduct(scale=4.0)},
}
MASKS = {
    "no mask": lambda B, L: None,
    "causal": lambda B, L: hw.causal(),
    "padding": lambda B, L: hw.lengths(torch.arange(L, L - B, -1)) & hw.causal(),
    "an empty row": lambda B, L: hw.causal() & ~hw.prefix(2),
}


def pair(**given: Any) -> tuple[hw.MultiHeadAttention, hw.MultiHeadAttention]:
    """A layer, with every parameter off its initial value, and the same in float64."""
    layer = hw.MultiHeadAttention(E, 4, **given)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    exact = hw.MultiHeadAttention(E, 4, dtype=torch.float64, **given)
    exact.load_state_dict(layer.state_dict())
    return layer, exact


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_training_eval_and_gradient_mode_change_nothing(name: str, mask: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x, given = torch.randn(3, 7, E), MASKS[mask](3, 7)
    assert_path_invariant(lambda m: m(x, mask=given), layer, exact(x.double(), mask=given), layer(x, mask=given))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_padded_equals_alone_and_unbatched_equals_batched(name: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x, lengths = torch.randn(3, 7, E), [7, 5, 2]
    padded = layer(x, mask=hw.lengths(lengths) & hw.causal())
    for b, n in enumerate(lengths):
        alone = layer(x[b, :n], mask=hw.causal())
        assert alone.shape == (n, layer.widths.out)
        assert_within_budget(padded[b, :n], exact(x[b, :n].double(), mask=hw.causal()), alone)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_parameter_gets_its_gradient(name: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x = torch.randn(3, 7, E)
    (layer(x, mask=hw.causal()).square().sum()).backward()
    (exact(x.double(), mask=hw.causal()).square().sum()).backward()
    wide = dict(exact.named_parameters())
    for key, parameter in layer.named_parameters():
        assert parameter.grad is not None, key
        want = wide[key].grad
        # softmax is blind to a shift of all scores, which is all that this bias does
        if key == "k_proj.bias" and "rotary" not in name and "norm" not in name and name not in BIAS_MATTERS:
            assert want.abs().max() < 1e-12
        else:
            assert want.abs().max() > 0
        assert torch.allclose(parameter.grad.double(), want, rtol=1e-3, atol=1e-3), key


# where a sink, a norm, a cap or tanh stands beside the keys, their bias is not a mere shift
BIAS_MATTERS = {"capped, with a sink", "softmax off by one", "additive", "rms", "l2"}


@pytest.mark.parametrize("name", ["plain", "grouped", "additive", "alibi", "relative", "rms"])
def test_cross_attention_reads_its_own_widths(name: str) -> None:
    layer, exact = pair(kdim=KDIM, vdim=VDIM, **CONFIGURATIONS[name])
    q, k, v = torch.randn(2, 5, E), torch.randn(2, 9, KDIM), torch.randn(2, 9, VDIM)
    memory = layer.memory(k, v, mask=hw.lengths([9, 4]))
    with_mask = layer(q, k, v, mask=hw.lengths([9, 4]))
    assert torch.equal(layer(q, memory), with_mask)
    wide = exact(q.double(), k.double(), v.double(), mask=hw.lengths([9, 4]))
    assert_within_budget(with_mask, wide, with_mask)
    assert (wide - with_mask.double()).abs().max() < 1e-4
    order = torch.tensor([1, 0, 1])
    assert torch.equal(layer(q[order], memory.reorder(order)), with_mask[order])


def test_key_alone_is_value_too_and_query_alone_is_both() -> None:
    layer, x = hw.MultiHeadAttention(E, 4, vdim=KDIM, kdim=KDIM), torch.randn(2, 5, E)
    source = torch.randn(2, 9, KDIM)
    assert torch.equal(layer(x, source), layer(x, source, source))
    layer = hw.MultiHeadAttention(E, 4)
    assert torch.equal(layer(x), layer(x, x, x))


def test_the_numbers_and_the_first_weights_are_those_of_nn_multiheadattention() -> None:
    theirs = nn.MultiheadAttention(E, 4, batch_first=True)
    ours = hw.MultiHeadAttention(E, 4)
    weights = theirs.in_proj_weight.detach().chunk(3)
    for projection, weight in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, strict=True):
        bound = (6 / (4 * E)) ** 0.5
        assert bound * 0.95 < projection.weight.abs().max() <= bound
        assert bound * 0.95 < weight.abs().max() <= bound
        assert projection.bias.abs().max() == 0
        with torch.no_grad():
            projection.weight.copy_(weight)
    assert ours.out_proj.bias.abs().max() == 0
    assert E**-0.5 * 0.95 < ours.out_proj.weight.abs().max() <= E**-0.5
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    x, source = torch.randn(2, 5, E), torch.randn(2, 7, E)
    blocked = torch.ones(5, 7).triu(3).bool()
    want = theirs(x, source, source, attn_mask=blocked, need_weights=True)[0]
    assert torch.allclose(ours(x, source, mask=~blocked), want, atol=1e-6)


def test_separate_widths_are_initialised_each_by_its_own() -> None:
    layer = hw.MultiHeadAttention(E, 4, kdim=KDIM, vdim=VDIM)
    for projection, width in ((layer.q_proj, E), (layer.k_proj, KDIM), (layer.v_proj, VDIM)):
        bound = (6 / (width + E)) ** 0.5
        assert bound * 0.9 < projection.weight.abs().max() <= bound


def test_positions_shift_rotary_and_causal_alike() -> None:
    layer, x = hw.MultiHeadAttention(E, 4, position=hw.Rotary()), torch.randn(2, 6, E)
    here = layer(x, mask=hw.causal())
    # only distances count, so that all tokens may move together, each sample by its own step
    there = layer(x, mask=hw.causal(), positions=torch.arange(6) + torch.tensor([[3], [50]]))
    assert torch.allclose(here, there, atol=1e-5)
    # and the order of the sequence is that of its positions
    order = torch.randperm(6)
    shuffled = layer(x[:, order], mask=hw.causal(), positions=order)
    assert torch.allclose(shuffled, here[:, order], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_small_integers_are_positions_too(dtype: torch.dtype) -> None:
    layer, x = hw.MultiHeadAttention(E, 4, position=hw.Rotary()), torch.randn(2, 6, E)
    want = layer(x, mask=hw.window(keys=3))
    assert torch.allclose(layer(x, mask=hw.window(keys=3), positions=torch.arange(6, dtype=dtype)), want, atol=1e-6)


def test_cross_attention_may_rotate_where_both_positions_are_given() -> None:
    layer, x, source = hw.MultiHeadAttention(E, 4, position=hw.Rotary()), torch.randn(2, 3, E), torch.randn(2, 6, E)
    with pytest.raises(ArgumentError, match=r"need those of the keys too: give positions=\(queries, keys\)"):
        layer(x, source)
    whole = layer(source, mask=hw.causal())
    last = layer(source[:, 3:], source, mask=hw.causal(), positions=(torch.arange(3, 6), torch.arange(6)))
    assert torch.allclose(last, whole[:, 3:], atol=1e-6)
    memory = layer.memory(source)
    again = layer(source[:, 3:], memory, mask=hw.causal(), positions=(torch.arange(3, 6), torch.arange(6)))
    assert torch.equal(again, last)


def test_a_relative_table_is_shared_on_purpose_and_not_reset() -> None:
    first = hw.MultiHeadAttention(E, 4, position=hw.RelativeBias(num_buckets=8, max_distance=6))
    table = first.position.weight.detach().clone()
    second = hw.MultiHeadAttention(E, 4, position=hw.RelativeBias(shared=first.position))
    second.reset_parameters()
    assert second.position is first.position
    assert torch.equal(first.position.weight, table)


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "divisible": ({"embed_dim": 26}, "num_heads=4 must divide embed_dim=26"),
    "groups": ({"num_kv_heads": 3}, "num_kv_heads=3 must divide num_heads=4"),
    "zero": ({"head_dim": 0}, "head_dim must be 1 or more; got head_dim=0"),
    "dropout": ({"dropout": -0.1}, r"lie in 0..1; got -0.1"),
    "norm": ({"qk_norm": "batch"}, "qk_norm must be None, 'rms', 'layer', 'l2'; got 'batch'"),
    "position": ({"position": "rotary"}, r"position must be None, Rotary\(\.\.\.\), .*; got 'rotary'"),
    "score": ({"score": "dot"}, r"score must be DotProduct\(\.\.\.\) or Additive\(\.\.\.\); got 'dot'"),
    "additive width": ({"score": hw.Additive(5), "head_dim": 6}, r"Additive\(hidden_dim=5\).*head_dim=6 differs"),
    "additive position": (
        {"score": hw.Additive(5), "position": hw.Alibi()},
        "acts on dot products, but score=Additive",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_layer_that_cannot_be_built_is_refused(case: str) -> None:
    given, said = REFUSALS[case]
    with pytest.raises(ArgumentError, match=said):
        hw.MultiHeadAttention(**({"embed_dim": E, "num_heads": 4} | given))


CALLS: dict[str, tuple[dict[str, Any], type[AttentionError], str]] = {
    "query width": ({"query": torch.zeros(2, 5, 23)}, ShapeError, r"embed_dim=24\).*came as \(2, 5, 23\)"),
    "query rank": ({"query": torch.zeros(2, 5, 3, E)}, ShapeError, r"query must be .* came as \(2, 5, 3, 24\)"),
    "key width": ({"key": torch.zeros(2, 7, 23)}, ShapeError, r"key must be .*kdim=24\).*came as \(2, 7, 23\)"),
    "value alone": ({"value": torch.zeros(2, 5, E)}, ArgumentError, "value= goes with key=, but it came with no key"),
    "batch": ({"key": torch.zeros(3, 7, E)}, ShapeError, "k has B=3, but B .batch. is already 2"),
    "value length": ({"key": torch.zeros(2, 7, E), "value": torch.zeros(2, 6, E)}, ShapeError, "v has Lk=6"),
    "float mask": ({"mask": torch.zeros(5, 5)}, MaskError, "must be bool, but torch.float32 came"),
    "positions": ({"positions": torch.arange(4)}, ShapeError, r"\(5,\) or \(B=2, 5\), but came as \(4,\)"),
    "float positions": ({"positions": torch.arange(5.0)}, ArgumentError, "must be integers, but torch.float32 came"),
    "pair": ({"positions": (torch.arange(5), torch.arange(5))}, ArgumentError, "is for cross-attention"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_bad_call_is_refused_in_one_sentence(case: str) -> None:
    given, error, said = CALLS[case]
    with pytest.raises(error, match=said):
        hw.MultiHeadAttention(E, 4)(**({"query": torch.zeros(2, 5, E)} | given))


@pytest.mark.parametrize("lengths", [(5, 7), (7, 5)])
def test_inputs_with_the_batch_second_are_told_that_it_comes_first(lengths: tuple[int, int]) -> None:
    attn = hw.MultiHeadAttention(E, 4)
    query, key = (torch.zeros(length, 3, E) for length in lengths)
    with pytest.raises(ShapeError, match=r"key has B=\d(?s:.)*if the 3 that all three have second is the batch"):
        attn(query, key)
    with pytest.raises(ShapeError) as refused:
        attn(query, torch.zeros(lengths[1], 2, E))
    assert "second" not in str(refused.value)
    # heads and lengths of (B, H, L, D) are no batch and length
    with pytest.raises(ShapeError) as refused:
        hw.attention(torch.zeros(5, 4, 3, 8), torch.zeros(7, 4, 3, 8), torch.zeros(7, 4, 3, 8))
    assert "second" not in str(refused.value)
    assert attn(query.transpose(0, 1), key.transpose(0, 1)).shape == (3, lengths[0], E)


def test_an_additive_layer_takes_no_bias() -> None:
    layer = hw.MultiHeadAttention(E, 4, score=hw.Additive(5))
    with pytest.raises(ArgumentError, match="attn_bias adds to dot products, but this layer scores by Additive"):
        layer(torch.zeros(2, 5, E), attn_bias=torch.zeros(5, 5))


def test_it_prints_its_sub_modules_and_its_widths() -> None:
    printed = repr(hw.MultiHeadAttention(E, 4, num_kv_heads=2, dropout=0.1, score=hw.DotProduct(softcap=3.0)))
    assert "embed_dim=24, num_heads=4, num_kv_heads=2, head_dim=6, dropout=0.1, score=DotProduct(" in printed
    assert "(out_proj): Linear(in_features=24, out_features=24, bias=True)" in printed


def test_dropout_acts_in_training_only() -> None:
    layer, x = hw.MultiHeadAttention(E, 4, dropout=0.5), torch.randn(2, 9, E)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


@pytest.mark.parametrize("name", ["alibi", "relative"])
def test_a_bias_adds_to_that_of_the_positions(name: str) -> None:
    layer, _ = pair(**CONFIGURATIONS[name])
    x, bias = torch.randn(2, 5, E), torch.randn(4, 5, 5)[None]
    plain, _ = pair()
    plain.load_state_dict({key: value for key, value in layer.state_dict().items() if not key.startswith("position")})
    at = torch.arange(5)
    want = plain(x, mask=hw.causal(), attn_bias=bias + layer.position(at, at))
    assert torch.allclose(layer(x, mask=hw.causal(), attn_bias=bias), want, atol=1e-6)
    assert not torch.allclose(layer(x, mask=hw.causal()), want, atol=1e-3)


def test_the_mask_of_a_memory_and_that_of_a_call_both_hold() -> None:
    layer, x, source = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E), torch.randn(2, 7, E)
    first, second = hw.lengths([7, 4]), hw.allowed(torch.rand(5, 7) > 0.4)
    memory = layer.memory(source, mask=first)
    assert torch.equal(layer(x, memory, mask=second), layer(x, source, mask=first & second))
    assert torch.equal(layer(x, layer.memory(source), mask=second), layer(x, source, mask=second))
