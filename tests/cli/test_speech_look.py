"""Speech look: the maps of a speech model against eager weights, and the WAV files that it takes."""

import json
import re
import shutil
import struct
import wave

import pytest
import torch

import headwise as hw
from headwise.errors import InputError
from headwise.pages.encoder_decoder import SOURCE, TARGET
from headwise.pages.models import silent
from headwise.pages.speech_look import SpeechRequest, look_at_speech, read_sound
from headwise.wording import CHINESE, ENGLISH, LANGUAGES, Refusal
from tests.cli.test_heads import predicting

pytestmark = pytest.mark.needs("transformers")
SIZES = {
    "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 31, "decoder_ffn_dim": 29, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2, "decoder_start_token_id": 2, "num_mel_bins": 8, "max_source_positions": 50,
    "max_target_positions": 12,
}  # fmt: skip
RATE, SAMPLES = 16000, 12000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import transformers

    place = predicting(("Whisper", "WhisperForConditionalGeneration"), tmp_path_factory.mktemp("w") / "small", **SIZES)
    # a second of sound, 100 mel frames, 50 positions of the encoder
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(place)
    return place


def write_sound(file, values, *, width=2, channels=1, rate=RATE):
    """A WAV file of whole numbers."""
    with wave.open(str(file), "wb") as sound:
        sound.setparams((channels, width, rate, 0, "NONE", ""))
        sound.writeframes(b"".join(value.to_bytes(width, "little", signed=width > 1) for value in values))
    return file


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    values = torch.randint(-9000, 9000, (SAMPLES,), generator=torch.Generator().manual_seed(1)).tolist()
    return write_sound(tmp_path_factory.mktemp("sounds") / "noise.wav", values)


# a text of five tokens, what the model writes in four, and until it ends
TARGETS = {"text": ("the tired animal was it", None), "counted": (None, 4), "whole": (None, None)}


@pytest.mark.parametrize("name", TARGETS)
def test_maps_and_probabilities_are_those_of_the_eager_model(folder, audio, name):
    import transformers

    text, count = TARGETS[name]
    result = look_at_speech(SpeechRequest(audio, folder, text, count), silent)
    kind = transformers.WhisperForConditionalGeneration
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    sound = torch.tensor(struct.unpack(f"<{SAMPLES}h", audio.read_bytes()[44:])) / 32768
    inputs = extractor(sound.numpy(), sampling_rate=RATE, return_tensors="pt")
    with torch.no_grad():
        if text is None:
            ids = model.generate(**inputs, do_sample=False, **({} if count is None else {"max_new_tokens": count}))
        else:
            ids = tokenizer(text, return_tensors="pt").input_ids
        ids = torch.cat([torch.tensor([[2]]), ids], dim=1)
        out = model(**inputs, decoder_input_ids=ids[:, :-1], output_attentions=True, use_cache=False)
    assert len(result.targets) == ids.shape[1] - 1
    assert count in (None, len(result.targets))
    assert (result.sources[:3], result.sources[-1], len(result.sources)) == (("0.00s", "0.02s", "0.04s"), "0.98s", 50)
    for sides, wanted in (
        ((SOURCE, SOURCE), out.encoder_attentions), ((TARGET, TARGET), out.decoder_attentions),
        ((TARGET, SOURCE), out.cross_attentions),
    ):  # fmt: skip
        maps = [m for _, m, *places in result.maps if tuple(places) == sides]
        assert len(maps) == len(wanted) > 0
        for m, weights in zip(maps, wanted, strict=True):
            torch.testing.assert_close(m.dense(), weights, rtol=0, atol=2e-5)
    chosen = out.logits[0].softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
    assert [step.probability for step in result.steps] == pytest.approx(chosen.tolist(), rel=1e-3)


def test_a_target_that_begins_as_the_decoder_does_begins_once(folder, audio, tmp_path):
    import transformers
    from tokenizers import processors

    own = shutil.copytree(folder, tmp_path / "own")
    tokenizer = transformers.AutoTokenizer.from_pretrained(own)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", 2)]
    )
    tokenizer.save_pretrained(own)
    result = look_at_speech(SpeechRequest(audio, own, "it was"), silent)
    assert result.targets.count("<pad>") == 1


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 2), (3, 1), (4, 3)])
def test_a_sound_is_the_mean_of_its_channels_whatever_its_width(tmp_path, width, channels):
    half = 1 << (8 * width - 1)
    values = torch.randint(-half, half, (5, channels), generator=torch.Generator().manual_seed(width))
    values[0] = -half
    written = (values + half if width == 1 else values).flatten().tolist()
    file = write_sound(tmp_path / "s.wav", written, width=width, channels=channels, rate=8000)
    sound, rate = read_sound(file)
    assert rate == 8000
    torch.testing.assert_close(sound, (values.double() / half).mean(1).float(), rtol=0, atol=0)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_command_prints_and_writes_it(headwise, folder, audio, tmp_path, monkeypatch, lang):
    monkeypatch.chdir(tmp_path)
    command = ("look", "--audio", audio, "--model", folder, "--generate", 3, "--lang", lang)
    done = headwise(*command, "-o", "s.html")
    assert (done.exit_code, done.stderr) == (0, "")
    table = {"en": ENGLISH, "zh": CHINESE}[lang]
    assert table["target.column.links"] in done.stdout
    assert "noise.wav" in done.stdout
    assert '"0.98s"' in (tmp_path / "s.html").read_text(encoding="utf-8")
    done = headwise(*command, "--json", "-o", "s.json")
    kept = json.loads(done.stdout)
    assert (len(kept["sources"]), len(kept["targets"]), kept["text"]) == (50, 3, "noise.wav")


def test_watched_maps_of_sound_take_times_and_words(folder):
    import transformers

    model = transformers.WhisperModel.from_pretrained(folder).eval()
    features, ids = torch.randn(1, 8, 100), torch.tensor([[2, 5, 9, 7, 11]])
    with torch.no_grad(), hw.watch(model) as seen:
        model(input_features=features, decoder_input_ids=ids)
    times = [f"{n / 50:.2f}s" for n in range(50)]
    page = hw.look(seen, tokens={"queries": list("abcde"), "keys": times})
    lengths = [(len(page.sides[layer.queries].tokens), len(page.sides[layer.keys].tokens)) for layer in page.layers]
    assert lengths == [(50, 50), (5, 5), (5, 50), (5, 5), (5, 50)]
    assert page.sides[page.layers[0].keys].tokens[1] == "0.02s"


def test_what_cannot_be_heard_is_refused(headwise, folder, audio, bert_folder, tmp_path):
    slow = write_sound(tmp_path / "slow.wav", [1, 2, 3], rate=8000)
    empty = write_sound(tmp_path / "empty.wav", [])
    for command, sentence in (
        (("--audio", audio), "A sound is heard by a speech model, and none came"),
        (("--audio", audio, "--model", bert_folder), r"small-bert (bert) must be an encoder with a decoder"),
        (("--audio", __file__, "--model", folder), "The sound must be a WAV file of integers (PCM), but"),
        (("--audio", tmp_path / "none.wav", "--model", folder), "none.wav is none (FileNotFoundError"),
        (("--audio", empty, "--model", folder), "empty.wav is none (it holds no whole sample)"),
        (("--audio", slow, "--model", folder), "small takes 16000 samples a second, but"),
        (("--audio", audio, "--model", folder, "--query", "it", "--cut"), "but --cut, --query came: leave it out"),
        (("--audio", audio, "--model", folder, "--pair", "it", "--generate", 2), "but both came: give one of them"),
        (("a text", "--audio", audio), "Exactly one of TEXT, --file, --image, --audio and --maps"),
    ):
        done = headwise("look", *command)
        assert (done.exit_code, done.stdout) == (2, "")
        assert sentence in done.stderr
    with pytest.raises(InputError, match="at least one word"):
        look_at_speech(SpeechRequest(audio, folder, " "), silent)


def refused(file, model, text=None, count=None):
    """The refusal in English and in Chinese, with the same numbers; no English reason of ours in the second."""
    with pytest.raises(Refusal) as raised:
        look_at_speech(SpeechRequest(file, model, text, count), silent)
    said = [raised.value.said(lang) for lang in LANGUAGES]
    assert sorted(re.findall(r"\d+", said[0])) == sorted(re.findall(r"\d+", said[1]))
    return said


def test_a_sound_that_the_model_would_cut_is_refused(folder, tmp_path):
    # the extractor of the model takes one second
    whole = write_sound(tmp_path / "whole.wav", [7] * RATE)
    assert len(look_at_speech(SpeechRequest(whole, folder, "it was"), silent).sources) == 50
    longer = write_sound(tmp_path / "longer.wav", [7] * (RATE + 4000))
    english, chinese = refused(longer, folder, "it was")
    assert f"takes at most 1 seconds of sound, but {longer} has 1.25: cut it" in english
    assert f"最多听 1 秒的声音，但 {longer} 有 1.25 秒" in chinese


def test_a_sound_of_half_a_sample_is_refused(folder, tmp_path):
    half = write_sound(tmp_path / "half.wav", [7])
    half.write_bytes(half.read_bytes()[:-1])
    english, chinese = refused(half, folder)
    assert f"{half} is none (it holds no whole sample)" in english
    assert "没有一个完整的采样" in chinese


def test_a_model_that_reads_samples_is_refused(audio, tmp_path):
    import transformers

    sizes = {
        "hidden_size": 24, "intermediate_size": 29, "encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4, "pad_token_id": 2,
    }  # fmt: skip
    place = predicting(("Moonshine", "MoonshineForConditionalGeneration"), tmp_path / "moon", **sizes)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(place)
    english, chinese = refused(audio, place)
    assert "must read input_features, as Whisper does, but moon (moonshine) reads input_values" in english
    assert "moon（moonshine）读的是 input_values" in chinese


def test_a_target_that_is_too_long_is_refused(folder, audio):
    english, chinese = refused(audio, folder, "it " * 19 + "it")
    assert "must run on the sound and a target of 20 tokens, but did not (" in english
    assert "20 个 token 的目标文本" in chinese
    english, chinese = refused(audio, folder, count=40)
    assert "must generate so many tokens: 40, but did not (ValueError" in english
    assert "须能生成这么多个 token：40，但没有" in chinese


def test_a_sound_without_features_is_refused(folder, audio, monkeypatch):
    import transformers

    def fails(*args, **options):
        raise ZeroDivisionError("no frame")

    monkeypatch.setattr(transformers.WhisperFeatureExtractor, "__call__", fails)
    assert f"could not of the {SAMPLES} samples of {audio} (ZeroDivisionError: no frame)" in refused(audio, folder)[0]
