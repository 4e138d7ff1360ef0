"""What F.scaled_dot_product_attention was given, in every form that it takes, becomes the map of what it computed."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from headwise.errors import ArgumentError
from headwise.ops import reference
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.sizes import SIZES
from tests.watching.models import Attend, made, x

B, Hq, Hk, Lq, Lk, D, Dv = SIZES.values()


def rand(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def visible(*sizes):
    mask = rand(*sizes, seed=7) > 0.0
    mask[..., 0] = True
    return mask


class Call(nn.Module):
    """One call, made by a module."""

    def forward(self, *args, **options):
        return F.scaled_dot_product_attention(*args, **options)


# q, k, v without their last two axes, and the rest of the call
FORMS = {
    "plain": ((B, Hq), (B, Hq), {}),
    "scale": ((B, Hq), (B, Hq), {"scale": 0.3}),
    "grouped": ((B, Hq), (B, Hk), {"enable_gqa": True}),
    "one key head": ((B, Hq), (B, 1), {}),
    "one query head": ((B, 1), (B, Hq), {}),
    "one sample of keys": ((B, Hq), (1, Hq), {}),
    "causal, more keys": ((B, Hq), (B, Hq), {"is_causal": True}),
    "causal, grouped": ((B, Hq), (B, Hk), {"is_causal": True, "enable_gqa": True}),
    "bool mask": ((B, Hq), (B, Hq), {"attn_mask": visible(Lq, Lk)}),
    "bool mask a sample": ((B, Hq), (B, Hq), {"attn_mask": visible(B, 1, 1, Lk)}),
    "bool mask a head": ((B, Hq), (B, Hq), {"attn_mask": visible(Hq, Lq, Lk)}),
    "float mask": ((B, Hq), (B, Hq), {"attn_mask": rand(B, 1, Lq, Lk)}),
    "float mask of a row": ((B, Hq), (B, Hq), {"attn_mask": rand(1, Lk)}),
    "float mask with holes": (
        (B, Hq),
        (B, Hq),
        {"attn_mask": rand(Lq, Lk).masked_fill(~visible(Lq, Lk), float("-inf"))},
    ),
    "grouped, no samples": ((Hq,), (Hk,), {"enable_gqa": True, "attn_mask": visible(Hq, Lq, Lk)}),
    "no heads": ((B,), (B,), {"attn_mask": visible(B, Lq, Lk)}),
    "no heads, shared mask": ((B,), (B,), {"attn_mask": visible(Lq, Lk)}),
    "no samples": ((), (), {"attn_mask": visible(Lq, Lk)}),
    "two axes of samples": ((2, 3, Hq), (2, 3, Hq), {"attn_mask": visible(3, 1, Lq, Lk)}),
    "two axes, one shared": ((2, 3, Hq), (1, 3, Hq), {"attn_mask": rand(2, 1, 1, Lq, Lk)}),
}


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_call_gives_its_map(form, context):
    before_q, before_k, options = FORMS[form]
    q, k, v = rand(*before_q, Lq, D), rand(*before_k, Lk, D, seed=1), rand(*before_k, Lk, Dv, seed=2)
    model = Call()
    with context():
        wanted = model(q, k, v, **options)
        with watch(model) as seen:
            got = model(q, k, v, **options)
    assert torch.equal(got, wanted)
    wide = {name: t.double() if torch.is_tensor(t) and t.is_floating_point() else t for name, t in options.items()}
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **wide)
    shape = seen[""].shape
    weights = seen[""].dense().double()
    if v.ndim == 5:
        v = v.expand(*exact.shape[:3], Lk, Dv).reshape(-1, Hq, Lk, Dv)
    if options.get("enable_gqa") and v.ndim == 3:
        v = v[None]
    values = v.reshape((1,) * (3 - v.ndim) + v.shape)[:, None] if v.ndim < 4 else v
    if values.shape[1] != shape[1]:
        values = values.repeat_interleave(shape[1] // values.shape[1], dim=1)
    out = (weights @ values.double()).reshape(exact.shape)
    assert_within_budget(out.float(), exact, wanted.clone())
    with context():
        assert_within_budget(seen.outputs("")[0].reshape(exact.shape).clone(), exact, wanted.clone())


@pytest.mark.parametrize(
    ("before_q", "before_v"), [((1, Hq), (B, Hq)), ((2, 1, Hq), (2, 3, Hq)), ((1,), (B,)), ((), (B,))]
)
def test_values_of_more_samples_leave_the_map_as_it_is_and_the_outputs_unknown(before_q, before_v):
    q, v = rand(*before_q, Lq, D), rand(*before_v, Lq, Dv, seed=2)
    model = Call()
    with watch(model) as seen:
        model(q, q, v)
    weights = (q.double() @ q.double().mT / D**0.5).softmax(-1)
    assert_within_budget(seen[""].dense().reshape(weights.shape), weights, (q @ q.mT / D**0.5).softmax(-1))
    with pytest.raises(ArgumentError, match='the values of "" could not be followed'):
        seen.outputs("")


def test_a_query_that_sees_nothing_has_weights_of_zero():
    mask = visible(Lq, Lk)
    mask[2] = False
    model = Call()
    q, k = rand(B, Hq, Lq, D), rand(B, Hq, Lk, D, seed=1)
    with watch(model) as seen:
        model(q, k, k, attn_mask=mask)
    assert seen[""][:, :, 2].abs().max() == 0
    assert bool(seen[""].lse[:, :, 2].isneginf().all())


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": visible(Lq, Lk)},
        {"attn_mask": visible(B, 1, 1, Lk)},
        {"attn_mask": visible(B, Hq, Lq, Lk), "scale": -0.2},
        {"attn_mask": rand(Lq, Lk)},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_heads_of_one_width_keep_output_gradients_and_lse_of_the_kernel_to_the_bit(options, context):
    model = Call()
    with context():
        given = [rand(B, Hq, L, D, seed=n) for n, L in enumerate((Lq, Lk, Lk))]
        for t in given:
            t.requires_grad_(context is torch.enable_grad)
        wanted = model(*given, **options)
        with watch(model) as seen:
            got = model(*given, **options)
    assert torch.equal(got, wanted)
    if context is torch.enable_grad:
        assert type(got.grad_fn) is type(wanted.grad_fn)
        pairs = [torch.autograd.grad(out.square().sum(), given) for out in (wanted, got)]
        assert all(map(torch.equal, *pairs))
    q, k, _ = (t.detach().double() for t in given)
    scores = q @ k.mT * options.get("scale", D**-0.5)
    mask = options.get("attn_mask")
    if options.get("is_causal"):
        mask = torch.ones(Lq, Lk, dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    assert torch.allclose(seen[""].lse.double(), scores.logsumexp(-1), rtol=1e-6, atol=1e-6)
    assert seen[""]._passed_lse is not None


class Recorder(TorchFunctionMode):
    """Keeps the functions that were called."""

    def __init__(self):
        super().__init__()
        self.called = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.called.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("is_inner", [True, False])
def test_a_mode_of_others_sees_the_function_that_the_model_has_called(is_inner):
    model, q, other = Call(), rand(B, Hq, Lq, D), Recorder()
    wanted = model(q, q, q)
    around = (watch(model), other) if is_inner else (other, watch(model))
    with around[0], around[1]:
        assert torch.equal(model(q, q, q), wanted)
    assert other.called.count(F.scaled_dot_product_attention) == 1


class Marked(torch.Tensor):
    """A tensor that notes the functions which it meets."""

    met: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.met.append(func)
        return super().__torch_function__(func, types, args, kwargs)


def test_a_mask_of_another_class_meets_the_function_that_the_model_has_called():
    model, q, mask = Call(), rand(B, Hq, Lq, D), visible(Lq, Lq)
    wanted = model(q, q, q, attn_mask=mask)
    with watch(model):
        Marked.met.clear()
        got = model(q, q, q, attn_mask=mask.as_subclass(Marked))
    assert F.scaled_dot_product_attention in Marked.met
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_autocast_decides_the_dtype_of_a_watched_call(masked):
    model, q = Call(), rand(B, Hq, Lq, D)
    options = {"attn_mask": visible(Lq, Lq)} if masked else {}
    with torch.autocast("cpu", torch.bfloat16):
        wanted = model(q, q, q, **options)
        with watch(model):
            got = model(q, q, q, **options)
    assert got.dtype is wanted.dtype is torch.bfloat16
    assert torch.equal(got, wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")
def test_a_traced_program_keeps_the_function_for_every_device():
    model, q = Call(), rand(B, Hq, Lq, D)
    with torch.no_grad(), watch(model):
        traced = torch.jit.trace(model, (q, q, q), check_trace=False)
    assert "aten::scaled_dot_product_attention" in str(traced.inlined_graph)


@pytest.mark.parametrize("options", [{"mask": None}, {"attn_mask": [[True]]}])
def test_wrong_arguments_fail_in_the_words_of_the_function(options):
    q = rand(B, Hq, Lq, D)

    class Wrong(nn.Module):
        def forward(self):
            return torch.ops.aten.scaled_dot_product_attention(q, q, q, **options)

    model = Wrong()
    with pytest.raises(RuntimeError) as unwatched:
        model()
    with watch(model), pytest.raises(RuntimeError) as watched:
        model()
    assert str(watched.value) == str(unwatched.value)


def test_the_lse_is_that_of_the_kernel_which_ran():
    model = Call()
    q = rand(B, Hq, Lq, D)
    with torch.no_grad(), watch(model) as seen:
        model(q, q, q)
    lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)[1]
    assert torch.equal(seen[""].lse, lse)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_weights_are_those_before_dropout(dropout):
    model, y = made(Attend, dropout_p=dropout), x()
    torch.manual_seed(9)
    wanted = model(y)
    torch.manual_seed(9)
    with watch(model) as seen:
        assert torch.equal(model(y), wanted)
    sums = seen[""].dense().sum(-1)
    assert_within_budget(sums, torch.ones_like(sums).double(), torch.softmax(rand(*seen[""].shape), -1).sum(-1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_seen(dtype):
    model, y = made(Attend).to(dtype), x().to(dtype)
    wanted = model(y)
    with watch(model) as seen:
        assert torch.equal(model(y), wanted)
    q, k, _ = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in model.qkv(y).chunk(3, dim=-1))
    exact = reference.attention_weights(q.double(), k.double())
    plain = torch.softmax((q.to(seen[""].dtype) @ k.to(seen[""].dtype).mT) * 6**-0.5, dim=-1)
    assert_within_budget(seen[""].dense(), exact.detach(), plain.detach())


@pytest.mark.parametrize("bias", [None, rand(1, 2, 5, 5, seed=3)], ids=["no bias", "bias"])
def test_autocast_rounds_the_queries_the_keys_and_the_bias_of_the_map_too(bias):
    model, y = made(Attend, attn_mask=bias), x()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = model(y)
        with watch(model) as seen:
            got = model(y)
        q, k, _ = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in model.qkv(y).chunk(3, dim=-1))
    assert torch.equal(got, wanted)
    assert q.dtype is torch.bfloat16
    rounded = None if bias is None else bias.to(torch.bfloat16)
    wide = None if bias is None else rounded.double()
    exact, plain = reference.attention_weights(q.double(), k.double(), attn_bias=wide), {"attn_bias": rounded}
    for m in (seen[""], seen.joined("")):
        assert_within_budget(m.dense(), exact, reference.attention_weights(q, k, **plain))


def test_autocast_rounds_queries_that_come_in_full_precision():
    model, q, k = Call(), rand(B, Hq, Lq, D), rand(B, Hq, Lk, D, seed=1)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), watch(model) as seen:
        model(q, k, k)
    rounded = (q.to(torch.bfloat16), k.to(torch.bfloat16))
    exact, plain = reference.attention_weights(*(t.double() for t in rounded)), reference.attention_weights(*rounded)
    for m in (seen[""], seen.joined("")):
        assert_within_budget(m.dense(), exact, plain)


def test_a_call_that_torch_refuses_is_refused_in_its_own_words():
    model, q, k = Call(), rand(B, Hq, Lq, D), rand(B, Hk, Lk, D)
    with pytest.raises(RuntimeError) as alone:
        model(q, k, k)
    with pytest.raises(RuntimeError) as watched, watch(model):
        model(q, k, k)
    assert str(watched.value) == str(alone.value)


def test_a_call_that_cannot_be_read_runs_and_is_listed(monkeypatch):
    def unforeseen(*args, **options):
        raise RuntimeError("a form of 7 axes\nand more")

    model, q, k = Call(), rand(B, Hq, Lq, D), rand(B, Hq, Lk, D)
    wanted = model(q, k, k)
    monkeypatch.setattr("headwise.watching.function_mode.of_sdpa", unforeseen)
    with watch(model) as seen:
        assert torch.equal(model(q, k, k), wanted)
    assert (list(seen), dict(seen.unseen)) == ([], {"": "its call takes a form that a map has not: a form of 7 axes"})
