"""The Annotated Transformer's attention on headwise gives the numbers of its formula, and refuses its silent trap."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.compat import annotated
from headwise.errors import ArgumentError, MaskError, ShapeError
from headwise.testing import assert_within_budget
from tests.compat.agreement import Weights, assert_agrees, randn

B, H, LQ, LK, WIDTH = 2, 3, 5, 7, 12


def empty_rows() -> Tensor:
    mask = randn(B, LQ, LK, seed=4) > 0
    mask[0, 1], mask[1, 4] = False, False
    mask[1, :, 2] = False
    return mask


MASKS = {
    "none": None,
    "padding": torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]])[:, None],
    "a query each": empty_rows(),
    "shared by samples": empty_rows()[1:],
    "floating": torch.ones(1, 1, LK),
    "a sample without keys": torch.tensor([[[0.0]], [[1.0]]]).expand(B, 1, LK),
    "shared by keys": torch.tensor([1, 0, 1, 1, 0]).reshape(1, LQ, 1).expand(B, LQ, 1),
}


def weights_of_the_original(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores if mask is None else scores.masked_fill(mask == 0, -1e9), dim=-1)


def by_heads(weights: Weights, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output and the weights (B, h, Lq, Lk), one head after the other."""
    q, k, v = (x @ weights[f"linears.{n}.weight"].T + weights[f"linears.{n}.bias"] for n, x in enumerate((q, k, v)))
    triples = list(zip(*(x.chunk(H, dim=-1) for x in (q, k, v)), strict=True))
    seen = [weights_of_the_original(q, k, mask) for q, k, _ in triples]
    mixed = torch.cat([p @ v for p, (_, _, v) in zip(seen, triples, strict=True)], dim=-1)
    return mixed @ weights["linears.3.weight"].T + weights["linears.3.bias"], torch.stack(seen, dim=1)


def inputs() -> list[Tensor]:
    return [randn(B, LQ, WIDTH, seed=1), randn(B, LK, WIDTH, seed=2), randn(B, LK, WIDTH, seed=3)]


def layer() -> annotated.MultiHeadedAttention:
    module = annotated.MultiHeadedAttention(H, WIDTH, dropout=0.0)
    for seed, weight in enumerate(module.parameters()):
        # clones begin alike, and would hide two projections that are confused
        nn.init.uniform_(weight, -0.5, 0.5, generator=torch.Generator().manual_seed(seed))
    return module


@pytest.mark.parametrize("mask", MASKS)
def test_the_layer_gives_the_numbers_of_the_original(mask):
    assert_agrees(layer(), lambda *given: by_heads(*given)[0], inputs(), MASKS[mask])


@pytest.mark.parametrize("mask", MASKS)
def test_attn_is_that_of_the_original_and_carries_gradients(mask):
    module = layer()
    assert module.attn is None
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    module(*(x.float() for x in inputs()), MASKS[mask])
    _, exact = by_heads({name: weight.double() for name, weight in weights.items()}, *inputs(), MASKS[mask])
    _, plain = by_heads(weights, *(x.float() for x in inputs()), MASKS[mask])
    assert_within_budget(module.attn, exact, plain)
    module.attn.square().sum().backward()
    assert module.linears[0].weight.grad.isfinite().all()


FUNCTION_MASKS = {
    "four axes": (4, empty_rows()[:, None]),
    "a head each": (4, randn(B, H, LQ, LK, seed=5) > 0),
    "one for all": (4, empty_rows()[:1]),
    "two axes": (4, empty_rows()[0]),
    "three axes of three": (3, empty_rows()),
    "two axes of two": (2, empty_rows()[0]),
    "none": (4, None),
    "none of two": (2, None),
}


@pytest.mark.parametrize("name", FUNCTION_MASKS)
def test_the_function_gives_the_numbers_of_the_original(name):
    axes, mask = FUNCTION_MASKS[name]
    front = (B, H)[: axes - 2]
    q, k, v = randn(*front, LQ, 11, seed=1), randn(*front, LK, 11, seed=2), randn(*front, LK, 13, seed=3)
    (exact_out, exact), (plain_out, plain) = (
        (weights_of_the_original(q.to(t), k.to(t), mask) @ v.to(t), weights_of_the_original(q.to(t), k.to(t), mask))
        for t in (torch.float64, torch.float32)
    )
    for dropout in (None, nn.Dropout(0.5).eval()):
        out, p_attn = annotated.attention(q.float(), k.float(), v.float(), mask, dropout)
        assert_within_budget(out, exact_out, plain_out)
        assert_within_budget(p_attn, exact, plain)


def test_the_function_applies_the_dropout_it_is_given_to_what_it_returns():
    q, v = randn(B, H, LQ, 4).float(), randn(B, H, LQ, 6).float()
    out, p_attn = annotated.attention(q, q, v, dropout=lambda weights: weights * 3.0)
    torch.testing.assert_close(p_attn.sum(-1), torch.full((B, H, LQ), 3.0))
    torch.testing.assert_close(out, p_attn @ v)


def test_a_mask_that_the_original_spreads_over_the_heads_is_refused():
    x = torch.randn(H, 4, WIDTH)
    padding = torch.ones(H, 4, dtype=torch.bool)
    # as many samples as heads: there, no error says that each head gets another sample's padding
    with pytest.raises(MaskError, match=r"\(B, 1, Lk\) or \(B, Lq, Lk\), but came as \(3, 4\), which reads as padding"):
        layer()(x, x, x, padding)
    with pytest.raises(MaskError, match=r"came as \(3, 1, 1, 4\)"):
        layer()(x, x, x, padding[:, None, None])
    heads = torch.randn(B, H, 4, 6)
    for mask in (torch.ones(B, 4, 4), torch.ones(4), torch.ones(1, B, H, 4, 4)):
        with pytest.raises(MaskError, match=r"\(B, h, Lq, Lk\) or \(Lq, Lk\), but came as"):
            annotated.attention(heads, heads, heads, mask)


def test_scores_to_add_are_refused_as_a_mask():
    x = torch.randn(B, 4, WIDTH)
    scores = torch.zeros(B, 1, 4)
    scores[0, 0, 3] = -math.inf
    with pytest.raises(MaskError, match=r"but 1 of 8 values are others, such as -inf"):
        layer()(x, x, x, scores)
    with pytest.raises(MaskError, match="but list came"):
        layer()(x, x, x, [1])


@pytest.mark.parametrize("wrong", [torch.ones(3, 1, 7), torch.ones(2, 4, 7), torch.ones(2, 1, 6)])
def test_a_mask_of_other_sizes_is_refused(wrong):
    with pytest.raises(MaskError, match=r"B=2, H=3, Lq=5, Lk=7"):
        layer()(*(x.float() for x in inputs()), wrong)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="h=5 must divide d_model=12"):
        annotated.MultiHeadedAttention(5, 12)
    with pytest.raises(ArgumentError, match=r"must lie in 0\.\.1; got 2"):
        annotated.MultiHeadedAttention(3, 12, 2)
    with pytest.raises(ShapeError, match=r"key must be \(B, L, d_model=12\), but came as \(7, 12\)"):
        layer()(torch.zeros(2, 5, 12), torch.zeros(7, 12), torch.zeros(7, 12))
    with pytest.raises(ShapeError, match=r"query must be .* but came as \(12,\)"):
        annotated.attention(torch.zeros(12), torch.zeros(12), torch.zeros(12))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_empty_row_is_even_in_half_precision(dtype):
    module = layer().to(dtype)
    q, k, v = (x.to(dtype) for x in inputs())
    assert module(q, k, v, MASKS["a sample without keys"]).isfinite().all()
    assert torch.equal(module.attn[0], torch.full((H, LQ, LK), 1 / LK, dtype=dtype))


def test_keys_that_no_query_sees_may_hold_nan():
    q, k, v = (x.float() for x in inputs())
    module, mask = layer(), empty_rows()
    mask[..., 3:] = False
    wanted, holed = module(q, k, v, mask), k.clone()
    holed[:, 3:] = math.nan
    assert torch.equal(module(q, holed, v, mask), wanted)


def test_clones_are_equal_and_apart_and_the_state_has_the_names_of_the_original():
    module = annotated.MultiHeadedAttention(H, WIDTH)
    assert torch.equal(module.linears[0].weight, module.linears[3].weight)
    assert module.linears[0].weight is not module.linears[3].weight
    assert list(module.state_dict()) == [f"linears.{n}.{part}" for n in range(4) for part in ("weight", "bias")]
    assert (module.h, module.d_k, module.dropout.p) == (3, 4, 0.1)


def test_subsequent_mask_hides_what_comes_later():
    assert torch.equal(annotated.subsequent_mask(LQ)[0], hw.causal().allowed(LQ, LQ))


def test_dropout_works_in_training_only_and_attn_is_before_it():
    q, k, v = (x.float() for x in inputs())
    module = annotated.MultiHeadedAttention(H, WIDTH, dropout=0.5)
    assert not torch.equal(module(q, k, v), module(q, k, v))
    torch.testing.assert_close(module.attn.sum(-1), torch.ones(B, H, LQ))
    module.eval()
    assert torch.equal(module(q, k, v), module(q, k, v))


def test_a_used_layer_is_copied_pickled_compiled_exported_mapped_and_watched():
    module, given = layer(), (*(x.float() for x in inputs()), empty_rows())
    wanted = module(*given)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.attn is None
        assert torch.equal(other(*given), wanted)
    assert torch.equal(torch.export.export(module, given).module()(*given), wanted)
    assert torch.equal(torch.compile(module, fullgraph=True, backend="eager")(*given), wanted)
    assert module.attn is None
    torch.testing.assert_close(torch.func.vmap(lambda x: module(x, x, x))(given[0][None])[0], module(*given[:1] * 3))
    with hw.watch(module) as seen:
        assert torch.equal(module(*given), wanted)
    assert torch.equal(seen[""].dense(), module.attn)
