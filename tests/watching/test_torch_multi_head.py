"""Watched torch layers: nn.MultiheadAttention in every form of call, and the layers of nn.Transformer."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headwise.testing import assert_within_budget
from headwise.watching import watch

B, L, S, E, H = 3, 5, 7, 12, 2


def rand(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def blocked(*sizes):
    """True = blocked, in every row one key open at least."""
    mask = rand(*sizes, seed=7) > 0.3
    mask[..., 0] = False
    return mask


CAUSAL = torch.ones(L, L).triu(1).bool()
ODD = torch.ones(L, L).tril(-2).bool()
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])

# name: (of the module, of the call; "cross" takes keys of another length)
FORMS = {
    "plain": ({}, {}),
    "one head of an odd number": ({"num_heads": 3}, {}),
    "sequence first": ({"batch_first": False}, {}),
    "no bias": ({"bias": False}, {}),
    "cross": ({}, {"cross": True}),
    "cross of other widths": ({"kdim": 11, "vdim": 13}, {"cross": True}),
    "a learned key": ({"add_bias_kv": True}, {"attn_mask": blocked(L, L)}),
    "a key of zeros": ({"add_zero_attn": True}, {"key_padding_mask": PADDING}),
    "both more keys": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": rand(L, L)}),
    "bool mask": ({}, {"attn_mask": blocked(L, L)}),
    "bool mask a head": ({}, {"attn_mask": blocked(B * H, L, L)}),
    "float mask": ({}, {"attn_mask": rand(L, L)}),
    "float mask a head": ({}, {"attn_mask": rand(B * H, L, L)}),
    "padding": ({}, {"key_padding_mask": PADDING}),
    "float padding": ({}, {"key_padding_mask": torch.zeros(B, L).masked_fill(PADDING, float("-inf")) + 0.5}),
    "padding and mask": ({}, {"key_padding_mask": PADDING, "attn_mask": CAUSAL}),
    "causal": ({}, {"attn_mask": CAUSAL, "is_causal": True}),
    "a hint that is wrong": ({}, {"attn_mask": ODD, "is_causal": True}),
    "a hint and padding": ({}, {"attn_mask": CAUSAL, "key_padding_mask": PADDING, "is_causal": True}),
    "unbatched": ({}, {"unbatched": True}),
    "unbatched, bool mask": ({}, {"unbatched": True, "attn_mask": blocked(L, L)}),
}
MODES = {
    "trained": (True, torch.enable_grad),
    "eval": (False, torch.enable_grad),
    "eval, no grad": (False, torch.no_grad),
    "inference": (False, torch.inference_mode),
}


def made(**options):
    torch.manual_seed(2)
    module = nn.MultiheadAttention(E, **{"num_heads": H, "batch_first": True} | options)
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2.0).add_(0.1)
    return module


def given_to(module, call):
    """The query, key and value of a form, and its keywords."""
    call = dict(call)
    sizes = (L,) if call.pop("unbatched", False) else (B, L)
    x = rand(*sizes, E)
    inputs = (x, x, x)
    if call.pop("cross", False):
        inputs = (x, rand(B, S, module.kdim, seed=1), rand(B, S, module.vdim, seed=2))
    if not module.batch_first:
        turned = x.transpose(0, 1)
        inputs = (turned, turned, turned)
    return inputs, call


def rebuilt(module, value, weights):
    """The module's output from a map, in float64: the map is right if and only if this is."""
    module, value = copy.deepcopy(module).double(), value.double()
    value = value[None] if value.ndim == 2 else value if module.batch_first else value.transpose(0, 1)
    bias = None if module.in_proj_bias is None else module.in_proj_bias.chunk(3)[2]
    weight = module.in_proj_weight.chunk(3)[2] if module._qkv_same_embed_dim else module.v_proj_weight
    v = F.linear(value, weight, bias)
    if module.bias_v is not None:
        v = torch.cat([v, module.bias_v.expand(v.shape[0], 1, -1)], dim=1)
    if module.add_zero_attn:
        v = F.pad(v, (0, 0, 0, 1))
    v = v.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
    return module.out_proj((weights.double() @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("needs_weights", [False, True], ids=["output only", "with weights"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_the_map_of_multi_head_attention_gives_its_output(form, mode, needs_weights):
    options, call = FORMS[form]
    training, context = MODES[mode]
    module = made(**options).train(training)
    inputs, call = given_to(module, call)
    call |= {"need_weights": needs_weights}
    with context():
        wanted = module(*inputs, **call)[0]
        with watch(module) as seen:
            got = module(*inputs, **call)[0]
        assert torch.equal(got, wanted)
        exact = copy.deepcopy(module).double()(
            *(t.double() for t in inputs),
            **{name: t.double() if torch.is_tensor(t) and t.is_floating_point() else t for name, t in call.items()},
        )[0]
    weights = seen[""].dense()
    out = rebuilt(module, inputs[2], weights).detach().float()
    out = out[0] if inputs[0].ndim == 2 else out if module.batch_first else out.transpose(0, 1)
    assert_within_budget(out, exact.detach().clone(), wanted.detach().clone())


def test_a_hint_without_a_mask_is_ignored_on_the_fast_path():
    module, x = made().eval(), rand(B, L, E)
    with torch.no_grad(), watch(module) as seen:
        module(x, x, x, is_causal=True, need_weights=False)
    assert bool((seen[""].dense() > 0).all())


def test_queries_and_keys_are_named_by_the_module_that_read_them():
    model = nn.TransformerDecoderLayer(E, H, 17, batch_first=True).eval()
    with torch.no_grad(), watch(model) as seen:
        model(rand(B, L, E), rand(B, S, E, seed=1))
    assert {name: m.shape for name, m in seen.items()} == {
        "self_attn": (B, H, L, L),
        "multihead_attn": (B, H, L, S),
    }


LAYERS = {
    "fast": {},
    "norm first": {"norm_first": True},
    "odd heads": {"nhead": 3},
    "sequence first": {"batch_first": False},
    "no bias": {"bias": False},
}
LAYER_CALLS = {
    "no mask": {},
    "bool mask": {"src_mask": blocked(L, L)},
    "float mask": {"src_mask": rand(L, L).relu()},
    "padding": {"src_key_padding_mask": PADDING},
    "both": {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
    "causal": {"src_mask": CAUSAL, "is_causal": True},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", LAYER_CALLS)
@pytest.mark.parametrize("kind", LAYERS)
def test_the_map_of_an_encoder_layer_gives_its_output(kind, call, mode):
    options = {"d_model": E, "nhead": H, "dim_feedforward": 17, "dropout": 0.0, "batch_first": True} | LAYERS[kind]
    training, context = MODES[mode]
    torch.manual_seed(3)
    layer, call = nn.TransformerEncoderLayer(**options).train(training), LAYER_CALLS[call]
    x = rand(B, L, E) if layer.self_attn.batch_first else rand(B, L, E).transpose(0, 1)
    with context():
        wanted = layer(x, **call)
        with watch(layer) as seen:
            got = layer(x, **call)
        assert torch.equal(got, wanted)
        exact = copy.deepcopy(layer).double()(
            x.double(),
            **{n: t.double() if torch.is_tensor(t) and t.is_floating_point() else t for n, t in call.items()},
        )
    assert list(seen) == ["self_attn"]
    layer = layer.double()
    with torch.no_grad():
        x = x.double()
        inner = layer.norm1(x) if layer.norm_first else x
        mixed = rebuilt(layer.self_attn, inner, seen["self_attn"].dense())
        mixed = mixed if layer.self_attn.batch_first else mixed.transpose(0, 1)
        x = x + mixed if layer.norm_first else layer.norm1(x + mixed)
        fed = layer.linear2(layer.activation(layer.linear1(layer.norm2(x) if layer.norm_first else x)))
        out = x + fed if layer.norm_first else layer.norm2(x + fed)
    assert_within_budget(out.float(), exact.detach().clone(), wanted.detach().clone())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("mode", MODES)
def test_an_encoder_with_padding_runs_on_nested_tensors_and_is_seen(mode):
    training, context = MODES[mode]
    layer = nn.TransformerEncoderLayer(E, H, 17, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).train(training), rand(B, L, E)
    with context():
        wanted = model(x, src_key_padding_mask=PADDING)
        with watch(model) as seen:
            got = model(x, src_key_padding_mask=PADDING)
    assert torch.equal(got, wanted)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    for m in seen.values():
        assert m.shape == (B, H, L, L)
        assert m.dense()[PADDING[:, None, None].expand(B, H, L, L)].abs().max() == 0
    # the first layer alone, by its own weights
    attn = layer.self_attn if training else model.layers[0].self_attn
    own = [
        copy.deepcopy(model.layers[0].self_attn)
        .to(dtype)
        .train()(x.to(dtype), x.to(dtype), x.to(dtype), key_padding_mask=PADDING, average_attn_weights=False)[1]
        .detach()
        for dtype in (torch.float64, torch.float32)
    ]
    real = ~PADDING[:, None, :, None].expand(B, H, L, L)
    assert_within_budget(*(t[real] for t in (seen["layers.0.self_attn"].dense().clone(), *own)))
    assert attn.num_heads == H


def test_a_whole_transformer_is_seen_in_running_order():
    model = nn.Transformer(E, H, 1, 2, 17, batch_first=True).eval()
    source, target = rand(B, S, E), rand(B, L, E, seed=1)
    mask = nn.Transformer.generate_square_subsequent_mask(L)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = model(source, target, tgt_mask=mask, tgt_is_causal=True)
        with watch(model) as seen:
            got = model(source, target, tgt_mask=mask, tgt_is_causal=True)
    assert torch.equal(got, wanted)
    assert list(seen) == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ]
    assert seen["decoder.layers.1.self_attn"].dense().triu(1).abs().max() == 0


def test_the_function_is_seen_where_a_module_calls_it_itself():
    class Pooling(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = made()

        def forward(self, x):
            a = self.attn
            return F.multi_head_attention_forward(
                x[:1], x, x, E, H, a.in_proj_weight, a.in_proj_bias, None, None, False, 0.0, a.out_proj.weight,
                a.out_proj.bias, average_attn_weights=False,
            )  # fmt: skip

    model, x = Pooling().eval(), rand(L, B, E)
    wanted, own = model(x)
    with watch(model) as seen:
        got, _ = model(x)
    assert torch.equal(got, wanted)
    exact = copy.deepcopy(model).double()(x.double())[1].detach()
    assert_within_budget(seen[""].dense(), exact, own.detach())
