"""In a running Hugging Face model, a converted layer gives what the model's own attention gave, mask and all."""

import pytest
import torch

import headwise as hw
from headwise.testing import assert_within_budget
from tests.compat.conversion.sources import GPT2, GROUPED, KINDS, LLAMA3, SIDES, TEXT, YARN, drawn

pytestmark = pytest.mark.needs("transformers")

LENGTH = 19
T5 = {
    "d_model": 24, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 17, "vocab_size": 50, "pad_token_id": 0,
    "decoder_start_token_id": 1,
}  # fmt: skip
# kind, options, the attention, and what of it gives the attention's output
MODELS = {
    "Bert": ("Bert", TEXT, "encoder.layer.1.attention", "output.dense"),
    "GPT2": ("GPT2", GPT2, "h.1.attn", ""),
    "Llama": ("Llama", {**GROUPED, "rope_parameters": LLAMA3}, "layers.1.self_attn", ""),
    "Llama, yarn": ("Llama", {**GROUPED, "rope_parameters": YARN}, "layers.1.self_attn", ""),
    "Mistral": ("Mistral", {**GROUPED, "sliding_window": 5}, "layers.1.self_attn", ""),
    "Qwen2": ("Qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
              "layers.1.self_attn", ""),
    "Qwen3": ("Qwen3", GROUPED, "layers.1.self_attn", ""),
    "Gemma": ("Gemma", GROUPED, "layers.1.self_attn", ""),
    "Gemma2, sliding": ("Gemma2", {**GROUPED, "layer_types": KINDS, "sliding_window": 4}, "layers.0.self_attn", ""),
    "Gemma3, sliding": ("Gemma3Text", {**GROUPED, "layer_types": KINDS, "sliding_window": 4}, "layers.0.self_attn", ""),
    "Gemma3, full": ("Gemma3Text", {**GROUPED, "layer_types": KINDS, "sliding_window": 4}, "layers.1.self_attn", ""),
    "T5": ("T5", T5, "encoder.block.0.layer.0.SelfAttention", ""),
    "T5, decoder": ("T5", T5, "decoder.block.0.layer.0.SelfAttention", ""),
    "T5, cross": ("T5", T5, "decoder.block.1.layer.1.EncDecAttention", ""),
    "Bart, cross": ("Bart", SIDES, "decoder.layers.0.encoder_attn", ""),
    "Bart, decoder": ("Bart", SIDES, "decoder.layers.0.self_attn", ""),
    "CLIPText": ("CLIPText", {**TEXT, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
                 "encoder.layers.1.self_attn", ""),
}  # fmt: skip


def seen_in(model, path, inner):
    """The queries, the keys and the output of one attention while the model reads two sentences."""
    found = {}

    def before(_, args, given):
        states = args[0] if args else given["hidden_states"]
        found["x"], found["keys"] = states, given.get("key_value_states", given.get("encoder_hidden_states"))

    def after(_, __, output):
        found["out"] = output[0] if isinstance(output, tuple) else output

    attention = model.get_submodule(path)
    handles = [
        attention.register_forward_pre_hook(before, with_kwargs=True),
        (attention.get_submodule(inner) if inner else attention).register_forward_hook(after),
    ]
    ids = torch.randint(3, 50, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model(input_ids=ids, **({"decoder_input_ids": ids[:, :11]} if model.config.is_encoder_decoder else {}))
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_gives_what_its_model_computed(name):
    import transformers

    kind, options, path, inner = MODELS[name]
    model = drawn(getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**options)), 0.2).eval()
    found = seen_in(model, path, inner)
    done = hw.compat.convert(model.get_submodule(path))
    mask = eval(done.report.mask, {"hw": hw}) if done.report.mask else None
    # CLIP hides later tokens by a mask that its model makes
    mask = hw.causal() if kind in ("CLIPText",) or name == "Bart, decoder" else mask
    with torch.no_grad():
        ours = done.layer(found["x"], found["keys"], mask=mask)
        keys = None if found["keys"] is None else found["keys"].double()
        exact = done.layer.double()(found["x"].double(), keys, mask=mask)
    assert found["out"].abs().max() > 0.01
    # each in float32, so each measures the other
    assert_within_budget(ours, exact, found["out"], factor=4)
    assert_within_budget(found["out"], exact, ours, factor=8)
