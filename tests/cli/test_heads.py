"""headwise heads, effects, and the comparisons of look: what they print, write and refuse, in both languages."""

import json
import re

import pytest
import torch

import headwise as hw
from headwise.wording import CHINESE, ENGLISH
from tests.pages.conftest import ANIMAL
from tests.pages.small_models import BERT, GPT2, SENTENCE, byte_level_tokenizer, save

pytestmark = pytest.mark.needs("transformers")
TABLES = {"en": ENGLISH, "zh": CHINESE}


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def predicting(kind, folder, **sizes):
    """A small model that predicts tokens, in a folder."""
    import transformers

    torch.manual_seed(6)
    config = getattr(transformers, f"{kind[0]}Config")(vocab_size=301, **sizes)
    model = getattr(transformers, kind[1])(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return save(folder, model)


@pytest.mark.parametrize("lang", TABLES)
def test_heads_says_what_each_head_does(headwise, bert_folder, lang):
    done = headwise("heads", SENTENCE, "--model", bert_folder, "--lang", lang)
    assert (done.exit_code, done.stderr) == (0, "")
    rows = re.findall(r"^ ?(L\dH\d) ", done.stdout, flags=re.MULTILINE)
    assert rows == [f"L{layer}H{head}" for layer in range(2) for head in range(3)]
    assert TABLES[lang]["heads.column.chance"] in done.stdout
    assert bool(re.search("[\u4e00-\u9fff]", done.stdout)) == (lang == "zh")


@pytest.mark.needs("minilm")
def test_heads_gives_the_numbers_of_name_heads(headwise):
    done = headwise("heads", ANIMAL, "--json", "--least", 0.7)
    result = json.loads(done.stdout)
    assert (result["schema"], result["tokens"], len(result["heads"])) == (1, 16, 72)
    # a head that attends to the token before, in the first layer
    assert result["heads"][2]["pattern"] == "previous"
    assert result["heads"][2]["scores"]["previous"] > 0.99
    assert result["heads"][2]["chance"]["previous"] == pytest.approx(1 / 16)
    named = [row for row in result["heads"] if row["pattern"] == "first"]
    assert 5 < len(named) < 30
    assert min(row["scores"]["first"] for row in named) >= 0.7
    assert "Clark et al. 2019" in result["definitions"]["previous"]


def test_effects_measures_and_estimates_the_similarity(headwise, bert_folder):
    done = headwise("effects", SENTENCE, "--similar", "it was tired", "--model", bert_folder, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["metric"] == {"similar": "it was tired"}
    assert -1 <= result["base"] <= 1
    assert [(row["name"].split(".")[-3], row["head"]) for row in result["effects"]] == [
        (str(layer), head) for layer in range(2) for head in range(3)
    ]
    assert all(row["measured"] != 0 and row["estimated"] is not None for row in result["effects"])
    # the same by hand
    import transformers

    model = transformers.AutoModel.from_pretrained(bert_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert_folder)

    def embedding(text):
        return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)

    with torch.no_grad():
        target = embedding("it was tired")
        plain = torch.cosine_similarity(embedding(SENTENCE), target, dim=0)
        with hw.intervene(model) as edits:
            edits.find("layer.1").zero(heads=[2])
            changed = torch.cosine_similarity(embedding(SENTENCE), target, dim=0)
    assert result["base"] == pytest.approx(float(plain), abs=1e-5)
    assert result["effects"][5]["measured"] == pytest.approx(float(changed - plain), abs=1e-5)


def test_effects_of_the_probability_of_the_next_word(headwise, tmp_path):
    folder = predicting(("GPT2", "GPT2LMHeadModel"), tmp_path / "gpt2", **GPT2)
    done = headwise("effects", "the tired animal", "--predict", "was", "--model", folder, "--json", "--estimate")
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    (token,) = tokenizer(" was", add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = model(**tokenizer("the tired animal", return_tensors="pt")).logits[0, -1]
    assert result["base"] == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-5)
    assert {row["measured"] for row in result["effects"]} == {None}
    assert len(result["effects"]) == 6
    done = headwise("effects", "the tired animal", "--predict", "unheard-of", "--model", folder)
    assert done.exit_code == 2
    assert re.search(r"must be one token of gpt2, but unheard-of is \d+: ", done.stderr)


def test_effects_of_a_masked_word(headwise, tmp_path):
    import transformers

    folder = predicting(("Bert", "BertForMaskedLM"), tmp_path / "bert", **BERT)
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<s>"})
    tokenizer.save_pretrained(folder)
    done = headwise("effects", "the <s> animal", "--predict", "tired", "--model", folder, "--by", "mean", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = tokenizer("the <s> animal", return_tensors="pt").input_ids
    (place,) = (ids[0] == tokenizer.mask_token_id).nonzero().flatten().tolist()
    (token,) = tokenizer(" tired", add_special_tokens=False).input_ids
    with torch.no_grad():
        wanted = model(ids).logits[0, place].log_softmax(-1)[token]
    assert (result["by"], result["base"]) == ("mean", pytest.approx(float(wanted), abs=1e-5))
    done = headwise("effects", "the animal", "--predict", "tired", "--model", folder)
    assert (done.exit_code, "but it stands 0 times" in done.stderr) == (2, True)


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("lang", TABLES)
def test_effects_prints_a_table_and_writes_the_page(headwise, bert_folder, tmp_path, lang):
    page = tmp_path / "e.html"
    command = ("effects", SENTENCE, "--similar", "it was tired", "--model", bert_folder, "--top", 3, "--lang", lang)
    done = headwise(*command, "-o", page)
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(re.findall(r"^ ?L\dH\d ", done.stdout, flags=re.MULTILINE)) == 3
    assert '"view":"effects"' in page.read_text(encoding="utf-8")
    done = headwise(*command, "-o", tmp_path / "e.svg")
    assert (tmp_path / "e.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("lang", TABLES)
def test_look_compares_with_another_text_a_model_and_a_head_less(headwise, bert_folder, tmp_path, lang):
    for n, options in enumerate((
        ("--against", "the tired animal it was"), ("--ablate", "L0H1", "--ablate", "L0H2"),
        ("--against-model", bert_folder),
    )):  # fmt: skip
        page = tmp_path / f"{n}.html"
        done = headwise("look", SENTENCE, "--model", bert_folder, *options, "-o", page, "--lang", lang)
        assert (done.exit_code, done.stderr) == (0, "")
        title = TABLES[lang]["compare.title"].partition("{")[0]
        assert title in " ".join(done.stdout.split())
        header = re.search(r'id="header">(.*?)</script>', page.read_text(encoding="utf-8"))[1]
        tables = json.loads(header)["tables"]
        assert [table["key"] for table in tables] == [
            "page.compare.divergence", "page.compare.entropy", "page.compare.received",
        ]  # fmt: skip
        largest = max(value for row in tables[0]["values"] for value in row)
        # the same model on the same text does not differ from itself, and a head less changes later layers alone
        assert (largest == 0) == ("--against-model" in options)
        if "--ablate" in options:
            assert max(tables[0]["values"][0]) == 0


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("effects", SENTENCE), "needs one metric, and none came: give --predict WORD or --similar TEXT2"),
        (("effects", SENTENCE, "--predict", "a", "--similar", "b"), "and got --predict, --similar"),
        (("effects", SENTENCE, "--similar", " "), "must hold at least one word, but nothing came"),
        (("look", SENTENCE, "--ablate", "3.1"), "must be written like L3H1, layer and head from 0, but 3.1 came"),
        (("look", SENTENCE, "--ablate", "L2H0"), "A layer must be from 0 to 1, since small-bert has 2, but 2 came"),
        (("heads", SENTENCE, "--least", "2"), "at most 1, but 2.0 came"),
        (("heads", " "), "must hold at least one word, but nothing came"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(headwise, bert_folder, command, sentence):
    done = headwise(*command, "--model", bert_folder)
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(sentence, done.stderr)
    assert "Traceback" not in done.stderr


def test_code_and_maps_are_compared_with_nothing(headwise, tmp_path):
    done = headwise("look", f"{__file__}:Nothing", "--against", "a")
    assert (done.exit_code, "--against" in done.stderr) == (2, True)
    done = headwise("look", "--maps", tmp_path / "m.safetensors", "--ablate", "L0H0")
    assert (done.exit_code, "but --ablate came" in done.stderr) == (2, True)


@pytest.mark.needs("minilm")
def test_a_model_that_predicts_nothing_is_refused(headwise):
    done = headwise("effects", ANIMAL, "--predict", "dog")
    assert done.exit_code == 2
    assert "all-MiniLM-L6-v2 (BertModel) must predict tokens, but has no head for that" in done.stderr
