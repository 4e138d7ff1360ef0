"""Watching: names, what is seen and what is not, and that nothing stays behind."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.errors import ArgumentError, StaleMapError
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.watching import styles
from tests.watching.models import Attend, Block, Handmade, Mixed, Model, heads, made, x

NAMES = ["layers.0.attn", "layers.1.attn", ""]


def state():
    """Everything that a watch changes for its duration, outside of the model."""
    import transformers.modeling_utils as hugging_face

    return (
        torch._C._len_torch_function_stack(),
        nn.MultiheadAttention.forward,
        nn.TransformerEncoderLayer.forward,
        nn.TransformerEncoder.forward,
        F.multi_head_attention_forward,
        torch._dynamo.eval_frame.set_eval_frame,
        torch._dynamo.eval_frame._maybe_set_eval_frame,
        hugging_face.AttentionInterface.get_interface,
    )


def hooks(model):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_seen_by_the_names_of_its_modules_and_stays_bit_equal(training, context):
    model, y = made().train(training), x()
    with context():
        wanted = model(y)
        with watch(model) as seen:
            got = model(y)
    assert torch.equal(got, wanted)
    assert list(seen) == NAMES
    assert [m.shape for m in seen.values()] == [(3, 2, 5, 5)] * 3
    assert seen["layers.0.attn"].dense().triu(1).abs().max() == 0
    assert dict(seen.unseen) == {}


def test_gradients_are_bit_equal_too():
    model, y = made(), x()
    model(y).square().sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with watch(model):
        model(y).square().sum().backward()
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), wanted, strict=True))


@pytest.mark.needs("transformers")
def test_nothing_stays_behind_even_after_an_error():
    class Failing(Model):
        def forward(self, y):
            super().forward(y)
            raise RuntimeError("on purpose")

    model, before = made(Failing), state()
    during = []
    model.register_forward_pre_hook(lambda *_: during.append(state()))
    hooked = hooks(model)
    with pytest.raises(RuntimeError, match="on purpose"), watch(model) as seen:
        model(x())
    assert all(now != then for now, then in zip(during[0], before, strict=True))
    assert state() == before
    assert hooks(model) == hooked
    assert list(seen) == NAMES


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(made(), (x(),)), (styles.Projected(styles.textbook), (torch.ones(3, 5, styles.E), torch.ones(3, 7, styles.E)))],
    ids=["kernel", "by hand"],
)
def test_maps_are_let_go_with_the_last_name_for_them_and_not_by_a_collection(model, inputs):
    def kept():
        with torch.no_grad(), watch(model) as seen:
            model(*inputs)
        return [weakref.ref(t) for t in (seen, seen[next(iter(seen))], seen[next(iter(seen))]._call.q)]

    # the first watch imports parts of torch, which leaves cycles of its own
    kept()
    gc.collect()
    gc.disable()
    try:
        assert [ref() for ref in kept()] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.needs("transformers")
def test_watches_may_nest_and_end_in_any_order():
    model, y, before = made(), x(), state()
    wanted = model(y)
    outer, inner = watch(model), watch(model, only="layers.1")
    first, second = outer.__enter__(), inner.__enter__()
    assert torch.equal(model(y), wanted)
    outer.__exit__(None, None, None)
    assert torch.equal(model(y), wanted)
    inner.__exit__(None, None, None)
    assert [len(first.calls(name)) for name in NAMES] == [1, 1, 1]
    assert list(second) == ["layers.1.attn"]
    assert len(second.calls("layers.1.attn")) == 2
    assert state() == before


def test_a_call_from_a_function_is_named_so_and_one_of_another_model_is_not_recorded():
    model, other, y = made(), made(Block), x()
    q = heads(y)
    with watch(model) as seen:
        F.scaled_dot_product_attention(q, q, q)
        other(y)
    assert list(seen) == ["(no module)"]


def test_a_method_that_is_called_past_the_module_bears_its_name():
    model = made()
    with watch(model) as seen:
        model.layers[1].attn.forward(x())
    assert list(seen) == ["layers.1.attn"]


def test_shared_modules_and_several_calls_are_listed():
    model = made(Block)
    twice = nn.Sequential(model, model)
    with watch(twice) as seen:
        twice(x())
    assert len(seen.calls("0.attn")) == 2
    with pytest.raises(ArgumentError, match=r'seen\["0.attn"\] must be one map, but 2 calls were seen'):
        seen["0.attn"]


def test_headwise_layers_are_seen_once_with_all_their_rules():
    layer = hw.MultiHeadAttention(
        12, 6, num_kv_heads=2, position=hw.Rotary(), score=hw.DotProduct(softcap=1.5, sink="learned"), qk_norm="rms"
    )
    y = x()
    wanted = layer(y, mask=hw.window(keys=2))
    with watch(layer) as seen:
        assert torch.equal(layer(y, mask=hw.window(keys=2)), wanted)
    weights = seen[""].dense()
    assert weights.shape == (3, 6, 5, 5)
    assert bool((weights.sum(-1) < 1).all())
    v = layer.v_proj(y).unflatten(-1, (2, 2)).transpose(1, 2).repeat_interleave(3, dim=1)
    exact = copy.deepcopy(layer).double()(y.double(), mask=hw.window(keys=2))
    out = layer.out_proj((weights @ v).transpose(1, 2).flatten(2))
    assert_within_budget(out.detach(), exact.detach(), wanted.detach())


@pytest.mark.parametrize("shared", [True, False])
def test_headwise_layers_with_additive_scores_are_seen(shared):
    layer, y = hw.MultiHeadAttention(12, 2, num_kv_heads=1, score=hw.Additive(5)), x()
    if shared:
        layer.score_weight = nn.Parameter(layer.score_weight[0].detach().clone())
    mask = hw.lengths([5, 3, 4])
    wanted = layer(y, mask=mask)
    with watch(layer) as seen:
        assert torch.equal(layer(y, mask=mask), wanted)
    assert dict(seen.unseen) == {}
    m, wide = seen[""], copy.deepcopy(layer).double()
    q, k = wide.q_proj(y.double()).unflatten(-1, (2, 5)).transpose(1, 2), wide.k_proj(y.double())[:, None]
    scores = torch.tanh(q[..., None, :] + k[..., None, :, :])
    scores = torch.einsum("bhqkd,hd->bhqk", scores, wide.score_weight.expand(2, 5))
    hidden = ~mask.allowed(5, 5, batch=3)
    exact = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    assert_within_budget(m.dense().detach(), exact.detach(), exact.detach().float())
    with watch(layer, grad=True) as seen:
        layer(y, mask=mask)
    seen[""].entropy().sum().backward()
    assert layer.score_weight.grad.abs().max() > 0


def test_an_interrupt_that_the_block_catches_leaves_no_module_running():
    class Interrupted(Block):
        def forward(self, y):
            super().forward(y)
            raise KeyboardInterrupt

    model = nn.ModuleDict({"outer": nn.Sequential(made(Interrupted)), "other": made(Attend)})
    q = heads(x())
    for only in (None, "other"):
        with watch(model, only=only) as seen:
            with pytest.raises(KeyboardInterrupt):
                model["outer"](x())
            F.scaled_dot_product_attention(q, q, q)
            model["other"](x())
            F.scaled_dot_product_attention(q, q, q)
        names = {None: ["outer.0.attn", "(no module)", "other"], "other": ["other"]}[only]
        assert list(seen) == names
        assert torch._C._len_torch_function_stack() == 0


def test_activation_checkpointing_is_recorded_once():
    class Checkpointed(Model):
        def forward(self, y):
            for layer in self.layers:
                y = checkpoint(layer, y, use_reentrant=False)
            return y

    model = made(Checkpointed)
    model.layers[1] = made(Mixed)
    with watch(model) as seen:
        model(x()).sum().backward()
    names = ["layers.0.attn", "layers.1.own", "layers.1.attn"]
    assert [(name, len(seen.calls(name))) for name in seen] == [(name, 1) for name in names]


def test_maps_lead_back_to_the_parameters_only_where_asked():
    model = made()
    with watch(model) as seen:
        model(x())
    assert not seen["layers.0.attn"].entropy().requires_grad
    with watch(model, grad=True) as seen:
        model(x())
    seen["layers.0.attn"].entropy().sum().backward()
    assert model.layers[0].attn.qkv.weight.grad[:24].abs().max() > 0
    assert model.layers[1].attn.qkv.weight.grad is None


def test_keep_reduces_as_the_model_runs():
    model, y = made(), x()
    kept = []

    def largest(m):
        kept.append(m.shape)
        return m.max_logit()

    with watch(model) as whole:
        model(y)
    with watch(model, keep=largest) as seen:
        model(y)
    assert kept == [(3, 2, 5, 5)] * 3
    for name in NAMES:
        assert torch.equal(seen[name], whole[name].max_logit())
    with pytest.raises(ArgumentError, match=r"keep= has let it go"):
        seen.to_attentions()
    with pytest.raises(ArgumentError, match=r"which keep= has let go"):
        seen.joined("")


def test_a_query_that_is_written_over_makes_its_map_stale():
    class Writing(Attend):
        def forward(self, y):
            q, k, v = (heads(t) for t in self.qkv(y).chunk(3, dim=-1))
            out = F.scaled_dot_product_attention(q, k, v)
            q.zero_()
            return out

    model = made(Writing)
    with torch.no_grad(), watch(model) as seen:
        model(x())
    with pytest.raises(StaleMapError, match=r"q \(3, 2, 5, 6\)"):
        seen[""][0, 0, 0]


def test_a_cache_that_is_written_at_each_step_is_copied():
    layer, y = hw.MultiHeadAttention(12, 2).eval(), x()
    cache = layer.cache(length=5, batch=3)
    with torch.no_grad(), watch(layer) as seen:
        for t in range(5):
            layer(y[:, t : t + 1], mask=hw.causal(), cache=cache)
        steps = [m.dense() for m in seen.calls("")]
        cache.reset()
        layer(y.flip(1), mask=hw.causal(), cache=cache)
    assert [tuple(s.shape) for s in steps] == [(3, 2, 1, t + 1) for t in range(5)]
    assert all(torch.equal(m.dense(), s) for m, s in zip(seen.calls(""), steps, strict=False))


def test_a_softmax_that_no_mechanism_sees_is_listed():
    model = nn.Sequential(made(Attend), Handmade())
    with watch(model) as seen:
        model(x())
    assert list(seen) == ["0"]
    assert list(seen.unseen) == ["1"]
    assert "softmax of its own over (3, 2, 5, 5)" in seen.unseen["1"]


def test_a_model_that_is_no_module_is_refused():
    with pytest.raises(ArgumentError, match=r"needs a torch.nn.Module, but function came"), watch(heads):
        pass
