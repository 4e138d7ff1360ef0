"""Keras' MultiHeadAttention and GroupQueryAttention on headwise give Keras' outputs, scores and gradients."""

import itertools
import random
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.compat import keras as ours
from headwise.compat.keras import from_keras
from headwise.errors import ArgumentError, ConversionError, MaskError, ShapeError
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.keras.oracle import assert_is_keras, built, keras_on_torch

# keras 3.15.1 reads its own weights in a way that numpy 2 warns of
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
B, LQ, LK, OF_Q, OF_V, OF_K = 2, 5, 7, 8, 9, 10


def inputs(Lq: int = LQ, Lk: int = LK) -> list[Tensor]:
    return [randn(B, Lq, OF_Q, seed=1), randn(B, Lk, OF_V, seed=2), randn(B, Lk, OF_K, seed=3)]


def flags(*sizes: int) -> Tensor:
    """Random flags whose last axis always has a True."""
    kept = randn(*sizes, seed=4) > -0.3
    kept[..., 1] = True
    return kept


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"use_causal_mask": True},
    "pairs": {"attention_mask": flags(B, LQ, LK)},
    "pairs for all samples": {"attention_mask": flags(LQ, LK).int()},
    "a head each": {"attention_mask": flags(B, 4, LQ, LK)},
    "keys by an attention mask": {"attention_mask": flags(B, 1, LK).float()},
    "value": {"value_mask": flags(B, LK)},
    "key and value": {"value_mask": flags(B, LK), "key_mask": flags(B, LK).flip(0)},
    "value and causal": {"value_mask": flags(B, LK).int() | (torch.arange(LK) == 0), "use_causal_mask": True},
    "pairs and causal": {"attention_mask": flags(B, LQ, LK) | torch.eye(LQ, LK).bool(), "use_causal_mask": True},
}
OPTIONS: dict[str, list[Any]] = {
    "value_dim": [None, 6], "use_bias": [True, False], "output_shape": [None, 11, (3, 2)], "use_gate": [False, True],
    "sliding_window": [None, 3],
}  # fmt: skip
EVERY = [dict(zip(OPTIONS, chosen, strict=True)) for chosen in itertools.product(*OPTIONS.values())]


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_multi_head_attention_is_that_of_keras(mask, scores):
    for n, config in enumerate(random.Random(f"{mask} {scores}").sample(EVERY, 2)):
        call = {**MASKS[mask], **({"return_attention_scores": True} if scores else {})}
        if config["sliding_window"] and not scores and mask != "causal":
            # a window may empty a row, where Keras gives a mean unless it returns scores
            config = {**config, "sliding_window": 20}
        assert_is_keras("MultiHeadAttention", {"num_heads": 4, "key_dim": 3, **config}, inputs(), seed=n, **call)


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_group_query_attention_is_that_of_keras(mask, scores):
    for n, (bias, gate) in enumerate(((True, False), (False, True))):
        config = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": (1, 2)[n], "use_bias": bias,
                  "use_gate": gate, "sliding_window": 3 if scores else None}  # fmt: skip
        call = {**MASKS[mask], **({"return_attention_scores": True} if scores else {})}
        assert_is_keras("GroupQueryAttention", config, inputs(), seed=n, **call)


@pytest.mark.parametrize(("Lq", "Lk"), [(5, 7), (7, 5), (6, 6), (1, 7)])
@pytest.mark.parametrize("window", [None, 1, 2, 9])
def test_the_causal_mask_and_the_window_count_from_the_first_token(window, Lq, Lk):
    config = {"num_heads": 2, "key_dim": 3, "sliding_window": window}
    call = {"use_causal_mask": True, "return_attention_scores": True}
    assert_is_keras("MultiHeadAttention", config, inputs(Lq, Lk), **call)
    _, _, layer = built("MultiHeadAttention", config, inputs(Lq, Lk))
    _, scores = layer(*(x.float() for x in inputs(Lq, Lk)), **call)
    i, j = torch.arange(Lq)[:, None], torch.arange(Lk)[None]
    assert torch.equal(scores[0, 0] > 0, (j <= i) & ((i - j).abs() < (window or 99)))


AXES = [
    ((B, 3, LQ, OF_Q), (B, 3, LK, OF_V), 2, (B, LQ, LK)),
    ((B, 3, LQ, OF_Q), (B, 3, LK, OF_V), (-2,), (B, 3, 4, LQ, LK)),
    ((B, LQ, 3, OF_Q), (B, LK, 3, OF_V), (1,), (LQ, LK)),
    ((B, 3, LQ, OF_Q), (B, 2, LK, OF_V), None, (B, 3, LQ, 2, LK)),
    ((B, 3, LQ, OF_Q), (B, 2, LK, OF_V), (1, 2), (B, 4, 3, LQ, 2, LK)),
    ((B, 3, LQ, 2, OF_Q), (B, 6, LK, 2, OF_V), (1, 2), (B, 2, 1, 3, LQ, 6, LK)),
    ((B, 3, LQ, OF_Q), (B, 3, LK, OF_V), 2, (B, 1, LQ, LK)),
    ((B, LQ, OF_Q), (B, LK, OF_V), -2, (B, LQ, LK)),
]


@pytest.mark.parametrize(("query", "value", "axes", "mask"), AXES)
@pytest.mark.parametrize("output", [None, (3, 2)])
def test_attention_axes_are_those_of_keras(output, query, value, axes, mask):
    config = {"num_heads": 4, "key_dim": 3, "value_dim": 6, "attention_axes": axes, "output_shape": output}
    given = [randn(*query, seed=1), randn(*value, seed=2)]
    assert_is_keras("MultiHeadAttention", config, given, return_attention_scores=True)
    assert_is_keras("MultiHeadAttention", config, given, return_attention_scores=True, attention_mask=flags(*mask))


def test_an_empty_row_is_zero_where_keras_gives_zero_or_a_mean_by_its_path():
    pairs = flags(B, LQ, LK)
    pairs[0, 2] = False
    config = {"num_heads": 4, "key_dim": 3}
    assert_is_keras("MultiHeadAttention", config, inputs(), attention_mask=pairs, return_attention_scores=True)
    _, plain, layer = built("MultiHeadAttention", config, inputs())
    given = [x.float() for x in inputs()]
    out, theirs = layer(*given, attention_mask=pairs), plain(*given, attention_mask=pairs)
    assert torch.equal(out, layer(*given, attention_mask=pairs, return_attention_scores=True)[0])
    assert torch.equal(out[0, 2], layer.get_submodule("attention_output").bias)
    assert not torch.allclose(theirs[0, 2], out[0, 2])
    seen = pairs.any(-1)
    torch.testing.assert_close(out[seen], theirs[seen])


def test_a_query_mask_counts_also_where_keras_ignores_it():
    rows = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]])
    given = [x.float() for x in inputs()]
    _, plain, layer = built("MultiHeadAttention", {"num_heads": 4, "key_dim": 3}, inputs())
    assert torch.equal(plain(*given, query_mask=rows), plain(*given))
    out = layer(*given, query_mask=rows)
    assert torch.equal(out[rows == 0], layer.get_submodule("attention_output").bias.expand(2, -1))
    assert_is_keras("GroupQueryAttention", {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}, inputs(),
                    query_mask=rows, return_attention_scores=True)  # fmt: skip


def test_padding_beside_a_mask_of_four_axes_goes_by_samples_where_keras_goes_by_heads():
    pairs, keep = flags(B, 2, LQ, LK), flags(B, LK)
    given = [x.float() for x in inputs()]
    _, plain, layer = built("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, inputs())
    together = pairs & keep[:, None, None]
    call = {"return_attention_scores": True}
    out, scores = layer(*given, attention_mask=pairs, key_mask=keep, **call)
    assert torch.equal(scores > 0, together)
    assert torch.equal(out, layer(*given, attention_mask=together))
    _, theirs = plain(*given, attention_mask=pairs, key_mask=keep, **call)
    assert torch.equal(theirs > 0, pairs & keep[None, :, None])


def test_weights_go_there_and_back_and_the_layer_is_in_eval_mode():
    _, plain, layer = built("MultiHeadAttention", {"num_heads": 4, "key_dim": 3, "use_gate": True}, inputs())
    assert not layer.training
    for mine, theirs in zip(layer.keras_weights(), plain.get_weights(), strict=True):
        assert mine.shape == theirs.shape
        assert (mine == theirs).all()
    fresh = ours.MultiHeadAttention(4, 3, use_gate=True)
    fresh.load_keras_weights(plain.get_weights())
    again = ours.MultiHeadAttention(4, 3, use_gate=True)
    again.load_state_dict(layer.state_dict())
    given = [x.float() for x in inputs()]
    for other in (fresh, again):
        assert torch.equal(other(*given), layer(*given))


def test_a_new_layer_begins_as_keras_does():
    layer = ours.GroupQueryAttention(64, 4, 2)
    assert list(layer.parameters()) == []
    layer.build((2, 5, 48), (2, 5, 40))
    shapes = {name: tuple(weight.shape) for name, weight in layer.named_parameters() if "weight" in name}
    assert shapes == {"query.weight": (256, 48), "key.weight": (128, 40), "value.weight": (128, 40),
                      "attention_output.weight": (48, 256)}  # fmt: skip
    theirs = keras_on_torch().layers.GroupQueryAttention(64, 4, 2)
    theirs.build((2, 5, 48), (2, 5, 40))
    for mine, other in zip(layer.keras_weights(), theirs.get_weights(), strict=True):
        # a uniform draw of thousands comes close to its bounds
        assert abs(mine).max() == pytest.approx(abs(other).max(), rel=0.02)


def test_dropout_draws_in_training_and_never_touches_the_scores():
    given = [x.float() for x in inputs()]
    layer = ours.MultiHeadAttention(4, 3, dropout=0.5)
    out, scores = layer(*given, return_attention_scores=True)
    assert not torch.equal(out, layer(*given))
    torch.testing.assert_close(scores.sum(-1), torch.ones(B, 4, LQ))
    assert torch.equal(layer(*given, training=False), layer.eval()(*given))
    assert not torch.equal(layer(*given, training=True), layer(*given, training=True))


def test_it_compiles_exports_and_is_watched():
    _, _, layer = built("MultiHeadAttention", {"num_heads": 4, "key_dim": 3}, inputs())
    given = tuple(x.float() for x in inputs())
    out, scores = layer(*given, use_causal_mask=True, return_attention_scores=True)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert_within_budget(compiled(*given, use_causal_mask=True), out.double(), out)
    exported = torch.export.export(layer, given, {"use_causal_mask": True}).module()
    assert_within_budget(exported(*given, use_causal_mask=True), out.double(), out)
    with hw.watch(layer) as seen:
        layer(*given, use_causal_mask=True)
    assert torch.equal(seen[""].dense(), scores)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ours.MultiHeadAttention(0, 3), "num_heads counts .* got num_heads=0"),
        (lambda: ours.MultiHeadAttention(2, 3, value_dim=2.5), "got value_dim=2.5"),
        (lambda: ours.MultiHeadAttention(2, 3, sliding_window=0), "sliding_window counts keys, .* got 0"),
        (
            lambda: ours.MultiHeadAttention(2, 3, flash_attention=True),
            "flash_attention=True asks for a kernel of Keras",
        ),
        (lambda: ours.MultiHeadAttention(2, 3, seed=7), "seed=7 cannot give Keras' draws"),
        (lambda: ours.MultiHeadAttention(2, 3, dropout=-0.1), r"must lie in 0\.\.1; got -0\.1"),
        (lambda: ours.GroupQueryAttention(3, 5, 2), "num_key_value_heads=2 must divide num_query_heads=5"),
    ],
)
def test_arguments_that_cannot_be_kept_are_refused(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"attention_mask": torch.ones(B, LK)}, MaskError, r"Lq=5, Lk=7"),
        ({"attention_mask": torch.full((LQ, LK), -9.0)}, MaskError, "35 of 35 values are others, such as -9.0"),
        ({"attention_mask": torch.ones(LK)}, MaskError, r"2 to 4 axes, .* came as \(7,\)"),
        ({"value_mask": torch.ones(B, LQ)}, MaskError, r"value_mask must be \(B=2, 7\), but came as \(2, 5\)"),
    ],
)
def test_masks_that_do_not_fit_are_refused_before_anything_is_made(call, error, words):
    layer = ours.MultiHeadAttention(4, 3)
    with pytest.raises(error, match=words):
        layer(*(x.float() for x in inputs()), **call)


def test_inputs_that_do_not_fit_are_refused():
    q, v, k = (x.float() for x in inputs())
    with pytest.raises(ShapeError, match=r"query must be \(B, T, features\).*came as \(5, 8\)"):
        ours.MultiHeadAttention(4, 3)(q[0], v[0])
    with pytest.raises(ShapeError, match=r"value must have the samples of the query \(2, 5, 8\).*came as \(1, 7, 9\)"):
        ours.MultiHeadAttention(4, 3)(q, v[:1])
    with pytest.raises(ShapeError, match=r"key \(2, 6, 10\) and value \(2, 7, 9\)"):
        ours.MultiHeadAttention(4, 3)(q, v, k[:, :6])
    with pytest.raises(
        ArgumentError, match=r"attention_axes must name axes of 1\.\.2 in rising order.*came as \(2, 1\)"
    ):
        ours.MultiHeadAttention(4, 3, attention_axes=(2, 1))(q[:, None], v[:, None])
    with pytest.raises(ArgumentError, match="takes no mask but attention_mask"):
        ours.MultiHeadAttention(4, 3)(q[:, None], v[:, None], use_causal_mask=True)


def test_layers_and_weights_that_cannot_be_taken_are_refused():
    layers = keras_on_torch().layers
    q, v, _ = (x.float() for x in inputs())
    with pytest.raises(ConversionError, match="has no weights yet: call it once"):
        from_keras(layers.MultiHeadAttention(4, 3))
    with pytest.raises(ConversionError, match=r"keras.*Dense came"):
        from_keras(layers.Dense(3))
    strict = layers.MultiHeadAttention(4, 3, kernel_regularizer="l2", bias_constraint="unit_norm")
    strict(q, v)
    with pytest.raises(ConversionError, match="has kernel_regularizer, bias_constraint, which"):
        from_keras(strict)
    mixed = layers.MultiHeadAttention(4, 3, dtype="mixed_bfloat16")
    mixed(q, v)
    with pytest.raises(ConversionError, match="keeps float32 and computes in bfloat16"):
        from_keras(mixed)
    frozen = layers.MultiHeadAttention(4, 3, trainable=False)
    frozen(q, v)
    assert not any(weight.requires_grad for weight in from_keras(frozen).parameters())
    layer = ours.MultiHeadAttention(4, 3)
    with pytest.raises(
        ConversionError, match=r"8 arrays in the order of Keras, query kernel .* but 2 came: \(8, 4, 3\)"
    ):
        layer.load_keras_weights(frozen.get_weights()[:2])
    turned = frozen.get_weights()
    turned[0] = turned[0].transpose(0, 2, 1)
    with pytest.raises(ConversionError, match=r"query kernel \(8, 4, 3\), .*came: \(8, 3, 4\)"):
        layer.load_keras_weights(turned)
    assert not layer.built
