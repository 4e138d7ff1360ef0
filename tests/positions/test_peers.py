"""Positions as Hugging Face's models compute them: rotary frequencies and turns, ALiBi's slopes, T5's buckets."""

import pytest
import torch

from headwise.positions import (
    Alibi,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RelativeBias,
    Rotary,
    YarnScaling,
    alibi_slopes,
    relative_buckets,
)
from headwise.testing import assert_within_budget
from tests.positions.rotations import complex_rotation, heads

pytestmark = pytest.mark.needs("transformers")

LENGTH, D = 256, 16
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# what Hugging Face calls it, and what we do
SAME = {
    "default": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
    "yarn": (YARN, YarnScaling(4.0, 64)),
    "yarn, told": (
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5},
        YarnScaling(4.0, 64, beta_fast=16.0, beta_slow=2.0, attention_factor=1.5),
    ),
    "yarn, long": ({**YARN, "original_max_position_embeddings": 8192}, YarnScaling(4.0, 8192)),
    "yarn, a ramp past the last pair": (
        {**YARN, "original_max_position_embeddings": 2**30, "beta_fast": 65536.0},
        YarnScaling(4.0, 2**30, beta_fast=65536.0),
    ),
    "llama3": (LLAMA3, Llama3Scaling(8.0, 1.0, 4.0, 64)),
}


def llama(parameters: dict, base: float):
    """Hugging Face's own module for these parameters."""
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=3 * D,
        num_attention_heads=3,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_theta": base, **parameters},
    )
    return LlamaRotaryEmbedding(config)


def assert_equal_but_for_float32(ours: tuple[float, ...], theirs: torch.Tensor) -> None:
    ratio = theirs.double() / torch.tensor(ours, dtype=torch.float64)
    assert ratio.shape == theirs.shape
    assert (ratio - 1).abs().max() <= 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize(("parameters", "scaling"), SAME.values(), ids=SAME)
def test_frequencies_and_amplitude_are_llamas(parameters, scaling, base):
    theirs = llama(parameters, base)
    assert_equal_but_for_float32(Rotary(base=base, scaling=scaling).frequencies(D), theirs.inv_freq)
    assert theirs.attention_scaling == (1.0 if scaling is None else scaling.amplitude)


@pytest.mark.parametrize(("factor", "times", "static"), [(2.0, 2, 3.0), (4.0, 1, 1.0), (1.0, 7, 7.0)])
def test_ntk_frequencies_are_those_of_dynamic_scaling_at_one_length(factor, times, static):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = llama({"rope_type": "dynamic", "factor": factor}, 10000.0).config
    theirs, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=times * LENGTH)
    assert_equal_but_for_float32(Rotary(scaling=NTKScaling(static)).frequencies(D), theirs)


def turned_by_llama(parameters: dict, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Query and key of these parameters' rotation, each as it was and as Hugging Face turned it."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k = heads(2, 6, 24, D, dtype=dtype), heads(2, 3, 24, D, dtype=dtype, seed=1)
    turned = apply_rotary_pos_emb(q, k, *llama(parameters, 10000.0)(q, torch.arange(24)[None]))
    return tuple(zip((q, k), turned, strict=True))


@pytest.mark.parametrize(("parameters", "scaling"), SAME.values(), ids=SAME)
def test_half_pairing_turns_as_llama_does(parameters, scaling):
    rotary = Rotary(scaling=scaling).build(D)
    for x, turned in turned_by_llama(parameters, torch.float32):
        torch.testing.assert_close(rotary(x, torch.arange(24)), turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("parameters", "scaling"), SAME.values(), ids=SAME)
def test_half_pairing_is_never_further_from_float64_than_llama(parameters, scaling, dtype):
    spec, positions = Rotary(scaling=scaling), torch.arange(24)
    for x, turned in turned_by_llama(parameters, dtype):
        exact = complex_rotation(x, positions, spec)
        assert_within_budget(spec.build(D)(x, positions), exact, turned, factor=1.0)


def test_interleaved_pairing_turns_the_first_features_as_gptj_does():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    x, positions = heads(2, 3, 24, D, dtype=torch.float32), torch.arange(100, 124)
    sin, cos = create_sinusoidal_positions(LENGTH, 8)[positions].expand(2, -1, -1).chunk(2, dim=-1)
    turned = apply_rotary_pos_emb(x[..., :8].transpose(1, 2), sin, cos).transpose(1, 2)
    ours = Rotary(pairing="interleaved", dim=8).build(D)(x, positions)
    torch.testing.assert_close(ours, torch.cat((turned, x[..., 8:]), dim=-1))


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, 7, 8, 12, 16, 20, 25, 71])
def test_alibi_is_blooms_for_keys_before_the_query_but_for_a_constant(num_heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 9), num_heads, torch.float32)
    ours = Alibi().build(num_heads)(torch.tensor([8]), torch.arange(9))[0]
    torch.testing.assert_close(ours - ours[..., :1], theirs)
    assert_equal_but_for_float32(tuple(s * 2**5 for s in alibi_slopes(num_heads)), theirs[:, 0, 1] * 2**5)


@pytest.mark.parametrize("bidirectional", [True, False], ids=["both ways", "causal"])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (64, 200), (54, 64), (8, 20), (8, 5), (4, 5), (12, 4096)]
)
def test_buckets_are_t5s_to_the_bit(num_buckets, max_distance, bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-5000, 5001)
    wanted = T5Attention._relative_position_bucket(distance, bidirectional, num_buckets, max_distance)
    given = {"num_buckets": num_buckets, "max_distance": max_distance, "bidirectional": bidirectional}
    assert torch.equal(relative_buckets(distance, **given), wanted)
    table = RelativeBias(**given).build(3)
    bias = table(torch.tensor([0]), distance)[0, :, 0]
    assert torch.equal(bias, table.weight[wanted].t())


@pytest.mark.parametrize("is_decoder", [False, True], ids=["encoder", "decoder"])
def test_the_bias_is_t5s_with_t5s_weights(is_decoder):
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=12, num_heads=3, d_kv=4, is_decoder=is_decoder)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativeBias(bidirectional=not is_decoder).build(3)
    ours.load_state_dict(theirs.relative_attention_bias.state_dict())
    assert torch.equal(ours(torch.arange(150), torch.arange(170)), theirs.compute_bias(150, 170))
