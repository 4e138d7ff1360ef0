"""Encoder-decoder: maps of source, target and cross-attention against eager weights, and what the command says."""

import json

import pytest
import torch

from headwise.pages.encoder_decoder import SOURCE, TARGET, TargetRequest, look_at_target
from headwise.pages.models import silent
from headwise.wording import CHINESE, ENGLISH, LANGUAGES, Refusal
from tests.cli.test_heads import predicting
from tests.pages.small_models import GPT2, SENTENCE

pytestmark = pytest.mark.needs("transformers")
KINDS = {
    "t5": (("T5", "T5ForConditionalGeneration"), {
        "d_model": 24, "d_kv": 7, "d_ff": 37, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
        "decoder_start_token_id": 0, "eos_token_id": 1,
    }),
    "bart": (("Bart", "BartForConditionalGeneration"), {
        "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 31, "decoder_ffn_dim": 29, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "max_position_embeddings": 64,
    }),
}  # fmt: skip
# of fewer tokens than the source, and of as many
TARGETS = {"shorter": "it was", "as long": "it was the tired animal", "generated": None}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        name: predicting(kind, tmp_path_factory.mktemp("models") / name, **sizes)
        for name, (kind, sizes) in KINDS.items()
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KINDS)
def test_maps_and_probabilities_are_those_of_the_eager_model(folders, name, target):
    import transformers

    text = TARGETS[target]
    request = TargetRequest(SENTENCE, folders[name], text, None if text else 4)
    result = look_at_target(request, silent)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folders[name], attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[name])
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad():
        if text is None:
            ids = model.generate(**inputs, max_new_tokens=4, do_sample=False)
            read, labels = ids[:, :-1], ids[:, 1:]
        else:
            labels = tokenizer(text, return_tensors="pt").input_ids
            start = torch.tensor([[model.config.decoder_start_token_id]])
            read = torch.cat([start, labels[:, :-1]], dim=1)
        out = model(**inputs, decoder_input_ids=read, output_attentions=True, use_cache=False)
    assert (len(result.sources), len(result.targets)) == (inputs.input_ids.shape[1], read.shape[1])
    for sides, wanted in (
        ((SOURCE, SOURCE), out.encoder_attentions), ((TARGET, TARGET), out.decoder_attentions),
        ((TARGET, SOURCE), out.cross_attentions),
    ):  # fmt: skip
        found = [m for _, m, *places in result.maps if tuple(places) == sides]
        assert len(found) == len(wanted) > 0
        for m, weights in zip(found, wanted, strict=True):
            torch.testing.assert_close(m.dense(), weights, rtol=0, atol=2e-5)
    chosen = out.logits[0].softmax(-1).gather(-1, labels[0, :, None])[:, 0]
    assert [step.probability for step in result.steps] == pytest.approx(chosen.tolist(), rel=1e-3)
    cross = torch.stack([weights[0] for weights in out.cross_attentions])
    for step, links in zip(result.steps, result.links, strict=True):
        assert links[0].weight == pytest.approx(float(cross[:, :, step.query].max()), abs=2e-5)
        _, m, queries, keys = result.maps[links[0].layer]
        assert (queries, keys) == (TARGET, SOURCE)
        assert links[0].to == result.sources[int(m[0, links[0].head, step.query].argmax())]
    page = result.page()
    assert [(layer.queries, layer.keys) for layer in page.layers] == [tuple(places) for _, _, *places in result.maps]
    assert [len(side.tokens) for side in page.sides] == [len(result.sources), len(result.targets)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_command_prints_and_writes_it(headwise, folders, tmp_path, monkeypatch, lang):
    monkeypatch.chdir(tmp_path)
    command = ("look", SENTENCE, "--model", folders["t5"], "--lang", lang)
    done = headwise(*command, "--pair", "it was", "-o", "t.html")
    assert (done.exit_code, done.stderr) == (0, "")
    table = {"en": ENGLISH, "zh": CHINESE}[lang]
    assert table["target.column.links"] in done.stdout
    assert '"side":1' in (tmp_path / "t.html").read_text(encoding="utf-8")
    done = headwise(*command, "--generate", 3, "-o", "t.json")
    kept = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(kept["next"]) == len(kept["targets"]) == 3
    assert len(kept["sources"]) == 5


def test_what_cannot_be_is_refused(headwise, folders, tmp_path):
    command = ("look", SENTENCE, "--model", folders["bart"])
    done = headwise(*command)
    assert done.exit_code == 2
    assert "headwise look gives the decoder a text with --pair TEXT2, or lets it go on with --generate N" in done.stderr
    done = headwise(*command, "--pair", "it was", "--generate", 3)
    assert (done.exit_code, "but both came: give one of them" in done.stderr) == (2, True)
    done = headwise(*command, "--generate", 3, "--query", "it")
    assert (done.exit_code, "but --query came: leave it out" in done.stderr) == (2, True)
    # a model of one stack reads a pair as before
    gpt2 = predicting(("GPT2", "GPT2LMHeadModel"), tmp_path / "gpt2", **GPT2)
    done = headwise("look", SENTENCE, "--pair", "it was", "--model", gpt2, "-o", tmp_path / "p.html")
    assert done.exit_code == 0


def refused(request):
    with pytest.raises(Refusal) as raised:
        look_at_target(request, silent)
    return [raised.value.said(lang) for lang in LANGUAGES]


def test_a_source_or_a_target_that_is_too_long_is_refused_with_both_counts(folders):
    # the decoder has 64 positions
    english, chinese = refused(TargetRequest("it was", folders["bart"], "it " * 69 + "it"))
    assert "a source of 2 tokens and a target of 70, but did not (" in english
    assert "2 个 token 的源和 70 个 token 的目标文本" in chinese
    english, chinese = refused(TargetRequest("it was", folders["bart"], None, 90))
    assert "must generate so many tokens: 90, but did not (IndexError" in english
    assert "须能生成这么多个 token：90" in chinese


def test_sources_of_two_lengths_are_refused_in_both_languages(folders, monkeypatch):
    from headwise.pages import encoder_decoder

    sided = encoder_decoder._sided

    def two_lengths(*args):
        maps = sided(*args)
        return (*maps, (maps[0][0], maps[0][1][:, :, :3, :3], SOURCE, SOURCE))

    monkeypatch.setattr(encoder_decoder, "_sided", two_lengths)
    english, chinese = refused(TargetRequest(SENTENCE, folders["t5"], "it was"))
    assert "the lengths of its source are 3, 5" in english
    assert "源的长度是 3, 5" in chinese
    assert "lengths" not in chinese
