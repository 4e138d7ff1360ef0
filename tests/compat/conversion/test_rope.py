"""Rotations are read from configurations of transformers 5 and from older files, each checked against its library."""

import pytest
import torch

import headwise as hw
from headwise.errors import ConversionError
from headwise.positions import LinearScaling, Llama3Scaling, YarnScaling
from tests.compat.conversion.sources import LLAMA3, YARN, decoder, drawn

WEIGHTS = {
    "q_proj.weight": torch.randn(40, 24), "k_proj.weight": torch.randn(20, 24), "v_proj.weight": torch.randn(20, 24),
    "o_proj.weight": torch.randn(24, 40),
}  # fmt: skip
NORMED = {**WEIGHTS, "q_norm.weight": torch.randn(10), "k_norm.weight": torch.randn(10)}


def spec(convention="llama", weights=WEIGHTS, prefix="", **config):
    under = {f"{prefix}{name}": t for name, t in weights.items()}
    config = {"num_attention_heads": 4, **config}
    return hw.compat.convert(under, convention=convention, config=config).layer.position.spec


OLD_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16}


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"rope_theta": 500000}, hw.Rotary(base=5e5)),
        ({"rope_theta": 1e4, "rope_scaling": None}, hw.Rotary()),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 8.0}}, hw.Rotary(scaling=LinearScaling(8.0))),
        ({"rope_theta": 1e4, "rope_scaling": OLD_YARN}, hw.Rotary(scaling=YarnScaling(4.0, 64, beta_fast=16))),
        ({"rope_parameters": {"rope_theta": 300.0, "rope_type": "default"}}, hw.Rotary(base=300.0)),
        (
            {"rope_parameters": LLAMA3},
            hw.Rotary(
                base=5e5,
                scaling=Llama3Scaling(8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_length=64),
            ),
        ),
    ],
    ids=["base", "no scaling", "old linear", "old yarn", "new", "llama3"],
)
def test_a_configuration_says_how_it_turns(config, wanted):
    assert spec(**config) == wanted


def test_layers_that_turn_otherwise_are_told_apart_by_their_number():
    kinds = ["sliding_attention", "full_attention"]
    both = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    new = {"rms_norm_eps": 1e-6, "layer_types": kinds, "rope_parameters": both}
    old = {"rms_norm_eps": 1e-6, "layer_types": kinds, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
    for config in (new, old):
        for n, base in enumerate((1e4, 1e6)):
            assert spec("gemma3", NORMED, f"model.layers.{n}.self_attn.", **config) == hw.Rotary(base=base)
        with pytest.raises(ConversionError, match=r"layers of 2 differ .* the layer's number must be known"):
            spec("gemma3", NORMED, **config)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "but 'dynamic' came"),
        ({"rope_parameters": {**YARN, "truncate": False}}, r"'yarn' came with \['truncate'\]"),
        ({"rope_parameters": {"factor": 2.0}}, r"only \['factor'\] came"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, r"partial_rotary_factor=0\.5 came"),
        ({}, "rope_theta must be known"),
    ],
    ids=["dynamic", "unknown words", "no base", "a part", "nothing"],
)
def test_a_rotation_that_is_not_known_is_refused(config, wrong):
    with pytest.raises(ConversionError, match=wrong):
        spec(**config)


@pytest.mark.needs("transformers")
def test_angles_that_are_not_those_of_the_library_are_refused():
    """What the library makes of a configuration is asked, not only what the words of it seem to say."""
    module = drawn(decoder("Llama", rope_parameters=YARN)())
    assert hw.compat.convert(module).report.proved
    # the library's attention factor follows from these two words, which are not those of the paper
    module.config.rope_parameters = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}
    with pytest.raises(ConversionError, match=r"'yarn' came with \['mscale', 'mscale_all_dim'\]"):
        hw.compat.convert(module)
    module.config.rope_parameters = {"rope_type": "default", "rope_theta": 1e4}
    module.config.head_dim = 8
    with pytest.raises(
        ConversionError, match=r"those of LlamaRotaryEmbedding, but the slowest is .* in place of 0\.001"
    ):
        hw.compat.convert(module)


def test_the_mask_that_the_source_applies_by_itself_is_told():
    def mask(prefix="", **config):
        under = {f"{prefix}{name}": t for name, t in WEIGHTS.items()}
        config = {"num_attention_heads": 4, "rope_theta": 1e4, **config}
        return hw.compat.convert(under, convention="gemma2", config=config).report.mask

    kinds = ["sliding_attention", "full_attention"]
    assert mask() == "hw.causal()"
    assert mask(sliding_window=7) == "hw.causal() & hw.window(keys=7)"
    assert mask(sliding_window=7, use_sliding_window=False) == "hw.causal()"
    assert mask("layers.0.", sliding_window=7, layer_types=kinds) == "hw.causal() & hw.window(keys=7)"
    assert mask("layers.1.", sliding_window=7, layer_types=kinds) == "hw.causal()"
    assert mask(use_bidirectional_attention=True) == ""
