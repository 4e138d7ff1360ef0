"""d2l's layers on headwise give the numbers of d2l's formulas: both signatures, every valid_lens, empty rows too."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.compat import d2l
from headwise.errors import ArgumentError, MaskError, ShapeError
from headwise.testing import assert_within_budget
from tests.compat.agreement import Weights, assert_agrees, randn

B, H, LQ, LK, DV, HIDDEN = 2, 3, 5, 7, 13, 12
SIZES = {"key_size": 8, "query_size": 9, "value_size": 10}
LENS = {
    "none": None,
    "a sample each": torch.tensor([3, 7]),
    "one of them 0": torch.tensor([0, 4]),
    "a query each": torch.tensor([[1, 2, 3, 4, 5], [7, 6, 9, 1, 2]]),
    "some queries 0": torch.tensor([[0, 2, 0, 4, 5], [0, 0, 0, 0, 0]]),
    "int32": torch.tensor([2, 5], dtype=torch.int32),
    "broken": torch.tensor([2.0, 3.5]),
    "below 0": torch.tensor([-2, 5]),
}


def softmax_of_the_book(X: Tensor, lens: Tensor | None) -> Tensor:
    """d2l's formula: a score of -1e6 where a key is beyond its length, over all rows (B, Lq) of X alike."""
    if lens is None:
        return torch.softmax(X, dim=-1)
    rows = lens.repeat_interleave(X.shape[1]) if lens.ndim == 1 else lens.reshape(-1)
    blocked = torch.arange(X.shape[2], dtype=torch.float32)[None] >= rows[:, None]
    return torch.softmax(X.masked_fill(blocked.reshape(X.shape), -1e6), dim=-1)


def by_heads(weights: Weights, q: Tensor, k: Tensor, v: Tensor, lens: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output and the weights (B·H, Lq, Lk) of d2l's multi-head attention, one head after the other."""
    q, k, v = (
        x @ weights[f"W_{n}.weight"].T + weights.get(f"W_{n}.bias", 0) for n, x in zip("qkv", (q, k, v), strict=True)
    )
    q, k, v = (torch.stack([part for sample in x for part in sample.chunk(H, dim=-1)]) for x in (q, k, v))
    lens = None if lens is None else lens.repeat_interleave(H, dim=0)
    seen = softmax_of_the_book(torch.bmm(q, k.mT) / math.sqrt(HIDDEN // H), lens)
    mixed = torch.bmm(seen, v)
    joined = torch.stack([torch.cat(list(heads), dim=-1) for heads in mixed.split(H)])
    return joined @ weights["W_o.weight"].T + weights.get("W_o.bias", 0), seen


def additive(weights: Weights, q: Tensor, k: Tensor, v: Tensor, lens: Tensor | None) -> tuple[Tensor, Tensor]:
    features = torch.tanh((q @ weights["W_q.weight"].T)[:, :, None] + (k @ weights["W_k.weight"].T)[:, None])
    seen = softmax_of_the_book((features @ weights["w_v.weight"].T)[..., 0], lens)
    return torch.bmm(seen, v), seen


def inputs() -> list[Tensor]:
    return [randn(B, LQ, 9, seed=1), randn(B, LK, 8, seed=2), randn(B, LK, 10, seed=3)]


def layer(**given: object) -> d2l.MultiHeadAttention:
    return d2l.MultiHeadAttention(**SIZES, **{"num_hiddens": HIDDEN, "num_heads": H, "dropout": 0.0, **given})


@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_gives_the_numbers_of_the_book(bias, lens):
    assert_agrees(layer(bias=bias), lambda *given: by_heads(*given)[0], inputs(), LENS[lens])


@pytest.mark.parametrize("lens", LENS)
def test_additive_attention_gives_the_numbers_of_the_book(lens):
    module = d2l.AdditiveAttention(key_size=8, query_size=9, num_hiddens=6, dropout=0.0)
    assert_agrees(module, lambda *given: additive(*given)[0], inputs(), LENS[lens])


@pytest.mark.parametrize("lens", LENS)
def test_dot_product_attention_gives_the_numbers_of_the_book(lens):
    q, k, v = randn(B, LQ, 4, seed=1), randn(B, LK, 4, seed=2), randn(B, LK, DV, seed=3)
    exact, plain = (
        torch.bmm(softmax_of_the_book(torch.bmm(q.to(t), k.mT.to(t)) / 2.0, LENS[lens]), v.to(t))
        for t in (torch.float64, torch.float32)
    )
    module = d2l.DotProductAttention(0.0)
    assert_within_budget(module(q.float(), k.float(), v.float(), LENS[lens]), exact, plain)


@pytest.mark.parametrize("lens", LENS)
def test_attention_weights_are_those_of_the_book_and_carry_gradients(lens):
    for module, formula in (
        (layer(), by_heads),
        (d2l.AdditiveAttention(key_size=8, query_size=9, num_hiddens=6, dropout=0.0), additive),
    ):
        weights = {name: weight.detach() for name, weight in module.named_parameters()}
        module(*(x.float() for x in inputs()), LENS[lens])
        got = getattr(module, "attention", module).attention_weights
        _, exact = formula({name: weight.double() for name, weight in weights.items()}, *inputs(), LENS[lens])
        _, plain = formula(weights, *(x.float() for x in inputs()), LENS[lens])
        assert_within_budget(got, exact, plain)
        got.square().sum().backward()
        assert module.W_q.weight.grad.isfinite().all()


def test_attention_weights_are_before_dropout_and_there_after_a_call_only():
    module = layer(dropout=0.9)
    assert module.attention.attention_weights is None
    module(*(x.float() for x in inputs()), None)
    torch.testing.assert_close(module.attention.attention_weights.sum(-1), torch.ones(B * H, LQ))


@pytest.mark.parametrize("lens", LENS)
def test_masked_softmax_is_that_of_the_book_and_leaves_the_scores_alone(lens):
    X = randn(B, LQ, LK)
    scores = X.float()
    got = d2l.masked_softmax(scores, LENS[lens])
    assert torch.equal(scores, X.float())
    assert_within_budget(got, softmax_of_the_book(X, LENS[lens]), softmax_of_the_book(X.float(), LENS[lens]))


def test_scores_below_the_books_constant_do_not_turn_the_mask_round():
    X = torch.full((1, 1, 3), -2e6)
    assert softmax_of_the_book(X, torch.tensor([2]))[0, 0, 2] == 1.0
    assert torch.equal(d2l.masked_softmax(X, torch.tensor([2])), torch.tensor([[[0.5, 0.5, 0.0]]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_empty_row_is_even_in_half_precision(dtype):
    module = layer().to(dtype)
    q, k, v = (x.to(dtype) for x in inputs())
    assert module(q, k, v, torch.tensor([0, 4])).isfinite().all()
    assert torch.equal(module.attention.attention_weights[:H], torch.full((H, LQ, LK), 1 / LK, dtype=dtype))
    additive_module = d2l.AdditiveAttention(8, 9, 6, 0.0).to(dtype)
    additive_module(q, k, v, torch.tensor([0, 4]))
    assert torch.equal(additive_module.attention_weights[0], torch.full((LQ, LK), 1 / LK, dtype=dtype))
    assert torch.equal(
        d2l.masked_softmax(-30 * torch.ones(1, 1, 4, dtype=dtype), torch.tensor([0])).sum(), torch.ones((), dtype=dtype)
    )


def test_padding_that_no_query_sees_may_hold_nan():
    q, k, v = (x.float() for x in inputs())
    lens = torch.tensor([[3, 2, 0, 3, 1], [5, 5, 5, 5, 5]])
    for module in (layer(), d2l.AdditiveAttention(8, 9, 6, 0.0)):
        wanted = module(q, k, v, lens)
        holed = k.clone()
        holed[0, 3:], holed[1, 5:] = math.nan, math.inf
        assert torch.equal(module(q, holed, v, lens), wanted)


def test_the_english_layers_learn_their_widths_as_lazy_linears_do():
    torch.manual_seed(3)
    lazy = d2l.MultiHeadAttention(HIDDEN, H, 0.0)
    assert isinstance(lazy.W_q, nn.LazyLinear)
    wanted = layer()
    lazy.load_state_dict(wanted.state_dict())
    given = [x.float() for x in inputs()]
    assert torch.equal(lazy(*given, LENS["a query each"]), wanted(*given, LENS["a query each"]))
    assert {type(p) for p in (lazy.W_q, lazy.W_k, lazy.W_v, lazy.W_o)} == {nn.Linear}
    module = d2l.AdditiveAttention(num_hiddens=6, dropout=0.0)
    module(*given, None)
    assert [tuple(w.shape) for w in module.state_dict().values()] == [(6, 8), (6, 9), (1, 6)]


@pytest.mark.parametrize(
    ("given", "named", "widths"),
    [
        ((12, 3, 0.5), {}, None),
        ((12, 3), {"dropout": 0.5, "bias": True}, None),
        ((8, 9, 10, 12, 3, 0.5), {}, (9, 8, 10)),
        ((8, 9, 10, 12, 3, 0.5, True), {}, (9, 8, 10)),
        ((8, 9, 10, 12), {"num_heads": 3, "dropout": 0.5}, (9, 8, 10)),
        ((), {**SIZES, "num_hiddens": 12, "num_heads": 3, "dropout": 0.5, "bias": True}, (9, 8, 10)),
    ],
)
def test_the_signature_is_told_by_number_and_names(given, named, widths):
    module = d2l.MultiHeadAttention(*given, **named)
    found = tuple(p.in_features for p in (module.W_q, module.W_k, module.W_v))
    assert found == ((0, 0, 0) if widths is None else widths)
    assert (module.num_heads, module.W_o.out_features, module.attention.dropout.p) == (3, 12, 0.5)
    assert (module.W_o.bias is not None) == (named.get("bias", False) or given[6:] == (True,))


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        ((8, 9, 10, 12, 3), {}, "but 5 arguments came, which fit neither"),
        ((12, 3), {}, "but 2 arguments came, which fit neither"),
        ((12, 3, 0.1), {"key_size": 4}, "but 3 arguments and key_size by name came"),
        ((12, 3, 0.1), {"mask": 4}, "but 3 arguments and mask by name came"),
        ((100, 100, 100), {}, r"dropout is the chance of zeroing a weight, so it must lie in 0\.\.1; got 100"),
        ((12, 3, 0, 5), {}, "bias must be True or False; got bias=5"),
        ((12, 5, 0.1), {}, "num_heads=5 must divide num_hiddens=12"),
        ((12, 0, 0.1), {}, "num_heads counts heads or features, so it must be 1 or more; got num_heads=0"),
        ((True, 3, 0.1), {}, "got num_hiddens=True"),
    ],
)
def test_what_fits_no_signature_is_refused(given, named, words):
    with pytest.raises(ArgumentError, match=words):
        d2l.MultiHeadAttention(*given, **named)


@pytest.mark.parametrize(
    ("lens", "error", "words"),
    [
        (torch.tensor([True, False]), MaskError, "must be numbers of keys, but torch.bool came"),
        ([3, 2], MaskError, "must be numbers of keys, but list came"),
        (torch.tensor([3, 2, 1]), ShapeError, r"\(B=2,\) or \(B=2, Lq=5\), but came as \(3,\)"),
        (torch.ones(2, 7, dtype=torch.long), ShapeError, r"\(B=2,\) or \(B=2, Lq=5\), but came as \(2, 7\)"),
        (torch.ones(2, 1, 5), ShapeError, r"but came as \(2, 1, 5\)"),
    ],
)
def test_valid_lens_of_another_kind_are_refused(lens, error, words):
    with pytest.raises(error, match=words):
        layer()(*(x.float() for x in inputs()), lens)


def test_ranks_and_lengths_that_do_not_fit_are_refused():
    q, k, v = (x.float() for x in inputs())
    with pytest.raises(ShapeError, match=r"keys must be \(B=2, L, width=8\), but came as \(7, 8\)"):
        layer()(q, k[0], v, None)
    with pytest.raises(ShapeError, match="Lk=7 keys and 6 values came"):
        layer()(q, k, v[:, :6], None)
    with pytest.raises(ShapeError, match=r"scores must be \(B, Lq, Lk\).*came as \(5, 7\)"):
        d2l.masked_softmax(torch.zeros(5, 7), torch.tensor([1]))


def test_heads_are_folded_sample_by_sample_and_back():
    x = randn(B, LQ, HIDDEN)
    folded = d2l.transpose_qkv(x, H)
    assert torch.equal(folded[H], x[1, :, : HIDDEN // H])
    assert torch.equal(d2l.transpose_output(folded, H), x)
    assert torch.equal(layer().transpose_output(layer().transpose_qkv(x)), x)


def test_dropout_works_in_training_only():
    q, k, v = (x.float() for x in inputs())
    module = layer(dropout=0.5)
    assert not torch.equal(module(q, k, v, None), module(q, k, v, None))
    module.eval()
    assert torch.equal(module(q, k, v, None), module(q, k, v, None))


def test_a_used_layer_is_copied_pickled_compiled_exported_and_watched():
    module, given = layer(), (*(x.float() for x in inputs()), LENS["some queries 0"])
    wanted = module(*given)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.attention.attention_weights is None
        assert torch.equal(other(*given), wanted)
    assert torch.equal(torch.export.export(module, given).module()(*given), wanted)
    assert module.attention.attention_weights is None
    assert torch.equal(torch.compile(module, fullgraph=True, backend="eager")(*given), wanted)
    with hw.watch(module) as seen:
        assert torch.equal(module(*given), wanted)
    assert torch.equal(seen["attention"].dense()[:, 0], module.attention.attention_weights)
