"""Forward-mode derivatives and torch.func go through every reading, or are refused in one sentence."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import headwise as hw
from headwise.errors import ArgumentError
from headwise.maps import additive_map, attention_map
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, Shape, rules
from tests.maps.oracle import OF_SCORES, OF_WEIGHTS, Dense, doubled, inputs, made

READINGS = OF_WEIGHTS | OF_SCORES
LEAVES = ("q", "k", "attn_bias", "sink")


def of_dense(name, case):
    dense = Dense(**case)
    return READINGS[name][1](dense if name in OF_SCORES else dense.weights)


def of_map(name, case, make=made):
    return READINGS[name][0](make(case))


def split(case):
    """The tensors of a case that may change, and a function that puts others in their place."""
    names = [name for name in LEAVES if name in case]
    return tuple(case[name] for name in names), lambda values: case | dict(zip(names, values, strict=True))


def directions(values, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in values)


def dual_tangent(read, values, along, *, with_grad=False):
    """The tangent by dual numbers, of leaves that may want a gradient too."""
    with forward_ad.dual_level():
        leaves = [t.detach().clone().requires_grad_(with_grad) for t in values]
        result = read(tuple(forward_ad.make_dual(t, d) for t, d in zip(leaves, along, strict=True)))
        return forward_ad.unpack_dual(result).tangent


@pytest.mark.parametrize("rule", ["no rule", "all of them"])
@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row"])
@pytest.mark.parametrize("name", READINGS)
def test_a_forward_derivative_is_that_of_the_definition(name, mask, rule, monkeypatch):
    case = inputs(**rules(mask, rule, DIFFERENT))
    (values, put), (wide, put_wide) = split(case), split(doubled(case))
    along = directions(values)
    _, exact = jvp(lambda *v: of_dense(name, put_wide(v)), wide, tuple(d.double() for d in along))
    _, plain = jvp(lambda *v: of_dense(name, put(v)), values, along)
    assert bool((exact != 0).any())
    for entries in (1 << 20, 0):
        monkeypatch.setattr("headwise.maps.map.ENTRIES", entries)
        for with_grad in (False, True):
            got = dual_tangent(lambda v: of_map(name, put(v)), values, along, with_grad=with_grad)
            assert_within_budget(got.detach(), exact, plain, factor=4.0)
        _, got = jvp(lambda *v: of_map(name, put(v)), values, along)
        assert_within_budget(got, exact, plain, factor=4.0)


def test_a_forward_derivative_is_there_though_the_lse_is_given_and_the_strips_are_small(monkeypatch):
    monkeypatch.setattr("headwise.maps.strips.ENTRIES", 8)
    monkeypatch.setattr("headwise.maps.strips.BLOCK", 2)
    monkeypatch.setattr("headwise.maps.map.ENTRIES", 0)
    case = inputs(mask=hw.causal())
    values, put = split(case)
    along = directions(values)
    for name in READINGS:
        _, exact = jvp(lambda *v, n=name: of_dense(n, doubled(put(v))), values, along)
        _, plain = jvp(lambda *v, n=name: of_dense(n, put(v)), values, along)
        got = dual_tangent(lambda v, n=name: READINGS[n][0](made(put(v), with_lse=True)), values, along)
        assert_within_budget(got, exact.double(), plain, factor=4.0)


@pytest.mark.parametrize("name", sorted(OF_WEIGHTS))
def test_the_mean_of_the_heads_has_forward_derivatives_too(name):
    case = inputs(**rules("padding and causal", "sink", DIFFERENT))
    values, put = split(case)
    along = directions(values)
    ours, theirs = OF_WEIGHTS[name]

    def mean(v, case=case):
        return theirs(Dense(**v).weights.mean(1, keepdim=True))

    _, exact = jvp(lambda *v: mean(doubled(put(v))), values, along)
    _, plain = jvp(lambda *v: mean(put(v)), values, along)
    got = dual_tangent(lambda v: ours(made(put(v)).mean_heads()), values, along)
    assert_within_budget(got, exact.double(), plain, factor=4.0)


@pytest.mark.parametrize("name", READINGS)
def test_additive_scoring_has_forward_derivatives_too(name):
    case = inputs(mask=hw.causal()) | {"weight": torch.linspace(-1, 2, 66).view(6, 11)}
    along = torch.ones(6, 11)
    _, exact = jvp(lambda w: of_dense(name, doubled(case | {"weight": w})), (case["weight"],), (along,))
    _, plain = jvp(lambda w: of_dense(name, case | {"weight": w}), (case["weight"],), (along,))
    _, got = jvp(lambda w: of_map(name, case | {"weight": w}, lambda c: additive_map(**c)), (case["weight"],), (along,))
    assert_within_budget(got, exact.double(), plain, factor=4.0)


def test_single_pairs_have_forward_derivatives_too(monkeypatch):
    monkeypatch.setattr("headwise.maps.matrix.SMALL", 0)
    monkeypatch.setattr("headwise.maps.matrix.WASTE", 1)
    case = inputs(**rules("an empty row", "all of them", DIFFERENT))
    values, put = split(case)
    along, at = directions(values), (0, slice(None), torch.arange(5), torch.arange(5) + 2)
    _, exact = jvp(lambda *v: Dense(**doubled(put(v))).weights[at], values, along)
    _, plain = jvp(lambda *v: Dense(**put(v)).weights[at], values, along)
    got = dual_tangent(lambda v: made(put(v))[at], values, along)
    assert_within_budget(got, exact.double(), plain, factor=4.0)


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row"])
@pytest.mark.parametrize("name", READINGS)
def test_torch_func_grad_is_that_of_autograd(name, mask):
    case = inputs(**rules(mask, "all of them", DIFFERENT))
    values, put = split(case)
    every = tuple(range(len(values)))
    got = grad(lambda *v: of_map(name, put(v)).square().sum(), every)(*values)
    exact = grad(lambda *v: of_dense(name, doubled(put(v))).square().sum(), every)(*(t.double() for t in values))
    plain = grad(lambda *v: of_dense(name, put(v)).square().sum(), every)(*values)
    for found in zip(got, exact, plain, strict=True):
        assert_within_budget(*found, factor=4.0)


@pytest.mark.parametrize("batched", ["q", "k", "attn_bias", "sink", "mask"])
@pytest.mark.parametrize("name", READINGS)
def test_vmap_is_a_loop(name, batched):
    case = inputs(**rules("dense, a head each", "all of them", DIFFERENT))
    first = case[batched]
    some = torch.stack([first, first.roll(1, -1), first.flip(-1)])
    for with_lse in (False, True):
        wanted = torch.stack([READINGS[name][0](made(case | {batched: t}, with_lse=with_lse)) for t in some])
        got = vmap(lambda t: READINGS[name][0](made(case | {batched: t})))(some)
        plain = torch.stack([of_dense(name, case | {batched: t}) for t in some])
        assert_within_budget(got, wanted.double(), plain, factor=4.0)


@pytest.mark.parametrize("name", ["entropy", "lse", "received", "one column"])
def test_transforms_of_transforms_agree(name):
    case = inputs(Shape(B=1, Hq=2, Hk=1, Lq=2, Lk=3, D=2), dtype=torch.float64, mask=hw.causal())
    if name == "one column":
        ours, theirs = (lambda m: m[..., 1]), (lambda d: d.weights[..., 1])
    else:
        ours = READINGS[name][0]
        theirs = READINGS[name][1] if name in OF_SCORES else (lambda d: READINGS[name][1](d.weights))

    def mine(q):
        return ours(made(case | {"q": q}))

    def dense(q):
        return theirs(Dense(**case | {"q": q}))

    for transform in (jacrev, jacfwd, lambda f: hessian(lambda q: f(q).square().sum()), lambda f: jacfwd(jacrev(f))):
        got, want = transform(mine)(case["q"]), transform(dense)(case["q"])
        assert bool((want != 0).any())
        assert_within_budget(got, want, want, factor=16.0)


def test_a_batch_of_gradients_at_once_is_refused_outside_and_right_inside():
    case = inputs(**rules("padding and causal", "all of them", DIFFERENT))
    q = case["q"].clone().requires_grad_()
    weights = torch.randn(3, 2, 6, 5, generator=torch.Generator().manual_seed(0))
    for ask in (
        lambda r: torch.autograd.grad(r, q, weights, is_grads_batched=True),
        lambda r: vmap(lambda w: torch.autograd.grad(r, q, w))(weights),
    ):
        with pytest.raises(ArgumentError, match="takes one gradient at a time, but a batch of them came"):
            ask(made(case | {"q": q}).entropy())
    wanted = torch.stack([torch.autograd.grad(made(case | {"q": q}).entropy(), q, w)[0] for w in weights])
    _, backward = vjp(lambda q: made(case | {"q": q}).entropy(), case["q"])
    (got,) = vmap(backward)(weights)
    assert_within_budget(got, wanted.double(), wanted, factor=4.0)


def test_what_needs_numbers_is_refused_in_torch_func(tmp_path):
    q, k = inputs()["q"], inputs()["k"]
    for ask in (lambda m: m.check(), lambda m: m.save(tmp_path / "m")):
        for transform in (vmap, grad, jacfwd):
            with pytest.raises(ArgumentError, match=r"needs the numbers themselves, but torch.func \(grad, vmap, jvp"):
                transform(lambda q, ask=ask: ask(attention_map(q, k)))(q[None] if transform is vmap else q)
    assert not list(tmp_path.iterdir())
