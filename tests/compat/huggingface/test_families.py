"""Models of transformers on headwise: logits, gradients and maps are those of eager attention."""

import pytest
import torch

from headwise.compat.huggingface import register
from headwise.pages.models import embedded_folder, quiet
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.compat.huggingface.models import DECODERS, FAMILIES, copied, exactly, padded, run, three
from tests.watching.families import GROUPED, first, own_weights, pixels, twin

pytestmark = pytest.mark.needs("transformers")

# where each family takes what its attention gives
PROJECTED = {
    "bert": "encoder.layer.0.attention.output",
    "llama": "layers.0.self_attn.o_proj",
    "gpt2": "h.0.attn.c_proj",
}


def of_real_tokens(model, inputs):
    """The output where there is a token; what a model says about padding is nobody's."""
    out = first(run(model, inputs))
    keep = inputs.get("attention_mask")
    return out[keep.bool()] if keep is not None and out.shape[:2] == keep.shape else out


def gradients(model, inputs):
    """The gradients of a loss on real tokens in all weights, in one row."""
    out = of_real_tokens(model, inputs)
    generator = torch.Generator().manual_seed(3)
    wanted = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    (out * wanted).sum().backward()
    given = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return torch.cat([given[name].flatten() for name in sorted(given)]), sorted(given)


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_and_gradients_are_those_of_eager(name):
    models, inputs = three(name), FAMILIES[name].inputs()
    with torch.no_grad():
        ours, plain, exact = (of_real_tokens(model, inputs) for model in models)
    assert_within_budget(ours, exact, plain)
    (ours, names), (plain, wanted), (exact, _) = (gradients(model, inputs) for model in models)
    assert names == wanted
    assert_within_budget(ours, exact, plain)


@pytest.mark.parametrize("name", DECODERS)
def test_left_padding_changes_no_real_token(name):
    models, inputs = three(name), padded("left")
    with torch.no_grad():
        ours, plain, exact = (of_real_tokens(model, inputs) for model in models)
    assert_within_budget(ours, exact, plain)
    assert ours.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "mistral", "gemma2", "gpt_oss", "t5"])
def test_half_precision_is_within_twice_the_error_of_eager(name, dtype):
    models, inputs = three(name, dtype=dtype), FAMILIES[name].inputs()
    with torch.no_grad():
        ours, plain, exact = (of_real_tokens(model, inputs) for model in models)
    assert_within_budget(ours, exact, plain)


@pytest.mark.parametrize("name", FAMILIES)
def test_maps_are_those_of_the_eager_model(name):
    models, inputs = three(name), FAMILIES[name].inputs()
    with torch.no_grad():
        wanted = first(run(models.ours, inputs))
        with watch(models.ours) as seen:
            assert torch.equal(first(run(models.ours, inputs)), wanted)
        eager = (models.eager, twin(models.eager, torch.float64))
        plain, exact = (own_weights(run(model, inputs, output_attentions=True)) for model in eager)
    assert dict(seen.unseen) == {}
    maps = seen.to_attentions()
    assert [m.shape for m in maps] == [t.shape for t in exact]
    assert_within_budget(*(torch.cat([t.flatten() for t in each]) for each in (maps, exact, plain)))


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_asked_for_are_those_of_eager_and_leave_the_output_as_it_is(name):
    models, inputs = three(name), FAMILIES[name].inputs()
    with torch.no_grad():
        wanted = first(run(models.ours, inputs))
        asked = [run(model, inputs, output_attentions=True) for model in (models.ours, models.eager)]
        exact = own_weights(run(twin(models.eager, torch.float64), inputs, output_attentions=True))
        with watch(models.ours) as seen:
            watched = run(models.ours, inputs, output_attentions=True)
    for out in (asked[0], watched):
        assert torch.equal(first(out), wanted)
    assert {key: [t.shape for t in asked[0][key]] for key in asked[0] if "attentions" in key} == {
        key: [t.shape for t in asked[1][key]] for key in asked[1] if "attentions" in key
    }
    ours, plain = map(own_weights, asked)
    assert [(t.dtype, t.shape) for t in ours] == [(t.dtype, t.shape) for t in plain]
    assert_within_budget(*(torch.cat([t.flatten() for t in each]) for each in (ours, exact, plain)))
    assert len(seen.to_attentions()) == len(ours)


def test_the_weights_have_gradients():
    models, inputs = three("llama"), FAMILIES["llama"].inputs()
    found = []
    for model in models[:2]:
        run(model, inputs, output_attentions=True)["attentions"][-1].square().sum().backward()
        found.append(dict(model.named_parameters())["layers.1.self_attn.k_proj.weight"].grad)
    assert found[1].abs().max() > 0
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-5)


def test_the_real_model_is_that_of_eager():
    from transformers import AutoModel

    register()
    folder = str(embedded_folder())
    with quiet():
        ours = AutoModel.from_pretrained(folder, attn_implementation="headwise").eval()
        eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = {"input_ids": torch.randint(1000, 9000, (3, 17)), "attention_mask": torch.ones(3, 17, dtype=torch.long)}
    inputs["attention_mask"][1, 11:] = 0
    with torch.no_grad():
        got, plain = of_real_tokens(ours, inputs), of_real_tokens(eager, inputs)
        exact = of_real_tokens(eager.double(), inputs)
    assert_within_budget(got, exact, plain)


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_decoder_that_is_to_look_both_ways_does(name, is_padded):
    models, inputs = three(name), padded("right")
    keep = inputs["attention_mask"].bool()
    if not is_padded:
        del inputs["attention_mask"]
    outs = []
    for model in models:
        model.config.is_causal = False
        with torch.no_grad():
            outs.append(first(run(model, inputs))[keep])
    assert_within_budget(outs[0], outs[2], outs[1])


def test_scores_that_a_vision_model_adds_to_its_mask_are_kept():
    import transformers

    sizes = {"image_size": 12, "patch_size": 4, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    register()
    config = transformers.BeitConfig(**sizes, intermediate_size=37, use_relative_position_bias=True)
    ours = transformers.BeitModel._from_config(config, attn_implementation="headwise").eval()
    with torch.no_grad():
        for weight in ours.parameters():
            weight.normal_(0.0, 0.3)
        models = (ours, copied(ours, exactly(), torch.float64), copied(ours, "eager", torch.float32))
        assert_within_budget(*(first(run(model, pixels())) for model in models))


def test_activation_checkpointing_gives_the_same_gradients():
    models, inputs = three("llama"), padded("right")
    plain, exact = (gradients(model, inputs)[0] for model in models[1:])
    models.ours.train().activation_checkpointing_enable()
    assert_within_budget(gradients(models.ours, inputs)[0], exact, plain)


@pytest.mark.parametrize("name", ["bert", "mistral"])
def test_a_model_on_the_meta_device_gives_shapes(name):
    model = three(name).ours.to("meta")
    inputs = {name: t.to("meta") for name, t in padded("left").items()}
    assert first(run(model, inputs)).shape == (2, 9, 24)


def test_a_model_switches_to_headwise_and_back():
    models, inputs = three("llama"), FAMILIES["llama"].inputs()
    with torch.no_grad():
        wanted, eager = (first(run(model, inputs)) for model in models[:2])
        models.eager.set_attn_implementation("headwise")
        assert torch.equal(first(run(models.eager, inputs)), wanted)
        models.eager.set_attn_implementation("eager")
        assert torch.equal(first(run(models.eager, inputs)), eager)


def test_a_query_of_padding_gets_zeros_where_eager_gives_it_the_mean():
    models, inputs = three("llama"), padded("left")
    given = []
    layer = models.ours.layers[0].self_attn.o_proj
    layer.register_forward_pre_hook(lambda module, args: given.append(args[0]))
    with torch.no_grad():
        run(models.ours, inputs)
    assert torch.equal(given[0][1, :3], torch.zeros(3, 24))
    assert (given[0][1, 3:].abs().sum(-1) > 0).all()


@pytest.mark.parametrize(
    ("name", "dropouts"),
    [
        ("bert", {"attention_probs_dropout_prob": 1.0, "hidden_dropout_prob": 0.0}),
        ("llama", {"attention_dropout": 1.0}),
        ("gpt2", {"attn_pdrop": 1.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}),
    ],
)
def test_dropout_is_drawn_in_training_only(name, dropouts):
    import transformers

    register()
    config, inputs = FAMILIES[name].config(transformers), FAMILIES[name].inputs()
    for option, chance in dropouts.items():
        setattr(config, option, chance)
    torch.manual_seed(5)
    model = transformers.AutoModel.from_config(config, attn_implementation="headwise")
    given = []
    model.get_submodule(PROJECTED[name]).register_forward_pre_hook(lambda module, args: given.append(args[0]))
    with torch.no_grad():
        first(run(model.eval(), inputs))
        first(run(model.train(), inputs))
    assert given[0].abs().max() > 0
    assert given[1].abs().max() == 0


def test_dropout_draws_from_the_seed():
    import transformers

    register()
    config = transformers.LlamaConfig(**GROUPED, attention_dropout=0.5)
    model = transformers.LlamaModel._from_config(config, attn_implementation="headwise").train()
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(first(run(model, padded("right"))))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
