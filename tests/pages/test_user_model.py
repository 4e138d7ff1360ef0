"""A module and a tokenizer at hand are looked at as they are, whatever they are, or refused in one sentence."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from headwise.wording import Refusal
from tests.pages.small_models import SENTENCE, build, byte_level_tokenizer


class Letters:
    """A tokenizer of a person's own: each letter is a token."""

    def __call__(self, text):
        return {"input_ids": [ord(letter) % 128 for letter in text]}

    def decode(self, numbers):
        return "".join(map(chr, numbers))


class Words:
    """Another, which gives numbers alone and names them as WordPiece does."""

    names = ("[CLS]", "play", "##ing", "now")
    all_special_ids = (0,)

    def __call__(self, text):
        return list(range(len(self.names)))

    def convert_ids_to_tokens(self, numbers):
        return [self.names[number] for number in numbers]


class Encoder(nn.Module):
    """A module of a person's own, with dropout, which gives one vector to a text."""

    def __init__(self, attention=True):
        super().__init__()
        torch.manual_seed(2)
        self.embed = nn.Embedding(128, 12)
        layer = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.4, batch_first=True)
        self.inner = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            if attention
            else nn.LSTM(12, 12, batch_first=True)
        )

    def forward(self, x):
        out = self.inner(self.embed(x))
        return (out[0] if isinstance(out, tuple) else out).mean(1)


class Latents(nn.Module):
    """Two learned queries look at the tokens, which look at one another."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 12)
        self.own = hw.MultiHeadAttention(12, 3)
        self.pool = hw.MultiHeadAttention(12, 2)
        self.queries = nn.Parameter(torch.randn(1, 2, 12))

    def forward(self, tokens):
        return self.pool(self.queries, self.own(self.embed(tokens)))


def test_a_module_of_ones_own_is_looked_at_and_left_as_it_was():
    module = Encoder().train()
    seen = hw.look("hello you", model=(module, Letters()))
    assert (seen.model, seen.difference, len(seen.weights)) == ("Encoder", 0.0, 2)
    assert [word.text for word in seen.words if word.text.strip("␣")] == ["hello", "you"]
    assert all(each.training for each in module.modules())
    module.eval()
    with hw.watch(module) as watched, torch.no_grad():
        module(torch.tensor(Letters()("hello you")["input_ids"])[None])
    for (_, made), weights in zip(watched.in_order(), seen.weights.values(), strict=True):
        assert torch.equal(made.dense()[0].float(), weights)
    assert seen.page().to_dict()["sides"][0]["tokens"] == [*"hello", "␣", *"you"]


def test_names_of_tokens_are_read_as_text_and_special_ones_apart():
    seen = hw.look("playing now", model=(Encoder(), Words()), query="playing")
    assert [token.text for token in seen.tokens] == ["[CLS]", "play", "ing", "now"]
    assert [word.text for word in seen.words] == ["playing", "now"]
    assert seen.queried == (1, 2)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize(("kind", "sizes"), [("Bert", "BERT"), ("GPT2", "GPT2")])
def test_a_module_of_hugging_face_gives_what_its_folder_gives(kind, sizes, request):
    from tests.pages import small_models

    folder = request.getfixturevalue(f"{kind.lower()}_folder")
    module = build(kind, **getattr(small_models, sizes))
    ours, theirs = hw.look(SENTENCE, model=(module, byte_level_tokenizer())), hw.look(SENTENCE, model=folder)
    assert ours.links == theirs.links
    assert (ours.tokens, ours.words, ours.walk) == (theirs.tokens, theirs.words, theirs.walk)


@pytest.mark.needs("transformers")
def test_a_head_on_top_changes_no_link():
    from transformers import BertConfig, BertForSequenceClassification

    from tests.pages.small_models import BERT

    torch.manual_seed(1)
    module = BertForSequenceClassification(BertConfig(vocab_size=301, **BERT))
    seen = hw.look(SENTENCE, model=(module, byte_level_tokenizer()))
    assert next(name for name, _ in seen.maps).startswith("bert.encoder.layer.0")
    assert seen.links == hw.look(SENTENCE, model=(module.bert, byte_level_tokenizer())).links


def test_maps_of_other_things_than_the_tokens_are_named():
    seen = hw.look("hello", model=(Latents(), Letters()))
    assert [name for name, _ in seen.maps] == ["own"]
    assert seen.notes == ("Not seen: pool (its 2 queries and 5 keys are not the 5 tokens).",)


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        ((Encoder(attention=False), Letters()), Refusal, "found 1 Embedding, 1 LSTM, and no attention was seen"),
        ((Encoder(), lambda text: [5, 300]), Refusal, "must run on its 2 tokens, but Encoder did not .IndexError"),
        ((Encoder(), lambda text: {"tokens": [1]}), Refusal, "must make input_ids of a text, .* function did not"),
        ((Encoder(), lambda text: []), Refusal, "must hold at least one word"),
        ((Encoder(),), ArgumentError, r"\(module, tokenizer\): .*; got \(Encoder\)"),
        ((Letters(), Encoder()), ArgumentError, r"got \(Letters, Encoder\)"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(model, error, said):
    with pytest.raises(error, match=said) as raised:
        hw.look("hello you", model=model)
    assert "\n" not in str(raised.value)


def test_a_module_that_is_not_the_same_twice_is_refused():
    class Noisy(Encoder):
        def forward(self, x):
            return super().forward(x) + torch.rand(1)

    with pytest.raises(Refusal, match="bit for bit, but an output of Noisy differs by 0"):
        hw.look("hello", model=(Noisy(), Letters()))
