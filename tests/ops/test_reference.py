"""The definition itself, against loops over plain numbers: nothing here shares code with headwise."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.ops import reference
from headwise.testing import plain_attention
from tests.cases import MASKS, RULES, SHAPES, Shape, dense_mask, rules, tensors

ONE = SHAPES["all sizes differ"]


def by_loops(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, *, attn_bias: Tensor | None = None, scale: float | None = None,
    softcap: float | None = None, sink: Tensor | None = None,
) -> tuple[list[float], list[float], list[float]]:  # fmt: skip
    """Output, weights and lse as flat lists, one query after another, from Python's own floats."""
    (B, Hq, Lq, D), (_, Hk, Lk, Dv) = q.shape, v.shape
    allowed = allowed.expand(B, Hq, Lq, Lk)
    bias = None if attn_bias is None else attn_bias.double().expand(B, Hq, Lq, Lk)
    out, weights, lse = [], [], []
    for b, h, i in ((b, h, i) for b in range(B) for h in range(Hq) for i in range(Lq)):
        shared = h // (Hq // Hk)
        terms = {}
        for j in range(Lk):
            if not allowed[b, h, i, j]:
                continue
            score = sum(float(q[b, h, i, d]) * float(k[b, shared, j, d]) for d in range(D))
            score *= 1 / math.sqrt(D) if scale is None else scale
            score = score if softcap is None else softcap * math.tanh(score / softcap)
            terms[j] = math.exp(score + (0.0 if bias is None else float(bias[b, h, i, j])))
        total = sum(terms.values()) + (0.0 if sink is None else math.exp(float(sink[h])))
        row = [terms.get(j, 0.0) / total if total else 0.0 for j in range(Lk)]
        weights += row
        lse.append(math.log(total) if total else -math.inf)
        out += [sum(row[j] * float(v[b, shared, j, d]) for j in range(Lk)) for d in range(Dv)]
    return out, weights, lse


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", MASKS)
def test_output_weights_and_lse_are_those_of_the_loops(mask: str, rule: str) -> None:
    shape = Shape(B=2, Hq=4, Hk=2, Lq=3, Lk=5, D=2, Dv=3)
    q, k, v = tensors(shape, torch.float64)
    given = rules(mask, rule, shape)
    allowed = dense_mask(given["mask"], shape)
    plain = {name: value for name, value in given.items() if name != "mask"}
    out, weights, lse = by_loops(q, k, v, torch.ones(3, 5).bool() if allowed is None else allowed, **plain)
    for got, want in (
        (reference.attention(q, k, v, **given), out),
        (reference.attention_weights(q, k, **given), weights),
        (reference.attention_lse(q, k, **given), lse),
    ):
        assert got.dtype is torch.float64
        assert torch.allclose(got.flatten(), torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", MASKS)
def test_in_float64_it_is_plain_attention(mask: str, rule: str) -> None:
    q, k, v = tensors(ONE, torch.float64)
    given: dict[str, Any] = rules(mask, rule, ONE)
    plain = {name: value for name, value in given.items() if name != "mask"}
    want = plain_attention(q, k, v, allowed=dense_mask(given["mask"], ONE), **plain)
    assert torch.allclose(reference.attention(q, k, v, **given), want, rtol=1e-12, atol=1e-13)


def test_rows_of_weights_sum_to_one_or_to_what_the_sink_leaves() -> None:
    q, k, _ = tensors()
    assert torch.allclose(reference.attention_weights(q, k).sum(-1), torch.ones(2, 6, 5))
    sink = torch.linspace(-1, 1, 6)
    left = reference.attention_weights(q, k, sink=sink).sum(-1)
    lse = reference.attention_lse(q, k, sink=sink)
    assert torch.allclose(left, 1 - (sink[None, :, None] - lse).exp(), atol=1e-6)
    assert bool((left < 1).all())


def test_an_empty_row_has_no_weight_and_the_lse_of_nothing() -> None:
    q, k, _ = tensors()
    nothing = torch.zeros(5, 7, dtype=torch.bool)
    assert reference.attention_weights(q, k, mask=nothing).abs().max() == 0
    assert bool(reference.attention_lse(q, k, mask=nothing).eq(-math.inf).all())
    sink = torch.linspace(-1, 1, 6)
    assert torch.allclose(reference.attention_lse(q, k, mask=nothing, sink=sink), sink[None, :, None].expand(2, 6, 5))


def test_worked_by_hand() -> None:
    # one query that scores 0 and ln 3 on its keys: weights 1/4 and 3/4
    q, k = torch.tensor([[[[1.0]]]]), torch.tensor([[[[0.0], [math.log(3)]]]])
    v = torch.tensor([[[[4.0, 0.0], [0.0, 8.0]]]])
    assert torch.allclose(hw.attention(q, k, v), torch.tensor([[[[1.0, 6.0]]]]))
    assert torch.allclose(hw.attention(q, k, v, mask=torch.tensor([[True, False]])), torch.tensor([[[[4.0, 0.0]]]]))
    # a sink of logit 0 takes as much as the first key: 1/5, 3/5, and 1/5 for nothing
    assert torch.allclose(hw.attention(q, k, v, sink=torch.zeros(1)), torch.tensor([[[[0.8, 4.8]]]]))


def test_additive_scores_are_those_of_the_formula() -> None:
    q, k, v = tensors(Shape(B=2, Hq=4, Hk=2, Lq=3, Lk=5, D=2, Dv=3), torch.float64)
    weight = torch.randn(4, 2, dtype=torch.float64)
    keep = torch.tensor([[True, True, False, True, False], [False] * 5])
    scores = torch.empty(2, 4, 3, 5, dtype=torch.float64)
    for b, h, i, j in ((b, h, i, j) for b in range(2) for h in range(4) for i in range(3) for j in range(5)):
        scores[b, h, i, j] = sum(weight[h, d] * math.tanh(q[b, h, i, d] + k[b, h // 2, j, d]) for d in range(2))
    scores = scores.masked_fill(~keep[:, None, None], -math.inf)
    want = torch.nan_to_num(scores.softmax(-1)) @ v.repeat_interleave(2, dim=1)
    assert torch.allclose(hw.additive_attention(q, k, v, weight, mask=hw.keys(keep)), want)
    shared = hw.additive_attention(q, k, v, weight[0], mask=hw.keys(keep))
    assert torch.allclose(shared, hw.additive_attention(q, k, v, weight[:1].expand(4, 2), mask=hw.keys(keep)))


def test_additive_weights_of_another_size_are_refused() -> None:
    q, k, v = tensors()
    with pytest.raises(hw.errors.ShapeError, match=r"weight must be \(Hq=6, D=11\), or \(D=11,\).*came as \(3, 11\)"):
        hw.additive_attention(q, k, v, torch.zeros(3, 11))
