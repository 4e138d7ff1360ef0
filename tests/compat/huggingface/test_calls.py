"""The attention function that transformers calls: every argument is used, or refused by its name."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from headwise.compat.huggingface import register, unregister
from headwise.compat.huggingface.masks import HandedMask
from headwise.compat.huggingface.registration import HARMLESS
from headwise.errors import ArgumentError, ConversionError, MaskError
from headwise.masks import causal
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import tensors
from tests.compat.huggingface.models import FAMILIES, copied, exactly, padded, run, three
from tests.sizes import SIZES
from tests.watching.families import first, tokens

pytestmark = pytest.mark.needs("transformers")

B, HQ, LQ, LK = (SIZES[letter] for letter in ("B", "Hq", "Lq", "Lk"))


class Asking(torch.nn.Module):
    """A layer that asks transformers for its attention."""

    is_causal = True


def call(*args, module=None, **options):
    from transformers import AttentionInterface

    register()
    return AttentionInterface()["headwise"](module or Asking().eval(), *args, **options)


def masks():
    """Masks as models hand them over, each as what may be seen and what is added."""
    generator = torch.Generator().manual_seed(2)
    seen = torch.rand(B, 1, LQ, LK, generator=generator) > 0.3
    seen[1, :, 2] = False
    bias = torch.randn(B, HQ, LQ, LK, generator=generator)
    lowest = torch.finfo(torch.float32).min
    handed = HandedMask(causal(), (B, 1, LQ, LK), torch.device("cpu"))
    return {
        "bool": (seen, seen, None),
        "handed": (handed, handed.dense(), None),
        "least number": (torch.zeros(B, 1, LQ, LK).masked_fill(~seen, lowest), seen, None),
        "minus infinity": (torch.zeros(B, 1, LQ, LK).masked_fill(~seen, float("-inf")), seen, None),
        "bias": (bias, None, bias),
        "bias and mask": (bias.masked_fill(~seen, lowest), seen, bias),
    }


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("name", masks())
def test_every_argument_is_used(name, sinks):
    q, k, v = tensors()
    given, seen, bias = masks()[name]
    position_bias = torch.randn(1, HQ, LQ, LK, generator=torch.Generator().manual_seed(4))
    sink = torch.linspace(-1.0, 2.0, HQ) if sinks else None
    out, weights = call(q, k, v, given, scaling=0.3, softcap=1.7, s_aux=sink, position_bias=position_bias)
    added = position_bias if bias is None else position_bias + bias
    rules = {"attn_bias": added, "scale": 0.3, "softcap": 1.7, "sink": sink}
    assert weights is None
    assert out.is_contiguous()
    seen = torch.ones(LQ, LK, dtype=torch.bool) if seen is None else seen
    exact = exact_attention(q, k, v, mask=seen, **rules).transpose(1, 2)
    assert_within_budget(out, exact, plain_attention(q, k, v, allowed=seen, **rules).transpose(1, 2))
    if not seen.any(-1).all():
        assert out[1, 2].abs().max() == 0


def test_a_layer_in_eval_drops_nothing():
    q, k, v = tensors()
    plain = call(q, k, v, None, is_causal=False)[0]
    assert torch.equal(call(q, k, v, None, is_causal=False, dropout=0.5)[0], plain)
    assert not torch.equal(call(q, k, v, None, module=Asking(), is_causal=False, dropout=0.5)[0], plain)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"head_mask": torch.ones(3)}, "head_mask came"),
        ({"indices": torch.ones(3)}, "indices came"),
        ({"cu_seq_lens_q": torch.ones(3), "cu_seq_lens_k": torch.ones(3)}, "cu_seq_lens_k, cu_seq_lens_q came"),
        ({"alibi": 1.0, "use_cache": True}, "alibi came"),
    ],
)
def test_a_keyword_that_is_not_known_is_refused_by_name(options, named):
    with pytest.raises(ArgumentError, match=f"every keyword of an attention function must be used, but {named}"):
        call(*tensors(), None, is_causal=False, **options)


def test_a_keyword_that_is_known_or_none_changes_nothing():
    q, k, v = tensors()
    plain = call(q, k, v, None, is_causal=False)[0]
    for name in HARMLESS:
        assert torch.equal(call(q, k, v, None, is_causal=False, **{name: 0})[0], plain)
    assert torch.equal(call(q, k, v, None, is_causal=False, head_mask=None)[0], plain)


def test_weights_of_more_than_a_gib_are_warned_of_once():
    class Layer(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.layer_idx, self.config = number, SimpleNamespace(num_hidden_layers=3)

    # nothing is computed on the meta device
    q = torch.empty(B, HQ, 6000, SIZES["D"], device="meta")
    message = r"weights of 3 layers dense, \(2, 6, 6000, 6000\) each, which take 4\.8 GiB: hw\.watch\(model\) holds"
    with pytest.warns(UserWarning, match=message):
        weights = call(q, q, q, None, module=Layer(0), is_causal=False, output_attentions=True)[1]
    assert weights.shape == (B, HQ, 6000, 6000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(q, q, q, None, module=Layer(1), is_causal=False, output_attentions=True)[1].shape == weights.shape


@pytest.mark.parametrize(
    ("mask", "came"),
    [
        (torch.ones(B, 1, LQ, LK, dtype=torch.long), r"torch.int64 \(2, 1, 5, 7\) came"),
        (torch.ones(B, LK, dtype=torch.bool), r"torch.bool \(2, 7\) came"),
        (torch.ones(B, LQ, LK), r"torch.float32 \(2, 5, 7\) came"),
        ([[1, 0]], "list came, which is of another attn_implementation"),
    ],
)
def test_a_mask_of_another_form_is_refused(mask, came):
    with pytest.raises(MaskError, match=f"attention_mask must be .* when it reaches attention.*{came}"):
        call(*tensors(), mask)


def test_without_a_mask_the_flag_decides():
    q, k, v = tensors()
    k, v = k[:, :, :LQ], v[:, :, :LQ]
    exact = exact_attention(q, k, v, mask=causal()).transpose(1, 2)
    plain = plain_attention(q, k, v, allowed=causal().allowed(LQ, LQ)).transpose(1, 2)
    assert_within_budget(call(q, k, v, None, is_causal=True)[0], exact, plain)
    whole = call(q, k, v, None, is_causal=False)[0]
    assert_within_budget(whole, exact_attention(q, k, v).transpose(1, 2), plain_attention(q, k, v).transpose(1, 2))
    encoder = Asking().eval()
    encoder.is_causal = False
    assert torch.equal(call(q, k, v, None, module=encoder)[0], whole)
    assert torch.equal(call(q, k, v, None, module=torch.nn.Identity().eval())[0], whole)
    last = call(q[:, :, -1:], k, v, None)[0]
    assert_within_budget(last, exact[:, -1:], plain[:, -1:])


@pytest.mark.parametrize(
    ("length", "options"),
    [(LQ, {}), (LK, {"is_causal": True}), (LQ, {"is_causal": True, "sliding_window": 3})],
)
def test_without_a_mask_what_eager_and_sdpa_read_differently_is_refused(length, options):
    q, k, v = tensors()
    with pytest.raises(MaskError, match=f"Asking must say who may attend.*Lq=5 and Lk={length} with is_causal="):
        call(q, k[:, :, :length], v[:, :, :length], None, **options)


def test_learned_queries_serve_all_samples():
    q, k, v = tensors()
    out = call(q[:1], k, v, None, is_causal=False)[0]
    assert torch.equal(out, call(q[:1].expand(B, -1, -1, -1), k, v, None, is_causal=False)[0])


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_model_takes_a_mask_of_its_users_own(kind):
    models = three("llama")
    seen = torch.ones(9, 9).tril().bool() & (torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(1)) > 0.3)
    seen |= torch.eye(9).bool()
    outs = []
    for model in models:
        dtype = next(model.parameters()).dtype
        added = torch.zeros(2, 1, 9, 9, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
        mask = seen if kind == "bool" and model is not models.eager else added
        if model is models.exact:
            mask = seen
        with torch.no_grad():
            outs.append(model(input_ids=tokens(), attention_mask=mask).last_hidden_state)
    assert_within_budget(outs[0], outs[2], outs[1])


@pytest.mark.parametrize(("name", "part"), [("bert", "model"), ("mistral", "model"), ("llama", "layers")])
def test_a_compiled_model_gives_the_same_numbers(name, part):
    torch._dynamo.reset()
    models, inputs = three(name), FAMILIES[name].inputs()
    with torch.no_grad():
        plain, exact = (first(run(model, inputs)) for model in models[1:])
        compiled = models.ours
        if part == "model":
            compiled = torch.compile(models.ours, backend="aot_eager", fullgraph=True)
        else:
            # the mask is made outside, and enters each graph
            for layer in models.ours.layers:
                layer.compile(backend="aot_eager", fullgraph=True)
        real = inputs["attention_mask"].bool()
        assert_within_budget(first(run(compiled, inputs))[real], exact[real], plain[real])


def test_a_compiled_model_that_adds_its_mask_is_refused_too():
    import transformers

    register()
    torch._dynamo.reset()
    config = transformers.BloomConfig(vocab_size=53, hidden_size=24, n_layer=2, n_head=4)
    model = transformers.BloomModel._from_config(config, attn_implementation="headwise")
    with torch.no_grad(), pytest.raises(ConversionError, match="BloomAttention and all of modeling_bloom compute att"):
        torch.compile(model, backend="eager")(tokens())


def test_models_that_write_their_own_softmax_are_refused_or_stay_as_they_are():
    import transformers

    register()
    sizes = {"vocab_size": 53, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
    bloom = transformers.BloomConfig(vocab_size=53, hidden_size=24, n_layer=2, n_head=4)
    gptj = transformers.GPTJConfig(vocab_size=53, n_embd=24, n_layer=2, n_head=4, rotary_dim=4, n_positions=41)
    deberta = transformers.DebertaV2Config(**sizes, intermediate_size=37, max_position_embeddings=41)
    with pytest.raises(ConversionError, match="BloomAttention and all of modeling_bloom compute attention by themselv"):
        run(transformers.BloomModel._from_config(bloom, attn_implementation="headwise"), padded("right"))
    with pytest.raises(KeyError, match="headwise"):
        transformers.GPTJModel._from_config(gptj, attn_implementation="headwise")
    ours = transformers.DebertaV2Model._from_config(deberta, attn_implementation="headwise").eval()
    with torch.no_grad():
        pair = [first(run(model, padded("right"))) for model in (ours, copied(ours, "eager", torch.float32))]
    assert torch.equal(*pair)


def test_registering_twice_is_harmless_and_can_be_undone():
    from transformers import AttentionInterface, AttentionMaskInterface

    register("mine")
    register("mine")
    assert AttentionInterface()["mine"] is AttentionInterface()["mine"]
    unregister("mine")
    unregister("mine")
    assert "mine" not in AttentionInterface()
    assert "mine" not in AttentionMaskInterface()
    name = exactly()
    unregister(name)
    assert name in AttentionInterface()


@pytest.mark.parametrize("name", ["", "head wise", "flash_headwise", "my_sdpa", "eager", 5])
def test_a_name_that_transformers_reads_otherwise_is_refused(name):
    with pytest.raises(ArgumentError, match=f"name must be an identifier without eager, flash.*but {name!r} came"):
        register(name)


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConversionError, match=r"needs transformers 5.23 .*: pip install '\.\[models\]' in the"):
        register()
