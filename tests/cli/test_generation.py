"""Generation: what a causal model generates, with the probabilities and rows of one run over the whole sequence."""

import json

import pytest
import torch

from headwise.errors import InputError
from headwise.pages.generation import GenerationRequest, generated
from headwise.pages.models import silent
from headwise.wording import CHINESE, ENGLISH
from tests.cli.test_heads import predicting
from tests.pages.small_models import BERT, GPT2, SENTENCE

pytestmark = pytest.mark.needs("transformers")
LLAMA = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "hidden_size": 24,
    "intermediate_size": 17, "max_position_embeddings": 61,
}  # fmt: skip
SLIDING = LLAMA | {"head_dim": 6, "sliding_window": 4}
KINDS = {
    "gpt2": (("GPT2", "GPT2LMHeadModel"), GPT2),
    "llama": (("Llama", "LlamaForCausalLM"), LLAMA),
    "gemma3": (("Gemma3Text", "Gemma3ForCausalLM"), SLIDING),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        name: predicting(*kind[:1], tmp_path_factory.mktemp("models") / name, **kind[1]) for name, kind in KINDS.items()
    }


@pytest.mark.parametrize("name", KINDS)
def test_each_step_is_that_of_the_whole_sequence_at_once(folders, name):
    import transformers

    count = 7
    result = generated(GenerationRequest(SENTENCE, count, folders[name]), silent)
    model = transformers.AutoModelForCausalLM.from_pretrained(folders[name], attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[name])
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    prompt = ids.shape[1]
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=ids).logits[0, -1]
            ids = torch.cat([ids, logits.argmax()[None, None]], dim=1)
        out = model(input_ids=ids[:, :-1], output_attentions=True)
    assert len(result.steps) == count
    assert len(result.tokens) == prompt + count - 1
    probabilities = out.logits[0].float().softmax(-1)
    for n, step in enumerate(result.steps):
        assert step.query == prompt - 1 + n
        assert step.probability == pytest.approx(float(probabilities[step.query].amax()), rel=1e-3)
        assert step.text == (tokenizer.decode([int(ids[0, prompt + n])]).strip() or step.text)
    assert len(result.maps) == len(out.attentions)
    for (_, found), wanted in zip(result.maps, out.attentions, strict=True):
        torch.testing.assert_close(found.dense(), wanted, rtol=0, atol=2e-5)
    # the links are the largest weights of the row
    for step, links in zip(result.steps, result.links, strict=True):
        row = torch.stack([weights[0, :, step.query] for weights in out.attentions])
        assert links[0].weight == pytest.approx(float(row.max()), abs=2e-5)
        assert float(row[links[0].layer, links[0].head].max()) == pytest.approx(links[0].weight, abs=2e-5)
        assert [link.weight for link in links] == sorted((link.weight for link in links), reverse=True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_command_prints_and_writes_it(headwise, folders, tmp_path, monkeypatch, lang):
    monkeypatch.chdir(tmp_path)
    command = ("look", SENTENCE, "--model", folders["gpt2"], "--generate", 3, "--lang", lang)
    done = headwise(*command, "-o", "g.html")
    assert (done.exit_code, done.stderr) == (0, "")
    table = {"en": ENGLISH, "zh": CHINESE}[lang]
    assert table["generate.column.probability"] in done.stdout
    assert '"generated":[{' in (tmp_path / "g.html").read_text(encoding="utf-8")
    done = headwise(*command, "-o", "g.json")
    kept = json.loads((tmp_path / "g.json").read_text(encoding="utf-8"))
    assert [set(step) for step in kept["generated"]] == [{"query", "side", "text", "probability", "links"}] * 3
    done = headwise(*command, "-o", "g.txt")
    assert table["generate.column.links"] in (tmp_path / "g.txt").read_text(encoding="utf-8")


def test_what_cannot_generate_is_refused(headwise, folders, tmp_path):
    masked = predicting(("Bert", "BertForMaskedLM"), tmp_path / "bert", **BERT)
    with pytest.raises(InputError, match="bert must be causal to generate, and is not"):
        generated(GenerationRequest(SENTENCE, 3, masked), silent)
    done = headwise("look", SENTENCE, "--model", folders["gpt2"], "--generate", 3, "--query", "tired", "--layer", 0)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--generate shows the steps of one text, but --query, --layer came" in done.stderr
    done = headwise("look", SENTENCE, "--model", folders["gpt2"], "--generate", 0)
    assert (done.exit_code, "0 < 1" in done.stderr) == (2, True)
