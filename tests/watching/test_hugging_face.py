"""Watched Hugging Face models: bit-equal outputs, and maps as exact as the weights that the models give themselves."""

import re

import pytest
import torch

from headwise.pages.models import embedded_folder, quiet
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.watching.families import FAMILIES, build, first, own_weights, tokens, twin

pytestmark = pytest.mark.needs("transformers")

RUNS = [(name, "sdpa") for name, family in FAMILIES.items() if family.has_sdpa] + [(name, "eager") for name in FAMILIES]


def run(model, inputs, **options):
    dtype = next(model.parameters()).dtype
    given = {name: t.to(dtype) if t.is_floating_point() else t for name, t in inputs.items()}
    with torch.no_grad():
        return model(**given, **options)


@pytest.mark.parametrize(("name", "implementation"), RUNS)
def test_maps_are_those_of_the_model_and_its_output_is_bit_equal(name, implementation):
    model, inputs = build(name, implementation), FAMILIES[name].inputs()
    wanted = first(run(model, inputs))
    with watch(model) as seen:
        got = first(run(model, inputs))
    assert torch.equal(got, wanted)
    assert dict(seen.unseen) == {}
    plain = own_weights(run(twin(model, torch.float32), inputs, output_attentions=True))
    exact = own_weights(run(twin(model, torch.float64), inputs, output_attentions=True))
    maps = seen.to_attentions()
    assert [m.shape for m in maps] == [t.shape for t in exact]
    assert_within_budget(*(torch.cat([t.flatten() for t in each]) for each in (maps, exact, plain)))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_real_model_is_seen(implementation):
    from transformers import AutoModel

    folder = str(embedded_folder())
    with quiet():
        model = AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()
        eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = {"input_ids": torch.randint(1000, 9000, (2, 13)), "attention_mask": torch.ones(2, 13, dtype=torch.long)}
    inputs["attention_mask"][1, 8:] = 0
    wanted = first(run(model, inputs))
    with watch(model) as seen:
        assert torch.equal(first(run(model, inputs)), wanted)
    assert list(seen) == [f"encoder.layer.{n}.attention.self" for n in range(6)]
    plain = run(eager, inputs, output_attentions=True).attentions
    exact = run(eager.double(), inputs, output_attentions=True).attentions
    assert_within_budget(*(torch.stack(list(each)) for each in (seen.to_attentions(), exact, plain)))
    if implementation == "sdpa":
        assert all(m[1, :, :, 8:].abs().max() == 0 for m in seen.values())
        assert seen["encoder.layer.2.attention.self"].check() < 1e-4


@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "t5"])
def test_training_with_dropout_is_seen_before_dropout_and_leaves_the_numbers_drawn_alone(name):
    model, inputs = build(name, "eager").train(), FAMILIES[name].inputs()
    for module in model.modules():
        for option in ("dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(module, option, None), float):
                setattr(module, option, 0.2)
    torch.manual_seed(8)
    wanted = first(model(**inputs))
    torch.manual_seed(8)
    with watch(model) as seen:
        assert torch.equal(first(model(**inputs)), wanted)
    assert dict(seen.unseen) == {}
    sums = torch.cat([m.dense().sum(-1).flatten() for m in seen.values()])
    ones = torch.ones_like(sums)
    plain = torch.softmax(torch.randn(len(sums), 9), dim=-1).sum(-1)
    assert_within_budget(sums, ones.double(), plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "qwen3", "gemma2", "gpt_oss", "t5"])
def test_eager_attention_in_half_precision_is_proved_too(name, dtype):
    model, inputs = build(name, "eager").to(dtype), FAMILIES[name].inputs()
    wanted = first(run(model, inputs))
    with watch(model) as seen:
        assert torch.equal(first(run(model, inputs)), wanted)
    assert dict(seen.unseen) == {}
    own = own_weights(run(model, inputs, output_attentions=True))
    exact = own_weights(run(twin(model, torch.float64), inputs, output_attentions=True))
    for m, weights, wide in zip(seen.to_attentions()[:1], own, exact, strict=False):
        assert_within_budget(m.to(dtype), wide, weights)


def test_a_query_of_padding_has_the_weights_that_the_model_gave_it():
    # eager attention adds the least number and takes such a row evenly; a bool mask leaves it without weights
    inputs = FAMILIES["llama"].inputs()
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    for implementation, wanted in (("eager", 1 / 9), ("sdpa", 0.0)):
        model = build("llama", implementation)
        with watch(model) as seen:
            run(model, inputs)
        row = seen["layers.0.self_attn"][1, :, 0]
        assert_within_budget(row, torch.full_like(row, wanted).double(), torch.full_like(row, wanted))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("padded", range(3))
@pytest.mark.parametrize("loud", [False, True])
def test_a_padded_sample_is_proved_wherever_it_stands_in_the_batch(loud, padded, dtype):
    # of a row that is closed, float16 leaves even weights, unless its scores are large enough to count beside the least
    model = build("llama", "eager").to(dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if loud and ("q_proj" in name or "k_proj" in name):
                weight.mul_(20.0)
    inputs = {"input_ids": torch.cat([tokens(), tokens(9)[:1]]), "attention_mask": torch.ones(3, 9, dtype=torch.long)}
    inputs["attention_mask"][padded, :4] = 0
    with watch(model) as seen:
        own = run(model, inputs, output_attentions=True).attentions
    if loud and dtype is torch.float16:
        assert f"away from softmax(q kᵀ) in sample {padded}" in seen.unseen["layers.0.self_attn"]
        return
    assert dict(seen.unseen) == {}
    exact = own_weights(run(twin(model, torch.float64), inputs, output_attentions=True))
    m = seen["layers.0.self_attn"]
    closed = ~inputs["attention_mask"][padded].bool()
    even = torch.full((4, 4, 9), 1 / 9, dtype=dtype)
    assert_within_budget(m[padded, :, closed].to(dtype), even.double(), own[0][padded][:, closed])
    there = [n for n in range(3) if n != padded]
    assert_within_budget(m.dense()[there].to(dtype), exact[0][there], own[0][there])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_readings_of_a_batch_padded_on_the_left_agree_with_its_weights(implementation):
    model, inputs = build("llama", implementation), FAMILIES["llama"].inputs()
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    with watch(model) as seen:
        run(model, inputs)
    for m in seen.values():
        plain = m.dense()
        exact = plain.double()
        assert m.check() < 1e-4
        assert_within_budget(m.received(), exact.sum(dim=2), plain.sum(dim=2))
        assert_within_budget(m.entropy(), torch.special.entr(exact).sum(-1), torch.special.entr(plain).sum(-1))
        assert_within_budget(m[1, 0, 0], exact[1, 0, 0], plain[1, 0, 0])
        assert_within_budget(m[1, 0, 0, :4], exact[1, 0, 0, :4], plain[1, 0, 0, :4])


@pytest.mark.parametrize(("name", "implementation"), [("llama", "eager"), ("llama", "sdpa"), ("gpt_oss", "eager")])
def test_a_call_takes_no_longer_for_those_before_it(name, implementation):
    class Unread(list):
        def __iter__(self):
            raise RuntimeError("what was seen before has been looked through")

    model, inputs = build(name, implementation), FAMILIES[name].inputs()
    with watch(model) as seen:
        seen._calls = Unread()
        for _ in range(3):
            run(model, inputs)
    assert len(seen.calls("layers.0.self_attn")) == 3


@pytest.mark.parametrize("wrong", ["scale", "mask", "sink", "no weights", "shape"])
def test_an_eager_function_that_computes_something_else_is_listed_with_its_deviation(wrong, monkeypatch):
    from transformers.models.bert import modeling_bert

    honest = modeling_bert.eager_attention_forward

    def other(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
        if wrong == "scale":
            scaling = 1.01 * scaling
        elif wrong == "mask":
            attention_mask = None
        out, weights = honest(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout)
        if wrong == "sink":
            weights = weights * 0.99
        return out, None if wrong == "no weights" else weights[:, :1] if wrong == "shape" else weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", other)
    model, inputs = build("bert", "eager"), FAMILIES["bert"].inputs()
    wanted = first(run(model, inputs))
    with watch(model) as seen:
        assert torch.equal(first(run(model, inputs)), wanted)
    assert list(seen) == []
    reasons = {
        "no weights": "gave no weights to prove the map by",
        "shape": r"gave weights \(2, 1, 9, 9\), not \(2, 4, 9, 9\)",
    }
    assert list(seen.unseen) == [f"encoder.layer.{n}.attention.self" for n in range(2)]
    for reason in seen.unseen.values():
        assert re.search(reasons.get(wrong, r"its own weights are \d.* away from softmax"), reason)


def test_a_model_that_writes_its_own_softmax_is_listed():
    import transformers

    model = transformers.AutoModel.from_config(
        transformers.BloomConfig(vocab_size=53, hidden_size=24, n_layer=2, n_head=4)
    ).eval()
    wanted = first(run(model, {"input_ids": tokens()}))
    with watch(model) as seen:
        assert torch.equal(first(run(model, {"input_ids": tokens()})), wanted)
    assert list(seen) == []
    assert list(seen.unseen) == ["h.0.self_attention", "h.1.self_attention"]


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_one_new_token_of_grouped_heads_has_its_own_shape(name):
    # there transformers hands the heads of a group to the kernel as rows
    model, ids = build(name, "sdpa"), tokens()
    keep = torch.ones(2, 9, dtype=torch.long)
    keep[1, 3:5] = 0
    with watch(model) as whole:
        past = run(model, {"input_ids": ids, "attention_mask": keep})
    cache = run(model, {"input_ids": ids[:, :8], "attention_mask": keep[:, :8]}).past_key_values
    with watch(model) as seen:
        run(model, {"input_ids": ids[:, 8:], "attention_mask": keep}, past_key_values=cache)
    exact_model = twin(model, torch.float64)
    exact = run(exact_model, {"input_ids": ids, "attention_mask": keep}, output_attentions=True).attentions
    assert past.last_hidden_state.shape == (2, 9, 24)
    for n, (name_of_layer, m) in enumerate(seen.items()):
        assert m.shape == (2, 4, 1, 9)
        assert_within_budget(m.dense(), exact[n][:, :, 8:], whole[name_of_layer][:, :, 8:])
