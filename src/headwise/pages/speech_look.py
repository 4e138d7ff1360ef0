"""Speech look: every head of a speech model on one sound file, its frames by their times."""

from __future__ import annotations

import os
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.pages.encoder_decoder import EncoderDecoderLook, followed, generated
from headwise.pages.models import LoadedModel, Progress, first_line, folder_of, load, quiet, read_pretrained
from headwise.pages.text_tokens import check_text
from headwise.wording import Sentence, refusal

__all__ = ["SpeechRequest", "look_at_speech", "read_sound"]


@dataclass(frozen=True)
class SpeechRequest:
    """A sound file, the speech model that hears it, and its target: a text, or None and how many tokens it generates.

    count: None: until the model ends.
    """

    audio: Path
    model: str | os.PathLike[str]
    target: str | None = None
    count: int | None = None
    lang: str = "en"


def look_at_speech(asked: SpeechRequest, tell: Progress) -> EncoderDecoderLook:
    """Run a speech model on a sound and a target, alone and then watched; the source's tokens are times in seconds."""
    if asked.target is not None:
        check_text(asked.target)
    sound, rate = read_sound(asked.audio)
    loaded = load(asked.model, tell, loader=_speech_loader)
    folder = folder_of(asked.model)
    from transformers import AutoFeatureExtractor

    with quiet():
        extractor = read_pretrained(AutoFeatureExtractor, str(folder or asked.model), loaded.name)
    if rate != extractor.sampling_rate:
        raise refusal(
            "refuse.sampling_rate", model=loaded.name, wanted=extractor.sampling_rate, file=asked.audio, got=rate
        )
    inputs = _inputs(extractor, sound, loaded, asked.audio)
    features = inputs["input_features"]
    # mel frames stand on one axis, their bands on the other
    frames = features.shape[2] if features.shape[1] == extractor.feature_size else features.shape[1]
    seconds = frames * getattr(extractor, "hop_length", rate // 100) / rate

    def ids() -> Tensor:
        return _target_ids(loaded, inputs, asked)

    def times(count: int) -> tuple[str, ...]:
        return tuple(f"{n * seconds / count:.2f}s" for n in range(count))

    return followed(loaded, inputs, ids, tell, text=asked.audio.name, sources=times, lang=asked.lang)


def read_sound(file: Path) -> tuple[Tensor, int]:
    """The samples (n,) of a WAV file, the mean of its channels, between -1 and 1, and how many a second has."""
    try:
        with wave.open(str(file), "rb") as sound:
            width, channels, rate = sound.getsampwidth(), sound.getnchannels(), sound.getframerate()
            data = sound.readframes(sound.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise refusal("refuse.no_sound", file=file, reason=first_line(error)) from error
    octets = torch.frombuffer(bytearray(data), dtype=torch.uint8).long() if data else torch.zeros(0).long()
    # a file that was cut off may end within a sample
    octets = octets[: octets.numel() // (width * channels) * width * channels]
    if not octets.numel():
        raise refusal("refuse.no_sound", file=file, reason=Sentence("look.no_samples"))
    octets = octets.view(-1, channels, width)
    # little-endian; one byte has no sign, more have
    values = (octets << (8 * torch.arange(width))).sum(-1)
    half = 1 << (8 * width - 1)
    signed = values - half if width == 1 else torch.where(values >= half, values - 2 * half, values)
    return (signed.double() / half).mean(1).float(), rate


def _inputs(extractor: Any, sound: Tensor, loaded: LoadedModel, file: Path) -> dict[str, Tensor]:
    """What a model reads of a sound (n,) at its sampling rate; a Refusal where that is not all of it."""
    if "input_features" not in extractor.model_input_names:
        names = ", ".join(extractor.model_input_names)
        raise refusal("refuse.no_features", model=loaded.name, model_type=loaded.config.model_type, names=names)
    # Whisper's extractor cuts a longer sound without a word
    rate, longest = extractor.sampling_rate, getattr(extractor, "n_samples", None)
    if longest is not None and len(sound) > longest:
        seconds, most = (f"{count / rate:.7g}" for count in (len(sound), longest))
        raise refusal("refuse.long_sound", model=loaded.name, most=most, file=file, got=seconds)
    try:
        return dict(extractor(sound.numpy(), sampling_rate=rate, return_tensors="pt"))
    except Exception as error:
        reason = first_line(error)
        raise refusal("refuse.extractor", model=loaded.name, file=file, got=len(sound), reason=reason) from error


def _speech_loader(name: str, config: Any) -> str:
    """The class of transformers that reads a model of sound to text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES

    if config.model_type not in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES or not config.is_encoder_decoder:
        raise refusal("refuse.no_speech", model=name, model_type=config.model_type)
    return "AutoModelForSpeechSeq2Seq"


def _target_ids(loaded: LoadedModel, inputs: Mapping[str, Tensor], asked: SpeechRequest) -> Tensor:
    """The ids (1, T + 1) that the decoder reads, and after them the last one that it is to give."""
    start = loaded.config.decoder_start_token_id
    if asked.target is not None:
        labels: Tensor = loaded.tokenizer(text_target=asked.target, return_tensors="pt").input_ids
        # the tokenizers of some models begin with what the decoder begins with
        return labels if int(labels[0, 0]) == start else torch.cat([torch.full_like(labels[:, :1], start), labels], 1)
    options: dict[str, Any] = {} if asked.count is None else {"max_new_tokens": asked.count}
    if loaded.config.model_type == "whisper":
        # else it leaves out what its decoder begins with
        options["force_unique_generate_call"] = True
    return generated(loaded, inputs, **options)
