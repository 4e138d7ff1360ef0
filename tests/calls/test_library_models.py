"""The attention of model families in transformers is built with its own config and called as its model calls it."""

import importlib

import pytest
import torch

from headwise.calls.finder import find

pytestmark = pytest.mark.needs("transformers")
ROTARY = {"_tuple": [["B", "L", "d"], ["B", "L", "d"]]}
FAMILIES = {
    "bert": ("BertSelfAttention", None),
    "roberta": ("RobertaSelfAttention", None),
    "distilbert": ("DistilBertSelfAttention", None),
    "electra": ("ElectraSelfAttention", None),
    "gpt2": ("GPT2Attention", None),
    "gpt_neox": ("GPTNeoXAttention", ROTARY),
    "llama": ("LlamaAttention", ROTARY),
    "mixtral": ("MixtralAttention", ROTARY),
    "olmo2": ("Olmo2Attention", ROTARY),
    "phi3": ("Phi3Attention", ROTARY),
    "cohere": ("CohereAttention", ROTARY),
    "qwen3": ("Qwen3Attention", ROTARY),
    "t5": ("T5Attention", None),
    "bart": ("BartAttention", None),
    "whisper": ("WhisperAttention", None),
    "opt": ("OPTAttention", None),
    "vit": ("ViTAttention", None),
    "clip": ("CLIPAttention", None),
    "deberta_v2": ("DisentangledSelfAttention", None),
    "wav2vec2": ("Wav2Vec2Attention", None),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_attention_of_a_family_is_found(family):
    name, positions = FAMILIES[family]
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    plan = find(getattr(module, name), namespace=vars(module)).plans[0]
    assert plan.call["hidden_states"] == ["B", "L", "D"]
    assert plan.call.get("position_embeddings") == positions
    sizes = plan.sizes(0)
    args, options = plan.arguments(sizes)
    with torch.no_grad():
        out = plan.build(sizes)(*args, **options)[0]
    assert out.shape[:2] == (sizes["B"], sizes["L"])
    assert {"H", "d"} <= set(sizes) or family == "bart"


def test_fewer_key_heads_are_part_of_the_plan():
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    plan = find(module.LlamaAttention, namespace=vars(module)).plans[0]
    assert {each.name: each.equals for each in plan.symbols if each.equals} == {"H": "g*Hkv", "D": "H*d"}
    assert plan.call["_mask"]["means"] == "additive"
