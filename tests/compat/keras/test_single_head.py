"""Keras' Attention and AdditiveAttention on headwise give Keras' outputs, scores and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.compat import keras as ours
from headwise.compat.keras import from_keras
from headwise.errors import ArgumentError, ConversionError, MaskError, ShapeError
from tests.compat.agreement import randn
from tests.compat.keras.oracle import assert_is_keras, built, keras_on_torch

# keras 3.15.1 reads its own weights in a way that numpy 2 warns of
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
B, LQ, LK, D, DV = 2, 5, 7, 11, 13
OF_QUERY = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
OF_VALUE = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 1, 0]]).bool()
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dot": ("Attention", {}),
    "dot, scaled": ("Attention", {"use_scale": True}),
    "concat": ("Attention", {"score_mode": "concat"}),
    "concat, scaled": ("Attention", {"score_mode": "concat", "use_scale": True}),
    "additive": ("AdditiveAttention", {}),
    "additive, not scaled": ("AdditiveAttention", {"use_scale": False}),
}
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"use_causal_mask": True},
    "value": {"mask": [None, OF_VALUE]},
    "query": {"mask": [OF_QUERY, None]},
    "both and causal": {"mask": [OF_QUERY, OF_VALUE], "use_causal_mask": True},
}


def inputs(count: int = 3) -> list[Tensor]:
    if count == 2:
        return [randn(B, LQ, D, seed=1), randn(B, LK, D, seed=2)]
    return [randn(B, LQ, D, seed=1), randn(B, LK, DV, seed=2), randn(B, LK, D, seed=3)]


def formula_of(name: str, config: dict[str, Any]) -> Callable[[list[Tensor]], Callable[..., Any]]:
    """Keras' formula in plain torch, of weights and then of a call."""

    def of_weights(weights: list[Tensor]) -> Callable[..., Any]:
        def attend(
            given: list[Tensor],
            mask: tuple[Tensor | None, Tensor | None] = (None, None),
            use_causal_mask: bool = False,
            return_attention_scores: bool = False,
        ) -> Any:
            q, v, k = given if len(given) == 3 else (*given, given[1])
            scale = weights[0] if config.get("use_scale", name == "AdditiveAttention") else 1.0
            sums = q[:, :, None] + k[:, None]
            if name == "AdditiveAttention":
                scores = (scale * torch.tanh(sums)).sum(-1)
            elif config.get("score_mode") == "concat":
                scores = weights[-1] * torch.tanh(scale * sums).sum(-1)
            else:
                scores = scale * (q @ k.mT)
            if mask[1] is not None:
                scores = scores.masked_fill(~mask[1][:, None], -torch.inf)
            if use_causal_mask:
                scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
            seen = torch.softmax(scores, dim=-1)
            out = seen @ v if mask[0] is None else (seen @ v).masked_fill(~mask[0][..., None], 0.0)
            return (out, seen) if return_attention_scores else out

        return attend

    return of_weights


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layer_is_that_of_keras(kind, call, scores):
    name, config = KINDS[kind]
    more = {"return_attention_scores": True} if scores else {}
    given = inputs(3 if scores else 2)
    assert_is_keras(name, config, given, formula=formula_of(name, config), **CALLS[call], **more)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_row_is_zero_where_keras_gives_a_mean(kind):
    nothing = torch.tensor([[0] * LK, [1] * LK]).bool()
    _, plain, layer = built(*KINDS[kind], inputs())
    given = [x.float() for x in inputs()]
    out, theirs = layer(given, mask=[None, nothing]), plain(given, mask=[None, nothing])
    assert torch.equal(out[0], torch.zeros(LQ, DV))
    assert theirs[0].abs().sum() > 0
    torch.testing.assert_close(out[1], theirs[1])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_there_and_back(kind):
    name, config = KINDS[kind]
    _, plain, layer = built(name, config, inputs())
    assert [array.tolist() for array in layer.keras_weights()] == [array.tolist() for array in plain.get_weights()]
    fresh, again = (getattr(ours, name)(**config) for _ in range(2))
    fresh.load_keras_weights(plain.get_weights())
    again.load_state_dict(layer.state_dict())
    given = [x.float() for x in inputs()]
    for other in (fresh, again):
        assert torch.equal(other(given), layer(given))


def test_a_new_additive_scale_is_drawn_as_keras_draws_it():
    layer, theirs = ours.AdditiveAttention(), keras_on_torch().layers.AdditiveAttention()
    layer.build(4096)
    theirs.build([(2, 5, 4096), (2, 7, 4096)])
    (mine,), (other,) = layer.keras_weights(), theirs.get_weights()
    assert abs(mine).max() == pytest.approx(abs(other).max(), rel=0.02)


def test_dropout_draws_in_training_and_never_touches_the_scores():
    given = [x.float() for x in inputs()]
    layer = ours.Attention(dropout=0.5)
    out, scores = layer(given, return_attention_scores=True)
    assert not torch.equal(out, layer(given))
    torch.testing.assert_close(scores.sum(-1), torch.ones(B, LQ))
    assert torch.equal(layer(given, training=False), layer.eval()(given))


def test_what_does_not_fit_is_refused():
    q, v, k = (x.float() for x in inputs())
    with pytest.raises(ArgumentError, match='score_mode must be "dot" or "concat"; got \'sum\''):
        ours.Attention(score_mode="sum")
    with pytest.raises(ArgumentError, match="seed=3 cannot give Keras' draws"):
        ours.AdditiveAttention(seed=3)
    with pytest.raises(ArgumentError, match=r"\[query, value\] or \[query, value, key\], but Tensor came"):
        ours.Attention()(q)
    with pytest.raises(ArgumentError, match="but 1 of them came"):
        ours.Attention()([q])
    with pytest.raises(ArgumentError, match="Keras reads no third one"):
        ours.Attention()([q, v, k], mask=[None, OF_VALUE, OF_VALUE])
    with pytest.raises(MaskError, match=r"value_mask must be \(B=2, 7\), but came as \(2, 5\)"):
        ours.Attention()([q, v, k], mask=[None, OF_QUERY])
    with pytest.raises(MaskError, match=r"query_mask must be \(B=2, 5\), but came as \(2, 7\)"):
        ours.Attention()([q, v, k], mask=[OF_VALUE, None])
    with pytest.raises(ShapeError, match=r"value must be \(B, L, features\), but came as \(7, 13\)"):
        ours.Attention()([q, v[0]])
    with pytest.raises(
        ConversionError, match=r"\['scale'\] of the shapes \[\(\)\], but arrays of the shapes \[\(11,\)\]"
    ):
        ours.Attention(use_scale=True).load_keras_weights([torch.ones(D)])
    with pytest.raises(ConversionError, match="has no weights yet"):
        from_keras(keras_on_torch().layers.AdditiveAttention())
