"""Looks and models that many tests read, each made once."""

import pytest

from headwise.pages import look
from tests.optional import require
from tests.pages.small_models import BERT, GPT2, build, save

ANIMAL = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="session")
def animal():
    """The sentence of the README on the embedded model, all words."""
    for part in ("minilm", "safetensors", "transformers"):
        require(part)
    return look(ANIMAL)


@pytest.fixture(scope="session")
def eager_attentions():
    """The weights (layers, H, L, L) that the untouched model itself gives for the sentence."""
    for part in ("minilm", "safetensors", "transformers"):
        require(part)
    import torch
    from transformers import AutoModel, AutoTokenizer

    from headwise.pages.models import embedded_folder

    folder = embedded_folder()
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        inputs = AutoTokenizer.from_pretrained(folder)(ANIMAL, return_tensors="pt")
        return torch.cat(model(**inputs, output_attentions=True).attentions)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    require("transformers")
    return save(tmp_path_factory.mktemp("models") / "small-bert", build("Bert", **BERT))


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory):
    require("transformers")
    return save(tmp_path_factory.mktemp("models") / "small-gpt2", build("GPT2", **GPT2))
