"""Generation on headwise: the tokens of eager attention, whatever the cache, the padding and the search."""

import pytest
import torch

from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.compat.huggingface.models import DECODERS, FAMILIES, SEQ2SEQ, padded, run, three

pytestmark = pytest.mark.needs("transformers")

SEARCHES = {"greedy": {}, "beams": {"num_beams": 3}, "sampled": {"do_sample": True, "top_k": 7}}


def generated(model, inputs, **options):
    """12 new tokens, and the scores they were chosen by."""
    torch.manual_seed(11)
    out = model.generate(
        **inputs, max_new_tokens=12, min_new_tokens=12, pad_token_id=0, return_dict_in_generate=True,
        output_logits=True, **{"do_sample": False, **options},
    )  # fmt: skip
    return out.sequences, torch.stack(out.logits)


def decoder(name):
    return three(name, "AutoModelForCausalLM")


def sources(name):
    """What an encoder-decoder reads."""
    return {n: t for n, t in FAMILIES[name].inputs().items() if not n.startswith("decoder")}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_tokens_and_their_logits_are_those_of_eager(name, side):
    models, inputs = decoder(name), padded(side)
    (tokens, ours), (wanted, plain), (exactly, exact) = (generated(model, inputs) for model in models)
    assert torch.equal(tokens, wanted)
    assert torch.equal(tokens, exactly)
    assert_within_budget(ours, exact, plain)


@pytest.mark.parametrize("search", ["beams", "sampled"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2", "gpt_oss"])
def test_other_searches_find_the_tokens_of_eager(name, search):
    models, inputs = decoder(name), padded("left")
    assert torch.equal(*(generated(model, inputs, **SEARCHES[search])[0] for model in models[:2]))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_encoder_decoders_find_the_tokens_of_eager(name, search):
    models, inputs = three(name, SEQ2SEQ[name]), sources(name)
    room = {"max_new_tokens": 12} if name != "whisper" else {"max_new_tokens": 8, "min_new_tokens": 8}
    options = {"do_sample": False, "min_new_tokens": 12, "num_return_sequences": 1, **SEARCHES[search], **room}
    found = []
    for model in models[:2]:
        torch.manual_seed(11)
        found.append(model.generate(**inputs, **options))
    assert torch.equal(*found)
    assert found[0].shape[1] >= 8


@pytest.mark.parametrize("kind", ["static", "none"])
@pytest.mark.parametrize("name", DECODERS)
def test_every_cache_gives_the_same_tokens(name, kind):
    models, inputs = decoder(name), padded("left")
    options = {"use_cache": False} if kind == "none" else {"cache_implementation": kind}
    (tokens, ours), (wanted, plain), (_, exact) = (generated(model, inputs, **options) for model in models)
    assert torch.equal(tokens, wanted)
    assert_within_budget(ours, exact, plain)


def test_a_compiled_step_gives_the_same_tokens():
    from transformers import CompileConfig

    torch._dynamo.reset()
    models, inputs = decoder("llama"), padded("left")
    compiled = CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
    # else transformers compiles on accelerators only
    compiled._compile_all_devices = True
    ours = generated(models.ours, inputs, cache_implementation="static", compile_config=compiled)[0]
    assert torch.equal(ours, generated(models.eager, inputs)[0])


@pytest.mark.parametrize("name", DECODERS)
def test_a_sample_is_the_same_alone_and_in_a_padded_batch(name):
    models, inputs = decoder(name), padded("left")
    (tokens, ours), (_, plain), (_, exact) = (generated(model, inputs) for model in models)
    alone, logits = generated(models.ours, {"input_ids": inputs["input_ids"][1:, 3:]})
    assert torch.equal(alone[0, 6:], tokens[1, 9:])
    assert_within_budget(logits[:, 0], exact[:, 1], plain[:, 1])
    assert ours.shape == exact.shape


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3", "gpt_oss"])
def test_a_prompt_in_chunks_is_the_same_as_at_once(name, kind):
    from transformers import DynamicCache, StaticCache

    models, inputs = decoder(name), padded("left")
    ids, keep = inputs["input_ids"], inputs["attention_mask"]
    with torch.no_grad():
        whole, plain, exact = (run(model, inputs).logits for model in models)
        config = models.ours.config
        cache = DynamicCache(config=config) if kind == "dynamic" else StaticCache(config=config, max_cache_len=13)
        parts = []
        for begin, end in ((0, 2), (2, 7), (7, 8), (8, 9)):
            chunk = {"input_ids": ids[:, begin:end], "attention_mask": keep[:, :end]}
            positions = torch.arange(begin, end)[None].expand(2, -1)
            parts.append(run(models.ours, chunk, past_key_values=cache, position_ids=positions).logits)
    real = keep.bool()
    assert_within_budget(torch.cat(parts, dim=1)[real], exact[real], plain[real])
    assert_within_budget(whole[real], exact[real], plain[real])


def test_generation_is_watched():
    models, inputs = decoder("llama"), padded("left")
    wanted = generated(models.ours, inputs)[0]
    with watch(models.ours) as seen:
        assert torch.equal(generated(models.ours, inputs)[0], wanted)
    assert dict(seen.unseen) == {}
    joined = seen.joined("model.layers.1.self_attn")
    assert joined.shape == (2, 4, 20, 20)
    assert joined[1, :, 3:, :3].abs().max() == 0
