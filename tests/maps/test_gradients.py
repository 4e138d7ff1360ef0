"""Gradients of every reading are those of the dense definition, first and second, for every rule, computed anew."""

import pytest
import torch

import headwise as hw
from headwise.maps import additive_map
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, Shape, rules
from tests.maps.oracle import OF_SCORES, OF_WEIGHTS, WIDE, Dense, doubled, inputs, made

READINGS = OF_WEIGHTS | OF_SCORES


def leaves(case):
    """The keywords with every tensor of scores a leaf that wants a gradient."""
    return {name: t.detach().clone().requires_grad_() if name in WIDE else t for name, t in case.items()}


def of_dense(name, case):
    dense = Dense(**case)
    return READINGS[name][1](dense if name in OF_SCORES else dense.weights)


def gradients(result, case, seed):
    wanted = [case[name] for name in WIDE if name in case]
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = torch.autograd.grad(result, wanted, weights.to(result.dtype), allow_unused=True)
    return torch.cat(
        [torch.zeros_like(t).flatten() if g is None else g.flatten() for t, g in zip(wanted, found, strict=True)]
    )


def assert_gradients(name, case, make):
    given = [leaves(inputs(seed=seed, **case)) for seed in range(2)]
    for with_lse in (False, True):
        got = torch.cat([gradients(READINGS[name][0](make(g, with_lse=with_lse)), g, 5) for g in given])
        exact = torch.cat([gradients(of_dense(name, g), g, 5) for g in map(leaves, map(doubled, given))])
        plain = torch.cat([gradients(of_dense(name, g), g, 5) for g in given])
        assert bool((exact != 0).any())
        assert_within_budget(got, exact, plain, factor=4.0)


@pytest.mark.parametrize("small", [False, True], ids=["in one piece", "in small pieces"])
@pytest.mark.parametrize("rule", ["no rule", "all of them", "bias shared by samples"])
@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row", "dense, a head each", "a rule"])
@pytest.mark.parametrize("name", READINGS)
def test_gradients_equal_those_of_the_dense_definition(name, mask, rule, small, monkeypatch):
    if small:
        monkeypatch.setattr("headwise.maps.strips.ENTRIES", 8)
        monkeypatch.setattr("headwise.maps.strips.BLOCK", 2)
        monkeypatch.setattr("headwise.maps.map.ENTRIES", 8)
    assert_gradients(name, rules(mask, rule, DIFFERENT), made)


@pytest.mark.parametrize("name", READINGS)
def test_additive_scoring_has_gradients_too(name):
    def make(given, *, with_lse):
        return additive_map(**given, lse=additive_map(**given).detach().lse if with_lse else None)

    weight = torch.linspace(-1, 2, 66).view(6, 11)
    assert_gradients(name, {"weight": weight, "mask": hw.causal()}, make)


@pytest.mark.parametrize("name", sorted({*OF_WEIGHTS} - {"dense"}))
def test_the_mean_of_the_heads_has_gradients_too(name):
    case = rules("padding and causal", "sink", DIFFERENT)
    given = [leaves(inputs(**case)), leaves(doubled(inputs(**case)))]
    plain, exact = (gradients(OF_WEIGHTS[name][1](Dense(**g).weights.mean(1, keepdim=True)), g, 5) for g in given)
    got = gradients(OF_WEIGHTS[name][0](made(given[0]).mean_heads()), given[0], 5)
    assert bool((exact != 0).any())
    assert_within_budget(got, exact, plain, factor=4.0)


@pytest.mark.parametrize("name", [*READINGS, "single pairs"])
def test_a_hidden_key_gets_no_gradient_and_gives_none(name, monkeypatch):
    def read(case):
        if name == "single pairs":
            return made(case)[..., torch.arange(5), torch.arange(5) + 2]
        return READINGS[name][0](made(case))

    if name == "single pairs":
        monkeypatch.setattr("headwise.maps.matrix.SMALL", 0)
        monkeypatch.setattr("headwise.maps.matrix.WASTE", 1)
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[0, 4:] = False
    clean = inputs(mask=hw.keys(keep) & hw.causal())
    holed = {**clean, "k": clean["k"].masked_fill(~keep[:, None, :, None], float("nan"))}
    got, want = (gradients(read(case), case, 5) for case in map(leaves, (holed, clean)))
    assert bool((want != 0).any())
    assert torch.equal(got, want)


def test_a_given_lse_is_a_number_and_the_gradient_flows_through_the_softmax():
    case = leaves(inputs(mask=hw.causal()))
    wrong = hw.maps.attention_map(case["q"], case["k"], mask=case["mask"], lse=torch.zeros(2, 6, 5))
    got = gradients(wrong.entropy(), case, 5)
    assert torch.equal(got, gradients(made(case).entropy(), case, 5))


@pytest.mark.parametrize("name", ["entropy", "one column", "lse", "picture", "largest", "received"])
def test_second_derivatives_pass_gradgradcheck(name, monkeypatch):
    monkeypatch.setattr("headwise.maps.map.ENTRIES", 0)
    case = leaves(doubled(inputs(Shape(B=1, Hq=2, Hk=1, Lq=2, Lk=5, D=2), sink=torch.tensor([0.5, -1.0]))))

    def read(q, k, sink):
        return READINGS[name][0](made({"q": q, "k": k, "sink": sink, "mask": hw.causal()}))

    given = (case["q"], case["k"], case["sink"])
    if name == "one column":
        assert torch.autograd.gradcheck(read, given)
    assert torch.autograd.gradgradcheck(read, given)


def test_where_no_gradient_is_wanted_no_graph_is_made():
    case = leaves(inputs())
    m = made(case)
    with torch.no_grad():
        assert not any(ours(m).requires_grad for ours, _ in READINGS.values())
    assert all(ours(m).requires_grad for ours, _ in READINGS.values())
    assert not any(ours(m.detach()).requires_grad for ours, _ in READINGS.values())


def test_half_precision_gets_gradients_of_its_own_dtype_rounded_once(monkeypatch):
    monkeypatch.setattr("headwise.maps.strips.ENTRIES", 8)
    case = leaves(inputs(dtype=torch.bfloat16, mask=hw.causal()))
    wide = leaves({name: t.detach().float() if name in WIDE else t for name, t in case.items()})
    got, want = (gradients(made(g).entropy(), g, 5) for g in (case, wide))
    assert got.dtype is torch.bfloat16
    assert torch.equal(got, want.bfloat16())


def test_without_keys_the_lse_is_the_sink_and_has_its_gradient():
    case = leaves(inputs(Shape(Lk=0), sink=torch.arange(6.0)))
    m = made(case)
    assert torch.equal(m.lse, case["sink"][:, None].expand(2, 6, 5))
    (found,) = torch.autograd.grad(m.lse.sum(), case["sink"])
    assert torch.equal(found, torch.full((6,), 10.0))


@pytest.mark.parametrize("name", [*READINGS, "one weight of a row"])
def test_a_row_that_its_bias_closes_has_no_gradient_and_spoils_none(name):
    bias = torch.zeros(5, 7).index_fill(0, torch.tensor([1, 3]), float("-inf"))
    case = inputs(attn_bias=bias)
    masked = inputs(mask=~bias.isneginf())
    if name == "one weight of a row":
        got, want = (gradients(made(g)[0, 0], g, 5) for g in (leaves(case), leaves(masked)))
    else:
        got, want = (gradients(READINGS[name][0](made(g)), g, 5) for g in (leaves(case), leaves(masked)))
    assert bool((want != 0).any())
    assert bool(got.isfinite().all())
    assert torch.equal(got[: len(want)], want)
