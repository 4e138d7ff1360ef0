"""The steps of decoding, joined into one map: that of the whole sequence at once."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.watching.families import FAMILIES
from tests.watching.models import Attend, heads, made, x


@pytest.mark.parametrize("mask", [hw.causal(), hw.window(keys=3), hw.causal() & hw.lengths([5, 4, 3])], ids=repr)
@pytest.mark.parametrize("kind", [{}, {"length": 9, "batch": 3}], ids=["growing", "static"])
@pytest.mark.parametrize("steps", [[1] * 5, [3, 1, 1], [2, 3]], ids=str)
def test_the_steps_of_a_cache_join_into_the_map_of_one_pass(steps, kind, mask):
    torch.manual_seed(3)
    layer, y = hw.MultiHeadAttention(12, 6, num_kv_heads=2, position=hw.Rotary()).eval(), x()
    with torch.no_grad():
        with watch(layer) as whole:
            layer(y, mask=mask)
        exact_layer = hw.MultiHeadAttention(12, 6, num_kv_heads=2, position=hw.Rotary(), dtype=torch.float64).eval()
        exact_layer.load_state_dict(layer.state_dict())
        with watch(exact_layer) as exact:
            exact_layer(y.double(), mask=mask)
        cache, start = layer.cache(**kind), 0
        with watch(layer) as seen:
            for size in steps:
                so_far = start + size
                now = (
                    mask
                    if "lengths" not in repr(mask)
                    else hw.causal() & hw.lengths([min(n, so_far) for n in (5, 4, 3)])
                )
                layer(y[:, start:so_far], mask=now, cache=cache)
                start = so_far
    m = seen.joined("")
    assert m.shape == whole[""].shape
    assert_within_budget(m.dense(), exact[""].dense(), whole[""].dense())


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "implementation", "cache"), [
    ("llama", "sdpa", None),
    ("llama", "sdpa", "static"),
    ("llama", "eager", None),
    ("gpt2", "sdpa", None),
    ("gemma2", "eager", "static"),
    ("gpt_oss", "eager", None),
    ("qwen3", "sdpa", None),
])  # fmt: skip
def test_generation_joins_into_the_map_of_the_whole_text(name, implementation, cache):
    model = causal_model(name, implementation)
    ids = torch.randint(3, 53, (2, 4), generator=torch.Generator().manual_seed(6))
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "disable_compile": True}
    options |= {} if cache is None else {"cache_implementation": cache}
    with torch.no_grad():
        wanted = model.generate(ids, **options)
        with watch(model) as seen:
            got = model.generate(ids, **options)
        assert torch.equal(got, wanted)
        assert dict(seen.unseen) == {}
        plain = twin_of(model, torch.float32)(got[:, :-1], output_attentions=True).attentions
        exact = twin_of(model, torch.float64)(got[:, :-1], output_attentions=True).attentions
    assert len(seen) == 2
    maps = []
    for layer in seen:
        assert len(seen.calls(layer)) == 4
        m = seen.joined(layer).dense()
        # of a static cache without the room that is not filled yet
        assert m.shape == (2, 4, 7, 7)
        maps.append(m)
    assert_within_budget(*(torch.cat([t.flatten() for t in each]) for each in (maps, exact, plain)))


def causal_model(name, implementation):
    import transformers

    torch.manual_seed(5)
    config = FAMILIES[name].config(transformers)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


def twin_of(model, dtype):
    import transformers

    config = type(model.config).from_dict(model.config.to_dict())
    other = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    other.load_state_dict(model.state_dict())
    if hasattr(other, "set_experts_implementation"):
        other.set_experts_implementation("eager")
    return other.to(dtype)


@pytest.mark.needs("transformers")
def test_the_cross_attention_of_a_decoder_joins_over_the_same_keys():
    import transformers

    torch.manual_seed(5)
    config = FAMILIES["t5"].config(transformers)
    model = transformers.T5ForConditionalGeneration(config).eval()
    ids = torch.randint(3, 53, (2, 6), generator=torch.Generator().manual_seed(6))
    with torch.no_grad(), watch(model) as seen:
        model.generate(ids, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    m = seen.joined("decoder.block.1.layer.1.EncDecAttention")
    assert m.shape == (2, 4, 3, 6)
    for row, step in enumerate(seen.calls("decoder.block.1.layer.1.EncDecAttention")):
        assert torch.equal(m[:, :, row], step[:, :, 0])


def test_calls_of_different_sequences_are_not_joined():
    model = made(Attend)
    with watch(model) as seen:
        model(x(3, 5))
        model(x(3, 7, seed=1))
    with pytest.raises(ArgumentError, match=r'2 calls of "" .* the 5 keys of call 0 are not among the 7'):
        seen.joined("")
    seen.clear()
    with watch(model) as seen:
        model(x(2, 5))
        model(x(3, 7))
    with pytest.raises(ArgumentError, match=r"call 0 has q \(2, 2, 5, 6\) and .* call 1 q \(3, 2, 7, 6\)"):
        seen.joined("")


@pytest.mark.parametrize("rows", [slice(None), slice(-2, None)], ids=["all queries", "the last two"])
@pytest.mark.parametrize("lengths", [(3, 4, 5), (5, 5)], ids=str)
@pytest.mark.parametrize("is_causal", [True, False])
def test_passes_that_overlap_are_no_steps(is_causal, lengths, rows):
    class Latest(torch.nn.Module):
        def forward(self, y):
            return F.scaled_dot_product_attention(y[:, :, rows], y, y, is_causal=is_causal)

    y, model = heads(x()), Latest()
    with watch(model) as seen:
        for n in lengths:
            model(y[:, :, :n])
    count = len(range(lengths[1])[rows])
    grown = f"call 1 has {count} queries, and {lengths[1] - lengths[0]} (visible )?keys more than call 0"
    with pytest.raises(ArgumentError, match=rf"{grown}|two calls have the same queries"):
        seen.joined("")


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_generation_without_a_cache_is_not_joined(implementation):
    model, ids = causal_model("llama", implementation), torch.randint(3, 53, (2, 4))
    with torch.no_grad(), watch(model) as seen:
        model.generate(ids, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0, use_cache=False)
    with pytest.raises(ArgumentError, match=r"call 1 has 5 queries, and 1 keys more than call 0"):
        seen.joined("model.layers.0.self_attn")


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize(("name", "implementation"), [("llama", "sdpa"), ("llama", "eager"), ("qwen2", "sdpa")])
def test_padded_samples_with_grouped_heads_join_too(name, implementation, cache):
    # there Hugging Face repeats the keys of a group in the first call, and not in those of one token
    model, keep = causal_model(name, implementation), torch.ones(2, 5, dtype=torch.long)
    keep[1, :2] = 0
    ids = torch.randint(3, 53, (2, 5), generator=torch.Generator().manual_seed(6))
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "disable_compile": True}
    options |= {} if cache is None else {"cache_implementation": cache}
    with torch.no_grad(), watch(model) as seen:
        got = model.generate(ids, attention_mask=keep, **options)
    whole = torch.cat([keep, torch.ones(2, 3, dtype=torch.long)], dim=1)
    with torch.no_grad():
        inputs = {"attention_mask": whole, "position_ids": (whole.cumsum(-1) - 1).clamp(min=0)}
        plain = twin_of(model, torch.float32)(got[:, :-1], **inputs, output_attentions=True).attentions
        exact = twin_of(model, torch.float64)(got[:, :-1], **inputs, output_attentions=True).attentions
    assert len(seen) == 2
    # rows of padding differ: they have no weights, even ones or, in float64, NaN, which the next layer reads
    real = whole.bool()[:, None, :, None]
    m = seen.joined("model.layers.0.self_attn").dense()[..., :8]
    assert_within_budget(*(t.masked_fill(~real, 0.0) for t in (m, exact[0], plain[0])))
    m, steps = seen.joined("model.layers.1.self_attn"), seen.calls("model.layers.1.self_attn")
    for row, step in enumerate(steps[1:], 5):
        wanted = step[:, :, 0, : row + 1]
        assert_within_budget(m[:, :, row, : row + 1], wanted.double(), wanted)


def test_one_call_joins_to_itself():
    model = made(Attend, is_causal=True)
    with watch(model) as seen:
        model(x())
    assert torch.equal(seen.joined("").dense(), seen[""].dense())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_look_without_gradients_leaves_them_to_the_next(mode):
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(8, 8)

        def forward(self, x):
            q = self.project(x).unflatten(-1, (2, 4)).transpose(1, 2)
            for n in range(3, 6):
                F.scaled_dot_product_attention(q[:, :, n - 1 : n] if n > 3 else q[:, :, :3], q[:, :, :n], q[:, :, :n])

    torch.manual_seed(1)
    model, x = Steps(), torch.randn(2, 5, 8)
    grads = []
    for looks in (False, True):
        with watch(model, grad=True) as seen:
            model(x)
        if looks:
            with mode():
                seen.joined("").entropy()
        grads.append(torch.autograd.grad(seen.joined("").entropy().square().sum(), model.project.weight)[0])
    assert bool(grads[0].any())
    assert torch.equal(*grads)
