"""Few queries of heads that share keys are given to torch's kernel together, so that each key is read once."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from headwise.testing import assert_within_budget

B, Hq, Hk, Lk, D = 2, 6, 3, 37, 8
SPREAD = torch.randn(B, Hq, 1, Lk, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def given(monkeypatch) -> list[tuple[torch.Size, torch.Size]]:
    """The sizes of q and k with which torch's kernel is called."""
    found, own = [], F.scaled_dot_product_attention

    def recorded(q: Tensor, k: Tensor, *others, **options) -> Tensor:
        found.append((q.shape, k.shape))
        return own(q, k, *others, **options)

    # context_parallel is told by the function that it puts in this place
    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    return found


@pytest.mark.parametrize(
    ("Lq", "rules"),
    [
        (1, {}),
        (5, {}),
        (1, {"mask": hw.lengths([9, 30])}),
        (1, {"mask": hw.causal() & hw.window(before=11)}),
        (1, {"mask": hw.allowed(SPREAD > -0.5)}),
        (1, {"attn_bias": SPREAD}),
        (1, {"attn_bias": SPREAD[:1, :, :, :1]}),
        (1, {"attn_bias": SPREAD[0, 0]}),
        (1, {"attn_bias": SPREAD[0, 0, :, :1]}),
        (1, {"attn_bias": SPREAD, "mask": hw.lengths([9, 30])}),
    ],
    ids=lambda value: ", ".join(value) or "all pairs" if isinstance(value, dict) else f"{value} queries",
)
def test_queries_of_one_key_head_go_together_and_give_what_the_definition_gives(Lq, rules, given):
    q, k, v = (torch.randn(B, H, L, D) for H, L in ((Hq, Lq), (Hk, Lk), (Hk, Lk)))
    exact = hw.attention(q.double(), k.double(), v.double(), backend="reference", **rules)
    written_out = hw.attention(q, k, v, backend="reference", **rules)
    # the second call takes the way of repeated calls
    for _ in range(2):
        out = hw.attention(q, k, v, backend="sdpa", **rules)
        assert given.pop() == ((B, Hk, Hq // Hk * Lq, D), k.shape)
        assert_within_budget(out, exact, written_out)


@pytest.mark.parametrize(
    ("Lq", "rules"), [(1, {"q": True}), (Lk, {}), (5, {"mask": hw.causal()}), (5, {"attn_bias": SPREAD[0, 0]})],
    ids=["a gradient", "as many queries as keys", "several queries with a mask", "several with a bias"],
)  # fmt: skip
def test_other_calls_of_grouped_heads_are_given_as_they_came(Lq, rules, given):
    q, k, v = (torch.randn(B, H, L, D) for H, L in ((Hq, Lq), (Hk, Lk), (Hk, Lk)))
    q.requires_grad_(rules.pop("q", False))
    hw.attention(q, k, v, backend="sdpa", **rules)
    assert given == [(q.shape, k.shape)]


def test_a_watched_call_keeps_the_lse_of_each_head():
    layer = hw.MultiHeadAttention(Hq * D, Hq, num_kv_heads=Hk)
    with torch.no_grad(), hw.watch(layer) as seen:
        layer(torch.randn(B, 1, Hq * D), torch.randn(B, Lk, Hq * D))
    m = seen[""]
    assert m._passed_lse is not None
    assert torch.allclose(m.lse, m.logits.dense().logsumexp(-1), rtol=1e-6, atol=1e-6)
