"""Weights are recognised by their names; what is unknown, incomplete or ambiguous is refused with what was seen."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.compat import d2l
from headwise.compat.conversion.arguments import NAMES
from headwise.compat.conversion.registry import blocks, conventions, named
from headwise.errors import ConversionError
from tests.compat.conversion.own_classes import FirstNote
from tests.compat.conversion.sources import drawn

LLAMA = {
    "q_proj.weight": torch.randn(40, 24), "k_proj.weight": torch.randn(20, 24), "v_proj.weight": torch.randn(20, 24),
    "o_proj.weight": torch.randn(24, 40),
}  # fmt: skip
BASE = {"rope_theta": 1e4, "num_attention_heads": 4}


def torch_weights(**options):
    return dict(nn.MultiheadAttention(12, 3, **options).state_dict())


@pytest.mark.parametrize("prefix", ["", "attn.", "model.layers.7.attention."])
def test_a_prefix_that_all_keys_share_is_cut_off(prefix):
    weights = {f"{prefix}{name}": t for name, t in torch_weights().items()}
    assert hw.compat.convert(weights, num_heads=3).report.used[0].theirs == "in_proj_weight"


def test_a_prefix_that_belongs_to_the_names_stays():
    weights = {f"linears.{n}.{kind}": torch.randn(*size) for n in range(4) for kind, size in
               (("weight", (6, 6)), ("bias", (6,)))}  # fmt: skip
    assert hw.compat.convert(weights, num_heads=2).report.convention == "annotated"


def test_every_name_and_alias_names_one_convention():
    names = [name for each in conventions() for name in (each.name, *each.aliases)]
    assert len(names) == len(set(names))
    # the same without torch, for the command line
    assert tuple(names) == NAMES
    assert all(named(name)[0].name == each.name for each in conventions() for name in (each.name, *each.aliases))


def test_an_unknown_name_of_a_convention_is_refused_with_those_there_are():
    said = r"must be one of torch, .*, keras_linears; got 'pytorch': choose one of them, such as torch or torchtune$"
    with pytest.raises(ConversionError, match=said):
        hw.compat.convert(torch_weights(), convention="pytorch")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"in_proj_bias": None}, r"closest table is 'torch', which misses in_proj_bias: give"),
        ({"gate": torch.zeros(4)}, r"but gate \(4,\), .*'torch', which does not know gate: give"),
        ({"in_proj_weight": None, "out_proj.weight": None}, "misses in_proj_weight, out_proj.weight"),
    ],
    ids=["missing", "extra", "half"],
)
def test_a_missing_or_extra_key_is_refused_with_the_closest_table(change, wrong):
    weights = {name: t for name, t in {**torch_weights(), **change}.items() if t is not None}
    with pytest.raises(ConversionError, match=wrong):
        hw.compat.convert(weights, num_heads=3)


def test_a_foreign_module_is_refused_with_the_names_it_has():
    with pytest.raises(
        ConversionError,
        match=r"none was found among bias \(3,\), weight \(3, 2\); looked for: in_proj_weight \(torch\)",
    ):
        hw.compat.convert(nn.Linear(2, 3))


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (3, "a int came: give one attention layer"),
        ({}, "but it has none"),
        (nn.ReLU(), "but it has none"),
        (hw.MultiHeadAttention(6, 2), "a headwise layer came: use to_state_dict"),
        ({"in_proj_weight": [1.0]}, r"must hold tensors, but in_proj_weight \(list\) came"),
        ({name: t.to("meta") for name, t in torch_weights().items()}, "on the meta device: load them first"),
        (d2l.MultiHeadAttention(8, 2, 0.0), "W_q.weight, .* are lazy still: call the module once, on inputs"),
        ({name: t.char() for name, t in torch_weights().items()}, r"q_proj\.weight \(torch\.int8\).* dequantise"),
    ],
    ids=["number", "nothing", "no weights", "ours", "lists", "meta", "lazy", "int8"],
)
def test_what_holds_no_weights_is_refused(source, wrong):
    with pytest.raises(ConversionError, match=wrong):
        hw.compat.convert(source, **({"num_heads": 3} if isinstance(source, dict) else {}))


def test_names_that_several_conventions_share_are_refused_until_one_is_named():
    with pytest.raises(ConversionError, match=r"but llama, gemma, gemma2 share .* say which with convention="):
        hw.compat.convert(LLAMA, config=BASE)
    assert hw.compat.convert(LLAMA, config=BASE, convention="mistral").report.convention == "llama"
    assert hw.compat.convert(LLAMA, config={**BASE, "model_type": "gemma"}).report.convention == "gemma"


def test_biased_projections_named_as_llamas_are_not_guessed_to_be_without_rotation():
    weights = dict(FirstNote(12, 3).state_dict())
    with pytest.raises(ConversionError, match=r"but vit, llama, .* say which"):
        hw.compat.convert(weights, num_heads=3)
    assert hw.compat.convert(weights, num_heads=3, convention="note_000").report.convention == "vit"


def test_a_model_of_another_type_is_not_taken_for_one_with_the_same_names():
    weights = {**LLAMA, "q_proj.bias": torch.zeros(40), "k_proj.bias": torch.zeros(20), "v_proj.bias": torch.zeros(20)}
    with pytest.raises(ConversionError, match=r"model_type='glm' must be a known one.*convention='qwen2'"):
        hw.compat.convert(weights, config={**BASE, "model_type": "glm"})
    assert hw.compat.convert(weights, config={**BASE, "model_type": "qwen2"}).report.convention == "qwen2"
    config = {"num_attention_heads": 3, "model_type": "vilt"}
    with pytest.raises(ConversionError, match=r"model_type='vilt' must be a known one.*convention='torch'"):
        hw.compat.convert(torch_weights(), config=config)
    assert hw.compat.convert(torch_weights(), config=config, convention="torch").report.proved


def test_what_weights_do_not_tell_is_asked_for():
    with pytest.raises(ConversionError, match=r"number of heads must be known.* give num_heads="):
        hw.compat.convert(torch_weights())
    with pytest.raises(ConversionError, match="rope_theta must be known, but the base of the rotation is no weight"):
        hw.compat.convert(LLAMA, convention="llama", num_heads=4)
    with pytest.raises(ConversionError, match="num_heads=3 came and num_attention_heads=4: leave num_heads out"):
        hw.compat.convert(LLAMA, convention="llama", config=BASE, num_heads=3)


@pytest.mark.parametrize(
    ("num_heads", "wrong"),
    [(5, "num_heads=5 must divide the 12 rows"), (0, "a whole number from 1, but came as 0"), (2.0, "came as 2.0")],
)
def test_heads_that_do_not_fit_are_refused(num_heads, wrong):
    with pytest.raises(ConversionError, match=wrong):
        hw.compat.convert(torch_weights(), num_heads=num_heads)


def test_projections_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ConversionError, match="queries have 12 rows, keys 12, values 12 and the output 9 columns"):
        hw.compat.convert({**torch_weights(), "out_proj.weight": torch.zeros(7, 9)}, num_heads=3)
    with pytest.raises(ConversionError, match=r"out_proj\.bias \(5,\), the layer has \(12,\)"):
        hw.compat.convert({**torch_weights(), "out_proj.bias": torch.zeros(5)}, num_heads=3)
    with pytest.raises(ConversionError, match=r"in_proj_bias of 'torch' must have the shape .* came as \(30,\)"):
        hw.compat.convert({**torch_weights(), "in_proj_bias": torch.zeros(30)}, num_heads=3)


def test_what_the_layer_cannot_do_is_refused_by_its_name():
    with pytest.raises(
        ConversionError, match=r"bias_k \(1, 1, 12\), but a learned key and value that every query sees"
    ):
        hw.compat.convert(nn.MultiheadAttention(12, 3, add_bias_kv=True))


def test_the_heads_of_the_right_side_are_taken():
    config = {"encoder_attention_heads": 3, "decoder_attention_heads": 4}
    weights = {f"{name}_proj.{kind}": torch.randn(*size) for name in ("q", "k", "v", "out") for kind, size in
               (("weight", (12, 12)), ("bias", (12,)))}  # fmt: skip

    def heads(prefix, **more):
        under = {f"{prefix}{name}": t for name, t in weights.items()}
        return hw.compat.convert(under, config=config, **more).layer.widths.Hq

    assert heads("model.encoder.layers.0.self_attn.") == 3
    assert heads("model.decoder.layers.0.encoder_attn.") == 4
    assert heads("", num_heads=4) == 4
    with pytest.raises(ConversionError, match="the encoder has 3 heads and the decoder 4"):
        heads("")


def test_a_whole_model_is_refused_with_the_layers_it_holds():
    model = drawn(nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 7), 2, enable_nested_tensor=False))
    with pytest.raises(ConversionError, match=r"hold 2 of them at layers\.0\.self_attn \(torch\), layers\.1"):
        hw.compat.convert(model)
    assert list(blocks(model.state_dict(), named("torch"))) == ["layers.0.self_attn.", "layers.1.self_attn."]


@pytest.mark.parametrize(
    ("prefix", "part", "name"),
    [("", "self", "bert"), ("layer.3.self.", "self", "bert"), ("layer.3.attention.", "attention", "vit_files")],
)
def test_half_a_layer_is_refused_with_the_name_of_the_whole(prefix, part, name):
    weights = {f"{prefix}{each}.{kind}": torch.randn(6, 6) for each in ("query", "key", "value") for kind in
               ("weight", "bias")}  # fmt: skip
    said = rf"only the '{part}' part of one of '{name}', which has output.dense.weight, .* as \.{part}, or all weights"
    with pytest.raises(ConversionError, match=said):
        hw.compat.convert(weights, num_heads=2)
