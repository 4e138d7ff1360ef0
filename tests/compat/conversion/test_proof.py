"""The proof runs source and layer on the same questions, and what is not equal is refused with the number."""

import json
import math

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.compat.conversion.report import Check, Report
from headwise.errors import ConversionError
from tests.compat.conversion.own_classes import BookMultiHeadAttention, FirstNote, SecondNote, TimmAttention
from tests.compat.conversion.sources import drawn

ALL = ["self", "self, causal", "self, padding", "self, causal and padding", "cross, S != L", "cross, S != L, padding"]


def questions(source, **given):
    return [check.question for check in hw.compat.convert(source, **given).report.checks]


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        (nn.MultiheadAttention(12, 3), ALL),
        (nn.MultiheadAttention(12, 3, kdim=5), ALL[4:]),
        (TimmAttention(12, 3), ALL[:4]),
        # one input and no mask
        (SecondNote(12, 3), ALL[:1]),
        # lengths say padding and causal, and both together where padding comes last
        (BookMultiHeadAttention(12, 12, 12, 12, 3), ALL),
    ],
    ids=["torch", "kdim", "timm", "second note", "d2l"],
)
def test_a_source_is_asked_all_that_it_has_words_for(source, asked):
    assert questions(drawn(source)) == asked


def test_a_module_that_computes_something_else_is_refused_with_the_difference():
    class Louder(nn.MultiheadAttention):
        def forward(self, query, key, value, **given):
            out, weights = super().forward(query * 1.0001, key, value, **given)
            return out, weights

    with pytest.raises(
        ConversionError, match=r"differs from the module on 'self': outputs by [\d.e-]+ where [\d.e-]+ is"
    ):
        hw.compat.convert(drawn(Louder(12, 3)), convention="torch")


def test_a_module_that_has_an_answer_but_no_gradient_is_compared_by_its_answer():
    """The // of the first note: no derivative, and scores cut down to whole numbers."""
    with pytest.raises(ConversionError, match=r"outputs by [\d.]+ where [\d.e-]+ is rounding: the source does"):
        hw.compat.convert(drawn(FirstNote(12, 3, floors=True)))

    class NoGradient(FirstNote):
        @torch.no_grad()
        def forward(self, q, k, v, mask=None):
            return super().forward(q, k, v, mask)

    report = hw.compat.convert(drawn(NoGradient(12, 3))).report
    assert (report.proved, report.against) == (True, "the module")
    assert all(check.inputs is None and check.weights is None for check in report.checks)
    assert math.isnan(report.largest_gradient)
    assert "no gradients could be compared" in report.notes[-1]


def test_a_module_that_cannot_be_run_is_proved_by_the_formula_only_where_its_convention_is_named():
    class Broken(FirstNote):
        def forward(self, q, k, v, mask=None):
            raise RuntimeError("out of order")

    with pytest.raises(
        ConversionError, match=r"must be run .* Broken, with the names of 'vit', .* say convention='vit'"
    ):
        hw.compat.convert(drawn(Broken(12, 3)))
    report = hw.compat.convert(drawn(Broken(12, 3)), convention="note_000").report
    assert (report.proved, report.against) == (True, "the formula")
    assert "the module could not be asked (RuntimeError: out of order)" in report.notes


def test_the_source_is_never_changed():
    module = drawn(nn.MultiheadAttention(12, 3, dropout=0.5)).train()
    module.in_proj_bias.requires_grad_(False)
    before = {name: t.clone() for name, t in module.state_dict().items()}
    layer = hw.compat.convert(module).layer
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())
    assert (module.training, module.in_proj_weight.dtype, module.in_proj_weight.grad) == (True, torch.float32, None)
    assert (layer.training, layer.dropout) == (True, 0.5)
    assert [name for name, p in layer.named_parameters() if not p.requires_grad] == [
        "q_proj.bias", "k_proj.bias", "v_proj.bias",
    ]  # fmt: skip
    with torch.no_grad():
        layer.q_proj.weight.zero_()
    assert torch.equal(before["in_proj_weight"], module.in_proj_weight)


@pytest.mark.needs("transformers")
def test_a_class_with_known_names_that_computes_something_else_is_refused():
    from tests.compat.conversion.sources import GROUPED, hugging_face

    sizes = {
        "n_embd": 24,
        "n_head": 3,
        "n_layer": 1,
        "vocab_size": 50,
        "rotary_dim": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    # GPT-J turns its queries by a table of its model, under the names of BART but for the biases
    gptj = drawn(hugging_face("GPTJ", "h.0.attn", **sizes)())
    for source in (gptj, gptj.state_dict()):
        with pytest.raises(
            ConversionError, match=r"closest table is 'whisper', which misses q_proj\.bias, v_proj\.bias"
        ):
            hw.compat.convert(source)
    # Cohere pairs otherwise than Llama, and Granite has a scale of its own
    for kind, options in (("Cohere", {}), ("Granite", {"attention_multiplier": 0.5})):
        module = drawn(hugging_face(kind, "layers.0.self_attn", **GROUPED, **options)())
        with pytest.raises(ConversionError, match=f"{kind}Attention computes none of llama, gemma, gemma2: llama: "):
            hw.compat.convert(module)


@pytest.mark.needs("transformers")
def test_a_class_that_is_not_known_is_converted_where_it_computes_what_a_known_one_does():
    from tests.compat.conversion.sources import GROUPED, MAIN, hugging_face

    found = {
        "SmolLM3": hugging_face("SmolLM3", "layers.0.self_attn", **GROUPED),
        "Starcoder2": hugging_face("Starcoder2", "layers.0.self_attn", **GROUPED),
        "DeiT": hugging_face("DeiT", "layers.0.attention", **MAIN),
    }
    reports = {kind: hw.compat.convert(drawn(build())).report for kind, build in found.items()}
    assert all((report.proved, report.against) == (True, "the module") for report in reports.values())
    assert {kind: report.convention for kind, report in reports.items()} == {
        "SmolLM3": "llama", "Starcoder2": "llama", "DeiT": "vit",
    }  # fmt: skip


def test_dropout_behind_the_layer_is_told():
    module = drawn(FirstNote(12, 3))
    module.resid_drop = nn.Dropout(0.25)
    assert (
        "resid_drop (p=0.25) is not of the weights and stays out of the layer" in hw.compat.convert(module).report.notes
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_layer_has_the_dtype_of_the_weights(dtype):
    done = hw.compat.convert(drawn(nn.MultiheadAttention(12, 3)).to(dtype))
    assert {t.dtype for t in done.layer.state_dict().values()} == {dtype}
    assert done.report.proved


def test_weights_of_two_dtypes_go_into_the_wider():
    weights = {name: t.bfloat16() for name, t in nn.MultiheadAttention(12, 3).state_dict().items()}
    weights["out_proj.bias"] = torch.randn(12)
    layer = hw.compat.convert(weights, num_heads=3).layer
    assert torch.equal(layer.out_proj.bias, weights["out_proj.bias"])
    assert layer.q_proj.weight.dtype == torch.float32


def test_loud_weights_are_proved_too():
    """Scores of hundreds make softmax a choice of one, and roundings large; the limit follows."""
    for std in (1e-3, 3.0, 10.0):
        assert hw.compat.convert(drawn(FirstNote(24, 3), std)).report.proved


@pytest.mark.needs("transformers")
def test_one_more_is_not_added_in_halves():
    from tests.compat.conversion.sources import KINDS, decoder

    module = drawn(decoder("Gemma3Text", layer_types=KINDS)()).bfloat16()
    with pytest.raises(ConversionError, match=r"1 \+ q_norm\.weight must not be rounded, but in torch\.bfloat16 it"):
        hw.compat.convert(module)
    nn.init.zeros_(module.q_norm.weight)
    nn.init.constant_(module.k_norm.weight, 0.5)
    assert hw.compat.convert(module).report.proved


@pytest.mark.needs("x_transformers")
def test_where_there_is_no_formula_the_report_says_that_nothing_is_proved():
    from tests.compat.conversion.sources import x_transformers

    weights = drawn(x_transformers(heads=6, kv_heads=3, head_learned_sink=True)()).state_dict()
    report = hw.compat.convert(weights, num_heads=6).report
    assert (report.proved, report.against, report.checks) == (False, "", ())
    assert "Not proved: there is nothing to compare the layer with." in str(report)
    assert report.to_dict()["largest"] is None


def test_the_report_is_a_table_and_plain_data():
    report = hw.compat.convert(drawn(nn.MultiheadAttention(12, 3))).report
    lines = str(report).splitlines()
    assert lines[0] == "torch -> MultiHeadAttention(12, 3)"
    unpacked = "  in_proj_weight -> q_proj.weight, k_proj.weight, v_proj.weight  unpack queries, keys and values"
    assert unpacked in lines
    assert "Proved against the module, in float64; the largest differences:" in lines
    data = json.loads(json.dumps(report.to_dict()))
    assert (data["schema"], data["proved"], data["against"]) == (1, True, "the module")
    assert data["permutations"] == ["unpack queries, keys and values"]
    assert data["largest"] == max(check["outputs"] for check in data["checks"])


def test_a_difference_that_is_no_number_proves_nothing():
    nan = float("nan")
    limits = (1.0, 1.0, 1.0)
    assert Check("self", 0.5, 0.5, None, limits).holds
    assert not any(Check("self", *found, limits).holds for found in ((nan, 0, 0), (0, nan, 0), (0, 2, 0)))
    report = Report("demo", "layer", (), (), (), "the module", (Check("self", nan, 0, 0, limits),))
    assert (report.proved, "Not equal to the module" in str(report)) == (False, True)


def test_the_layer_that_the_report_names_can_be_built_by_pasting_it():
    weights = {
        "q_proj.weight": torch.randn(40, 24), "k_proj.weight": torch.randn(20, 24),
        "v_proj.weight": torch.randn(20, 24), "o_proj.weight": torch.randn(24, 40),
    }  # fmt: skip
    config = {"num_attention_heads": 4, "rope_theta": 500.0, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16}
    done = hw.compat.convert(weights, convention="gemma2", config=config)
    pasted = eval(done.report.layer, vars(hw) | {name: getattr(hw, name) for name in hw.__all__})
    pasted.load_state_dict(done.layer.state_dict())
    x = torch.randn(2, 5, 24)
    assert torch.equal(pasted(x), done.layer(x))
