"""Looks and models that many tests read, each made once."""

import contextlib
import itertools
from pathlib import Path

import pytest

from headwise.pages import look
from tests.optional import require
from tests.pages.browsing import opened
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


@pytest.fixture(scope="session")
def animal_page(animal, tmp_path_factory):
    """The page of the README's sentence as a file."""
    return animal.page().save(tmp_path_factory.mktemp("pages") / "animal.html")


@pytest.fixture
def open_page(browser, tmp_path):
    """open_page(page or file) -> the page in the browser, which must have asked for nothing when the test ends."""
    with contextlib.ExitStack() as stack:
        count = itertools.count()

        def opening(page, *, max_mb=12.0, **options):
            file = page if isinstance(page, Path) else page.save(tmp_path / f"{next(count)}.html", max_mb=max_mb)
            return stack.enter_context(opened(browser, file, **options))

        yield opening
