"""The main job: the links of the real model, proved by the untouched one, and every kind of model refused or read."""

import dataclasses
import json

import pytest
import torch

import headwise as hw
from headwise.pages import Look, look
from headwise.wording import Refusal
from tests.pages.conftest import ANIMAL
from tests.pages.small_models import BERT, GPT2, SENTENCE, build, byte_level_tokenizer, save

pytestmark = pytest.mark.needs("transformers")
MINILM = pytest.mark.needs("minilm")


def links_of(seen: Look, name: str) -> dict[str, tuple[float, int, int]]:
    (found,) = [found for found in seen.links if found.word.name == name]
    return {link.to: (link.weight, link.layer, link.head) for link in found.links}


@MINILM
def test_it_looks_at_animal_and_tired_as_the_eager_model_says(animal, eager_attentions):
    tokens = [token.text for token in animal.tokens]
    it, links = tokens.index("it"), links_of(animal, "it")
    for word, layer, head, figure in (("animal", 3, 1, 0.68), ("tired", 2, 1, 0.71)):
        theirs = float(eager_attentions[layer, head, it, tokens.index(word)])
        assert round(theirs, 2) == figure
        assert links[word][1:] == (layer, head)
        assert round(links[word][0], 5) == pytest.approx(theirs, abs=1e-5)


@MINILM
def test_the_five_links_of_it_are_in_order_and_special_tokens_apart():
    (found,) = look(ANIMAL, query="it").links
    assert [str(link) for link in found.links][:4] == [
        "because 1.00 L0H2",
        "was 0.75 L1H8",
        "tired 0.71 L2H1",
        "animal 0.68 L3H1",
    ]
    assert len(found.links) == 5
    assert [link.to for link in found.special] == ["[CLS]", "[SEP]"]
    assert round(found.special[0].weight, 2) == 0.90


@MINILM
def test_every_weight_of_every_head_is_that_of_the_eager_model(animal, eager_attentions):
    ours = torch.stack([animal.weights[layer] for layer in range(6)])
    assert ours.shape == eager_attentions.shape == (6, 12, 16, 16)
    torch.testing.assert_close(ours, eager_attentions)


@MINILM
def test_the_proof_is_in_the_result(animal):
    assert animal.difference == 0.0
    assert animal.notes == ()
    assert "bit for bit that of a run without headwise (largest difference: 0)" in " ".join(str(animal).split())


@MINILM
def test_the_words_are_those_of_the_text(animal):
    words = ["The", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired", "."]
    assert [word.text for word in animal.words] == words
    assert [found.word.text for found in animal.links] == words[:-1]


@MINILM
def test_terminal_and_page_show_one_selection_and_say_what_it_leaves_out(animal):
    page = animal.page()
    cells = {(row.word.name, link.to, link.weight) for row in animal.links for link in row.links}
    strongest = sorted(cells, key=lambda cell: -cell[2])[: len(page.links)]
    assert [(link["from"], link["to"], link["weight"]) for link in page.links] == strongest
    # the head that the terminal draws is the one that the page opens at, and holds the first link
    first = page.links[0]
    assert animal.drawn == ((page.opening["layer"], page.opening["head"]),) == ((first["layer"], first["head"]),)
    assert page.opening["token"] == first["query"]
    assert not page.has_all_links
    assert "without neighbours and punctuation" in str(animal)
    assert animal.to_dict()["left_out"] == ["neighbours", "punctuation"]


@MINILM
def test_the_walk_has_the_real_sizes(animal):
    text = " ".join(str(animal).split())
    assert (
        "q [B, L, D] = [1, 16, 384] → query → [B, L, H*d] = [1, 16, 384] → split → [B, H, L, d] = [1, 12, 16, 32]"
        in text
    )


def test_a_model_that_does_not_repeat_itself_is_refused_with_the_figure(bert_folder, monkeypatch):
    from headwise.pages import model_run

    counted = []

    def drifting(loaded, reading):
        out = outputs(loaded, reading)
        counted.append(out)
        return [t + 0.25 * (len(counted) - 1) for t in out]

    outputs = model_run._outputs
    monkeypatch.setattr(model_run, "_outputs", drifting)
    with pytest.raises(Refusal, match=r"an output of small-bert differs by 0\.25: make it deterministic"):
        look(SENTENCE, model=bert_folder)


def test_outputs_of_nan_are_alike_and_finite_ones_are_not(bert_folder):
    from headwise.pages import model_run
    from headwise.pages.models import load

    loaded = load(bert_folder, lambda key, values: None)
    nan, one = torch.tensor([float("nan"), 1.0]), torch.tensor([2.0, 1.0])
    assert model_run._difference(loaded, [nan, one], [nan.clone(), one.clone()]) == 0.0
    with pytest.raises(Refusal, match="an output of small-bert differs by"):
        model_run._difference(loaded, [nan], [one])


def test_a_small_bert_is_read_from_a_folder(bert_folder):
    seen = look(SENTENCE, model=bert_folder, query="animal")
    assert (seen.model, seen.model_type) == ("small-bert", "bert")
    assert {layer: tuple(heads.shape) for layer, heads in seen.weights.items()} == {
        n: (3, len(seen.tokens), len(seen.tokens)) for n in range(2)
    }
    assert [found.word.name for found in seen.links] == ["animal"]


def test_a_half_precision_bert_is_watched_as_it_is(tmp_path):
    folder = save(tmp_path / "half", build("Bert", **BERT).half())
    seen = look(SENTENCE, model=folder)
    assert seen.difference == 0.0
    rows = torch.stack([weights.sum(-1) for weights in seen.weights.values()])
    torch.testing.assert_close(rows, torch.ones_like(rows))


def eager_weights(model, folder, text):
    tokenizer = byte_level_tokenizer()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions


LLAMA = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 17,
}


@pytest.mark.parametrize(("kind", "sizes"), [("GPT2", GPT2), ("Llama", LLAMA)])
def test_the_weights_of_any_model_are_those_of_its_own_eager_attention(kind, sizes, tmp_path):
    model = build(kind, **sizes)
    folder = save(tmp_path / kind, model)
    seen = look(SENTENCE, model=folder)
    theirs = eager_weights(model, folder, SENTENCE)
    assert len(seen.weights) == len(theirs)
    for layer, weights in enumerate(theirs):
        torch.testing.assert_close(seen.weights[layer], weights[0])
    assert seen.difference == 0.0
    assert "bit for bit" in " ".join(str(seen).split())
    assert "逐位相同" in str(dataclasses.replace(seen, lang="zh"))


def test_a_causal_model_looks_only_back(gpt2_folder):
    seen = look(SENTENCE, model=gpt2_folder)
    names = [word.name for word in seen.words]
    for n, found in enumerate(seen.links):
        assert {link.to for link in found.links} <= set(names[:n])
    assert seen.links[0].links == ()
    assert "no other word" in str(look(SENTENCE, model=gpt2_folder, query=names[0]))


def test_bytes_of_one_character_read_as_that_character(gpt2_folder):
    seen = look("the 你好", model=gpt2_folder, query="你好")
    assert {token.text for token in seen.tokens if token.span is not None and token.span[0] >= 4} == {"你", "好"}
    assert [found.word.text for found in seen.links] == ["你好"]


def test_a_dictionary_of_the_result_is_json_and_complete(bert_folder):
    seen = look(SENTENCE, model=bert_folder, layer=1, head=[0, 2])
    found = json.loads(json.dumps(seen.to_dict()))
    assert found["schema"] == 1
    assert [(drawn["layer"], drawn["head"]) for drawn in found["maps"]] == [(1, 0), (1, 2)]
    torch.testing.assert_close(torch.tensor(found["maps"][1]["weights"]), seen.weights[1][2])
    assert [word["name"] for word in found["words"]] == SENTENCE.split()
    assert [token["text"] for token in found["tokens"]] == [token.text for token in seen.tokens]
    assert found["links"][0]["links"][0] == {
        "to": seen.links[0].links[0].to,
        "weight": pytest.approx(seen.links[0].links[0].weight),
        "layer": seen.links[0].links[0].layer,
        "head": seen.links[0].links[0].head,
    }
    assert found["walk"][0]["steps"][1]["operation"] == "query"
    assert found["walk"][0]["steps"][1]["sizes"] == [1, len(seen.tokens), 24]


def test_a_look_is_frozen(bert_folder):
    seen = look(SENTENCE, model=bert_folder)
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.text = "other"


def test_the_public_name_is_this_function():
    assert hw.look is look


def test_the_slow_steps_are_told_in_order(bert_folder, gpt2_folder, tmp_path):
    def told(**options) -> list[str]:
        steps = []
        look(SENTENCE, progress=lambda key, _: steps.append(key), **options)
        return list(dict.fromkeys(steps))

    assert told(model=bert_folder, output=tmp_path / "a.txt") == [
        *("step.loading", "step.untouched", "step.watched", "step.links", "step.writing")
    ]
    assert told(model=gpt2_folder) == ["step.loading", "step.untouched", "step.watched", "step.links"]


def test_how_far_a_step_has_come_is_told_by_layers_run_and_bytes_written(bert_folder, tmp_path):
    heard = []
    page = tmp_path / "a.html"
    look(SENTENCE, progress=lambda key, values: heard.append((key, values)), model=bert_folder, output=page)
    parts = [(key, values["done"], values["total"]) for key, values in heard if "total" in values]
    assert parts[:4] == [
        *(("step.watched", 1, 2), ("step.watched", 2, 2)),
        *(("step.carrying", 0, 2), ("step.carrying", 1, 2)),
    ]
    assert parts[4:] == [("step.bytes", 0, page.stat().st_size)]


@MINILM
def test_a_look_is_a_line_where_its_repr_is_shown(animal):
    said = "<Look at 'The animal didn't cross the street beca…': all-MiniLM-L6-v2, 6 layers, 72 heads, 16 tokens>"
    assert repr(animal).replace('"', "'") == said
