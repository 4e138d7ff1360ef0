"""A layer written in another library's names is that library's module, with its numbers, or is refused."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.compat.conversion.registry import conventions
from headwise.errors import ConversionError
from headwise.testing import assert_within_budget
from tests.compat.conversion import own_classes as own
from tests.compat.conversion.sources import drawn

NAMED = ("torch", "torch_separate", "d2l", "annotated", "vit", "vit_files", "bert", "bart")
PLAIN = (*NAMED, "gpt2", "gpt2_cross", "timm", "keras", "keras_linears")


def assert_same(ours, theirs, call):
    """One call of a layer and of a module in float32, each measured by the other, around the layer in float64."""
    x = torch.randn(2, 7, ours.widths.E, generator=torch.Generator().manual_seed(1))
    plain = call(theirs, x)
    got = ours(x)
    exact = ours.double()(x.double())
    assert_within_budget(got, exact, plain, factor=4)
    assert_within_budget(plain, exact, got, factor=8)


def test_the_plain_conventions_are_all_there_are():
    layer = drawn(hw.MultiHeadAttention(12, 3))
    fitting = [each.name for each in conventions() if not each.why_not(layer)]
    # these have no room for a bias of the keys, or for any
    assert sorted({*PLAIN, "whisper", "x_transformers"}) == sorted(fitting)


@pytest.mark.parametrize("name", PLAIN)
def test_there_and_back_is_the_same_layer(name):
    layer = drawn(hw.MultiHeadAttention(12, 3))
    weights = hw.compat.to_state_dict(layer, name)
    again = hw.compat.convert(weights, convention=name, num_heads=3).layer
    assert all(torch.equal(layer.state_dict()[key], weight) for key, weight in again.state_dict().items())


def test_a_layer_becomes_nn_multihead_attention():
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    layer = drawn(hw.MultiHeadAttention(12, 3))
    theirs.load_state_dict(hw.compat.to_state_dict(layer, "torch"))
    assert_same(layer, theirs, lambda module, x: module(x, x, x, need_weights=False)[0])
    wide = drawn(hw.MultiHeadAttention(12, 3, kdim=7, vdim=5, bias=False))
    separate = nn.MultiheadAttention(12, 3, kdim=7, vdim=5, bias=False, batch_first=True)
    separate.load_state_dict(hw.compat.to_state_dict(wide, "torch"))
    assert torch.equal(separate.v_proj_weight, wide.v_proj.weight)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("norm", [None, "rms"])
def test_a_rotation_of_either_pairing_becomes_that_of_llama_and_qwen3(pairing, norm):
    import transformers

    from tests.compat.conversion.sources import GROUPED, decoder

    kind = "Llama" if norm is None else "Qwen3"
    theirs = decoder(kind, rope_parameters={"rope_type": "default", "rope_theta": 300.0})()
    layer = drawn(
        hw.MultiHeadAttention(
            24, 4, num_kv_heads=2, head_dim=10, bias=False, qk_norm=norm,
            position=hw.Rotary(base=300.0, pairing=pairing),
        )
    )  # fmt: skip
    if norm:
        layer.q_norm.eps = layer.k_norm.eps = GROUPED.get("rms_norm_eps", 1e-6)
    theirs.load_state_dict(hw.compat.to_state_dict(layer, kind.lower()))
    rotary = getattr(transformers.models, kind.lower())
    rotary = getattr(getattr(rotary, f"modeling_{kind.lower()}"), f"{kind}RotaryEmbedding")(theirs.config)
    theirs.config._attn_implementation = "eager"

    def call(module, x):
        return module(x, position_embeddings=rotary(x, torch.arange(7)[None]), attention_mask=None)[0]

    assert_same(layer, theirs, call)


def test_a_rotation_of_halves_becomes_the_interleaved_one_of_torchtune():
    theirs = own.TuneMultiHeadAttention(24, 6, 3, own.InterleavedRotation(300))
    layer = drawn(hw.MultiHeadAttention(24, 6, num_kv_heads=3, bias=False, position=hw.Rotary(base=300.0)))
    theirs.load_state_dict(hw.compat.to_state_dict(layer, "torchtune"))
    assert_same(layer, theirs, lambda module, x: module(x, x, mask=torch.ones(2, 7, 7)))


@pytest.mark.needs("x_transformers")
def test_grouped_heads_become_those_of_x_transformers_in_tile_order():
    from x_transformers.x_transformers import Attention

    theirs = Attention(24, dim_head=5, heads=6, kv_heads=2)
    layer = drawn(hw.MultiHeadAttention(24, 6, num_kv_heads=2, head_dim=5, bias=False))
    weights = hw.compat.to_state_dict(layer, "x_transformers")
    assert not torch.equal(weights["to_q.weight"], layer.q_proj.weight)
    theirs.load_state_dict(weights)
    assert_same(layer, theirs, lambda module, x: module(x))


def test_a_bias_that_is_not_there_is_written_as_zero_and_one_that_has_no_room_must_be_zero():
    bare = hw.MultiHeadAttention(12, 3, bias=False)
    weights = hw.compat.to_state_dict(bare, "bert")
    assert all(t.abs().max() == 0 for name, t in weights.items() if name.endswith("bias"))
    assert hw.compat.to_state_dict(bare, "torch").keys() == {"in_proj_weight", "out_proj.weight"}
    zeros = hw.MultiHeadAttention(12, 3)
    assert "to_q.bias" not in hw.compat.to_state_dict(zeros, "x_transformers")
    nn.init.constant_(zeros.k_proj.bias, -0.25)
    with pytest.raises(ConversionError, match=r"k_proj\.bias must be zero, .* 'whisper' .* largest entry is 0\.25"):
        hw.compat.to_state_dict(zeros, "whisper")


@pytest.mark.parametrize(
    ("options", "name", "said"),
    [
        ({"num_kv_heads": 2}, "torch", "num_kv_heads=2 for num_heads=6"),
        ({"head_dim": 5}, "gpt2", "head_dim=5 where embed_dim=12 and num_heads=6"),
        ({"v_head_dim": 5}, "bert", "v_head_dim=5 beside head_dim=2"),
        ({"kdim": 7}, "annotated", "kdim=7 beside embed_dim=12"),
        ({"kdim": 12, "vdim": 7}, "timm", "vdim=7 beside kdim=12"),
        ({"out_dim": 7}, "torch", "out_dim=7 beside embed_dim=12"),
        ({"position": hw.Rotary()}, "torch", r"position=Rotary\(base=10000\.0, pairing='half'"),
        ({"position": hw.Alibi()}, "bert", r"position=Alibi\(\)"),
        ({"position": hw.RelativeBias()}, "d2l", "position=RelativeBiasTable"),
        ({"qk_norm": "rms"}, "bart", r"a norm of queries and keys RMSNorm\(\(2,\)"),
        ({"qk_norm": "l2"}, "timm", r"a norm of queries and keys L2Norm\(\)"),
        ({"score": hw.DotProduct(scale=1.0)}, "torch", r"scale=1 in place of 0\.707107"),
        ({}, "t5", r"scale=0\.707107 in place of 1"),
        ({"score": hw.DotProduct(softcap=5.0)}, "keras", r"softcap=5\.0"),
        ({"score": hw.DotProduct(sink="learned")}, "torch", "sink='learned'"),
        ({"score": hw.DotProduct(sink="zero")}, "bert", "sink='zero'"),
        ({"score": hw.Additive(2)}, "d2l", r"score=Additive\(hidden_dim=2\)"),
        ({}, "llama", "no rotary"),
        ({"position": hw.Rotary(dim=2), "head_dim": 4}, "llama", r"position=Rotary\(.* dim=2.*; no rotary"),
        ({}, "torchtune", "no rotary"),
    ],
)  # fmt: skip
def test_what_a_convention_cannot_do_is_refused_by_name(options, name, said):
    layer = hw.MultiHeadAttention(12, 6, **options)
    with pytest.raises(ConversionError, match=f"must do what '{name}.*' can do, but this one has .*{said}"):
        hw.compat.to_state_dict(layer, name)


def test_norms_of_the_wrong_kind_are_refused():
    rotary = {"position": hw.Rotary(), "head_dim": 4}
    with pytest.raises(ConversionError, match=r"a norm of queries and keys LayerNorm"):
        hw.compat.to_state_dict(hw.MultiHeadAttention(12, 6, qk_norm="layer", **rotary), "qwen3")
    with pytest.raises(ConversionError, match=r"q_norm\.weight, k_norm\.weight"):
        hw.compat.to_state_dict(hw.MultiHeadAttention(12, 6, bias=False, **rotary), "qwen3")
