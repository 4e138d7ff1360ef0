"""A BERT-like model on headwise layers gives the numbers of the untouched model."""

import copy

import pytest
import torch

import headwise as hw
from headwise.compat.bert import ATTENTION, attention_layers, take_over, why_not
from headwise.errors import ConversionError

pytestmark = pytest.mark.needs("transformers")

# layers, width, heads, inner width, vocabulary, positions: all different
SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "vocab_size": 50,
    "max_position_embeddings": 40,
}
FAMILIES = ("Bert", "Camembert", "Electra", "Ernie", "Roberta", "XLMRoberta")


def build(family: str = "Bert", **options: object) -> torch.nn.Module:
    import transformers

    config = getattr(transformers, f"{family}Config")(**{**SIZES, **options})
    model = getattr(transformers, f"{family}Model")(config)
    # fresh biases are zero, and a swap of two zeros would not show
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def ids(*, batch: int = 2, length: int = 9) -> torch.Tensor:
    return torch.randint(5, 50, (batch, length), generator=torch.Generator().manual_seed(1))


def padding() -> torch.Tensor:
    """(2, 9): the second sample has six tokens and then three of padding."""
    return (torch.arange(9) < torch.tensor([[9], [6]])).long()


def hidden_states(model, inputs, **options):
    with torch.no_grad():
        return torch.stack(model(inputs, output_hidden_states=True, **options).hidden_states)


def assert_as_exact(ours, theirs, inputs, **options):
    """Ours may be at most twice as far from the model in float64 as the model in float32 is."""
    exact = hidden_states(copy.deepcopy(theirs).double(), inputs, **options)
    allowed = 2 * (hidden_states(theirs, inputs, **options).double() - exact).abs().max()
    error = (hidden_states(ours, inputs, **options).double() - exact).abs().max()
    assert error <= allowed + torch.finfo(torch.float32).eps


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("masked", [False, True], ids=["all tokens", "padded"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_hidden_states_are_those_of_the_untouched_model(family, masked, attention):
    theirs = build(family)
    theirs.set_attn_implementation(attention)
    options = {"attention_mask": padding()} if masked else {}
    assert_as_exact(take_over(theirs), theirs, ids(), **options)


def test_padding_changes_nothing_for_the_tokens_that_are_there():
    ours = take_over(build())
    inputs = ids()
    padded = hidden_states(ours, inputs, attention_mask=padding())[:, 1, :6]
    torch.testing.assert_close(padded, hidden_states(ours, inputs[1:, :6])[:, 0])


def test_the_padding_mask_reaches_the_layer_as_it_was_given():
    from headwise.masks import Mask
    from headwise.watching import watch

    ours = take_over(build())
    with watch(ours) as seen:
        hidden_states(ours, ids(), attention_mask=padding())
    masks = [made.stored()[0].mask for _, made in seen.in_order()]
    assert [isinstance(mask, Mask) for mask in masks] == [True, True]
    assert all(torch.equal(mask.padding(9), padding().bool()) for mask in masks)


def test_a_four_dimensional_mask_means_what_it_means_to_sdpa():
    theirs = build()
    theirs.set_attn_implementation("sdpa")
    windowed = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 2
    mask = windowed.expand(2, 1, 9, 9)
    assert_as_exact(take_over(theirs), theirs, ids(), attention_mask=mask)


def test_the_model_given_stays_as_it_is():
    theirs = build()
    names, before = [type(m).__name__ for m in theirs.modules()], hidden_states(theirs, ids())
    implementation = theirs.config._attn_implementation
    ours = take_over(theirs)
    for _, layer in attention_layers(ours):
        torch.nn.init.zeros_(layer.q_proj.weight)
    assert [type(m).__name__ for m in theirs.modules()] == names
    assert torch.equal(hidden_states(theirs, ids()), before)
    assert theirs.config._attn_implementation == implementation


def test_every_attention_is_a_headwise_layer_with_the_dropout_of_the_model():
    ours = take_over(build(attention_probs_dropout_prob=0.25).train())
    found = list(attention_layers(ours))
    assert [name for name, _ in found] == [f"encoder.layer.{n}.attention.self.attention" for n in range(2)]
    assert [(layer.dropout, layer.training) for _, layer in found] == [(0.25, True)] * 2
    assert not [m for m in ours.modules() if hasattr(m, "query")]


def test_gradients_are_those_of_the_untouched_model():
    theirs = build().double()
    ours = take_over(theirs)
    for model in (theirs, ours):
        model(ids()).last_hidden_state.square().sum().backward()
    for block, (_, layer) in zip(theirs.encoder.layer, attention_layers(ours), strict=True):
        found = ATTENTION.from_headwise({name: weight.grad for name, weight in layer.named_parameters()})
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, block.attention.get_parameter(name).grad)


def test_frozen_weights_stay_frozen():
    theirs = build()
    theirs.encoder.layer[0].attention.self.key.requires_grad_(False)
    layer = next(attention_layers(take_over(theirs)))[1]
    frozen = [name for name, weight in layer.named_parameters() if not weight.requires_grad]
    assert frozen == ["k_proj.weight", "k_proj.bias"]


def test_the_table_reads_back_what_the_model_held():
    block = build().encoder.layer[0].attention
    weights = block.state_dict()
    back = ATTENTION.from_headwise(ATTENTION.to_headwise(weights))
    ignored = {key for key in weights if "LayerNorm" in key}
    assert {leave.theirs for leave in ATTENTION.account(weights).ignored} == ignored
    assert back.keys() == weights.keys() - ignored
    assert all(torch.equal(back[key], weights[key]) for key in back)


def test_asking_for_attentions_a_cache_or_encoder_states_is_refused():
    ours = take_over(build())
    with pytest.raises(ConversionError, match="returns no attentions"):
        ours(ids(), output_attentions=True)
    layer = ours.encoder.layer[0].attention.self
    with pytest.raises(ConversionError, match="must be run as an encoder"):
        layer(torch.zeros(1, 4, 24), encoder_hidden_states=torch.zeros(1, 3, 24))


def test_a_mask_of_another_form_is_refused():
    from transformers.masking_utils import create_causal_mask

    ours = take_over(build())
    with pytest.raises(ConversionError, match="takes a padding mask only"):
        create_causal_mask(
            config=ours.config, inputs_embeds=torch.zeros(1, 4, 24), attention_mask=None, past_key_values=None
        )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: torch.nn.Linear(3, 5), "Linear has no attention of BERT"),
        (lambda: hw.MultiHeadAttention(6, 2), "MultiHeadAttention has no attention of BERT"),
        (lambda: build(is_decoder=True), "is_decoder=True"),
        (lambda: build(position_embedding_type="relative_key"), "relative_key positions"),
        (lambda: take_over(build()), "BertModel has no attention of BERT"),
    ],
    ids=["no model", "headwise", "decoder", "relative positions", "taken over already"],
)
def test_a_model_that_cannot_be_taken_over_is_refused_with_the_reason(model, reason):
    built = model()
    assert reason in why_not(built)
    with pytest.raises(ConversionError, match=reason):
        take_over(built)
