"""Gradients: what a scalar owes to each weight, against autograd through weights that the model computes itself."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError, StaleMapError
from headwise.maps.weight_gradients import OutputGradient
from tests.intervening.test_intervene import KINDS, inputs_of
from tests.watching import families, styles
from tests.watching.models import made, x
from tests.watching.styles import HELD, LAZY, Projected

# heads, rows and keys all different, grouped, with every kind of rule
B, Hq, Hk, Lq, Lk, D, Dv = 2, 4, 2, 5, 7, 6, 3


def by_hand(q, k, v, mask=None, bias=None, scale=None, softcap=None, sink=None):
    """The output of attention and the weights that it is made of, which autograd can differentiate by."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink[None, :, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    weights = scores.softmax(-1)
    weights = weights[..., : k.shape[2]]
    return weights @ v, weights


def tensors(dtype=torch.float64):
    torch.manual_seed(3)
    shapes = ((B, Hq, Lq, D), (B, Hk, Lk, D), (B, Hk, Lk, Dv))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


class Call(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, *args):
        return self.run(*args)


ALLOWED = hw.causal().allowed(Lq, Lk)
RULES = {
    "plain": {},
    "causal": {"mask": ALLOWED},
    "bias and scale": {"bias": torch.linspace(-1, 1, Lk, dtype=torch.float64), "scale": 0.7},
    "softcap": {"softcap": 0.5},
    "sink": {"sink": torch.tensor([0.1, -0.4, 0.9, 2.0], dtype=torch.float64)},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_gradients_are_those_of_autograd_by_the_weights(rules):
    q, k, v = tensors()
    out, weights = by_hand(q, k, v, **rules)
    scalar = (out * torch.linspace(-1, 2, Dv, dtype=torch.float64)).sum() + out.square().sum()
    (wanted,) = torch.autograd.grad(scalar, weights)
    given = {{"bias": "attn_bias"}.get(name, name): value for name, value in rules.items()}
    if "attn_bias" in given:
        given["attn_bias"] = given["attn_bias"].expand(1, 1, Lq, Lk)
    model = Call(lambda q, k, v: hw.attention(q, k, v, **given))
    with hw.watch(model, gradients=True) as seen:
        ours = model(q, k, v)
    ((ours * torch.linspace(-1, 2, Dv, dtype=torch.float64)).sum() + ours.square().sum()).backward()
    m = seen[""]
    if "mask" in rules:
        assert bool((m.gradient().dense()[:, :, ~ALLOWED] == 0).all())
        wanted = wanted.masked_fill(~ALLOWED, 0.0)
    torch.testing.assert_close(m.gradient().dense(), wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(m.attribution().dense(), wanted * weights.detach(), rtol=0, atol=1e-12)
    # lazily, as a tensor is indexed
    at = (1, [3, 0, 2], [4, 2, 0], [6, 1, 3])
    torch.testing.assert_close(m.gradient()[at], wanted[at], rtol=0, atol=1e-12)
    torch.testing.assert_close(m.attribution()[:, 2, 1:3], (wanted * weights.detach())[:, 2, 1:3], rtol=0, atol=1e-12)
    sums = m.attribution().sums()
    torch.testing.assert_close(sums.by_query, (wanted * weights.detach()).sum(-1), rtol=0, atol=1e-12)
    torch.testing.assert_close(sums.by_key, (wanted * weights.detach()).sum(-2), rtol=0, atol=1e-12)


# by their own F.dropout, whatever the mode is
DROPPING = {"masked by -1e9", "masked by -inf", "masked by a square", "folded", "a shut row", "masked too little"}


def weights_and_gradients(model, given, scalar_of):
    """The weights that an eager model gives, in running order, and the gradients of a scalar by them."""
    out = model(**given, output_attentions=True)
    weights = []
    for part in (out, getattr(out, "text_model_output", None), getattr(out, "vision_model_output", None)):
        if part is not None:
            for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
                weights += list(getattr(part, name, None) or ())
    grads = torch.autograd.grad(scalar_of(families.first(out)), weights, allow_unused=True)
    return [(w, g) for w, g in zip(weights, grads, strict=True) if g is not None]


@pytest.mark.parametrize(("name", "implementation"), KINDS)
def test_gradients_of_every_family_are_those_by_its_eager_weights(name, implementation):
    model = families.build(name, implementation)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    given = inputs_of(name, "eager")
    plain = families.first(model(**given))
    with hw.watch(model, gradients=True) as seen:
        out = families.first(model(**given))
    assert torch.equal(out, plain)
    # a scalar that no symmetry makes 0
    factors = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    (out * factors).sum().backward()
    wanted = weights_and_gradients(families.twin(model, torch.float32), given, lambda first: (first * factors).sum())
    found = [m for _, m in seen.in_order() if m._backward.output.total is not None]
    assert len(found) == len(wanted) > 0
    for m in found:
        # by its weights, as encoders run before decoders in one and beside them in the other
        same = [g for w, g in wanted if w.shape == m.shape and torch.allclose(w, m.dense(), atol=1e-4)]
        assert len(same) >= 1
        mine = m.gradient().dense()
        is_open = ~m.logits[:].isneginf()
        distance = min(float((mine - g).abs()[is_open].max()) for g in same)
        assert distance <= 2e-4 * max(1.0, float(mine.abs().max()))
        assert bool((mine[~is_open] == 0).all())


@pytest.mark.parametrize("style", [*LAZY, *HELD])
def test_what_a_linear_output_owes_to_the_weights_of_a_head_is_lost_with_the_head(style):
    attend, options = {**LAZY, **HELD}[style]
    torch.manual_seed(7)
    model = Projected(attend, **options).double().eval()
    given = [torch.randn(styles.B, size, styles.E).double() for size in (styles.L, styles.S)]
    torch.manual_seed(1)
    with hw.watch(model, gradients=True) as seen:
        out = model(*given)
    factors = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
    (m,) = seen.values()
    if style == "floored":
        with pytest.raises(RuntimeError, match="floor_divide"):
            (out * factors).sum().backward()
        return
    (out * factors).sum().backward()
    if style in DROPPING:
        with pytest.raises(ArgumentError, match=r"drops some of its weights at random: call model\.eval"):
            m.gradient()
        return
    owed = m.attribution().sums().by_query.sum((0, 2))
    assert bool((owed.abs() > 1e-6).any())
    for head in range(m.shape[1]):
        with torch.no_grad(), hw.intervene(model) as edits:
            edits.find("").zero(heads=head)
            torch.manual_seed(1)
            lost = ((out - model(*given)) * factors).sum()
        # some take their softmax in float32
        torch.testing.assert_close(owed[head].double(), lost, rtol=1e-6, atol=1e-6)


def test_torchs_own_layer_gives_the_gradients_of_its_weights():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    q, kv = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 7, 8, dtype=torch.float64)
    with hw.watch(layer, gradients=True) as seen:
        out, _ = layer(q, kv, kv)
    out.pow(3).sum().backward()
    E = 8
    qh, kh, vh = (
        torch.nn.functional.linear(t, w, b).unflatten(-1, (2, 4)).transpose(1, 2)
        for t, w, b in zip((q, kv, kv), layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3), strict=True)
    )
    heads, weights = by_hand(qh, kh, vh)
    mine = layer.out_proj(heads.transpose(1, 2).reshape(3, 5, E))
    (wanted,) = torch.autograd.grad(mine.pow(3).sum(), weights)
    torch.testing.assert_close(seen[""].gradient().dense(), wanted, rtol=0, atol=1e-11)


def test_gradients_of_two_passes_add_up_until_they_are_forgotten():
    attn = made(hw.MultiHeadAttention, embed_dim=12, num_heads=2)
    with hw.watch(attn, gradients=True) as seen:
        out = attn(x())
    out.sum().backward(retain_graph=True)
    once = seen[""].gradient().dense()
    out.sum().backward(retain_graph=True)
    torch.testing.assert_close(seen[""].gradient().dense(), 2 * once)
    seen.zero_grad()
    with pytest.raises(ArgumentError, match="no gradient has reached this call"):
        seen[""].gradient()
    out.sum().backward()
    torch.testing.assert_close(seen[""].gradient().dense(), once)


def test_what_has_no_gradient_says_why():
    attn = made(hw.MultiHeadAttention, embed_dim=12, num_heads=2)
    with hw.watch(attn) as seen:
        attn(x())
    with pytest.raises(ArgumentError, match="watch it with gradients=True"):
        seen[""].gradient()
    with hw.watch(attn, gradients=True) as seen, torch.no_grad():
        attn(x())
    with pytest.raises(ArgumentError, match="ran without autograd: run it outside of torch"):
        seen[""].attribution()
    dropping = made(hw.MultiHeadAttention, embed_dim=12, num_heads=2, dropout=0.3).train()
    with hw.watch(dropping, gradients=True) as seen:
        dropping(x()).sum().backward()
    with pytest.raises(ArgumentError, match=r"drops some of its weights at random: call model\.eval"):
        seen[""].gradient()
    with hw.watch(attn, gradients=True) as seen, hw.intervene(attn) as edits:
        edits.find("").zero(heads=1)
        attn(x()).sum().backward()
    with pytest.raises(ArgumentError, match="is changed by"):
        seen[""].gradient()
    with pytest.raises(ArgumentError, match="keep= lets its maps go"), hw.watch(attn, gradients=True, keep=id):
        pass


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_values_that_change_after_the_call_are_refused(dtype):
    q, k, v = tensors(dtype)
    v = v.detach()
    model = Call(lambda q, k, v: hw.attention(q, k, v))
    with hw.watch(model, gradients=True) as seen:
        out = model(q, k, v)
    out.sum().backward()
    gradient = seen[""].gradient()
    before = gradient[0, 0, 0, 0].clone()
    v.add_(1.0)
    for reading in (lambda: seen[""].gradient(), lambda: seen.outputs("")):
        with pytest.raises(StaleMapError, match="the values of a call must stay"):
            reading()
    if dtype is torch.float64:
        with pytest.raises(StaleMapError, match="the values of a call must stay"):
            gradient[0, 0, 0, 0]
    else:
        # made of a wider copy
        assert torch.equal(gradient[0, 0, 0, 0], before)


def test_a_gradient_that_cannot_be_read_says_so_until_it_is_forgotten():
    output = OutputGradient()
    output.add(None)
    with pytest.raises(ArgumentError, match="is not available: it has an output whose order of axes could not be"):
        output.gradient()
    output.clear()
    output.add(torch.ones(1, 1, 1, 1))
    assert torch.equal(output.gradient(), torch.ones(1, 1, 1, 1))
