"""The attention classes of Hugging Face's models, as installed, have no fault."""

import importlib

import pytest

from headwise.diagnosis.entry_point import doctor

FAMILIES = (
    "bert:BertSelfAttention", "gpt2:GPT2Attention", "t5:T5Attention", "bart:BartAttention", "vit:ViTAttention",
    "whisper:WhisperAttention", "mistral:MistralAttention", "llama:LlamaAttention", "gemma2:Gemma2Attention",
    "opt:OPTAttention", "gpt_neox:GPTNeoXAttention",
    "roberta:RobertaSelfAttention", "distilbert:DistilBertSelfAttention",
    "electra:ElectraSelfAttention", "albert:AlbertAttention", "bert:BertAttention", "gpt_oss:GptOssAttention",
    "deberta_v2:DisentangledSelfAttention",
)  # fmt: skip


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("family", FAMILIES)
def test_an_installed_family_is_sound(family):
    name, _, kind = family.partition(":")
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    found = doctor(getattr(module, kind))
    assert (found.verdict, found.faults) == ("sound", ())
