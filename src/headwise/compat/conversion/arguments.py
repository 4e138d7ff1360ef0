"""Arguments: names and files of a conversion, refused where they cannot be before torch is imported."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from headwise.atomic_write import check_place
from headwise.errors import ConversionError
from headwise.wording import refusal

__all__ = ["NAMES", "PICKLES", "SUFFIXES", "check_convention", "check_file", "check_output", "check_suffix",
           "read_config"]  # fmt: skip

PICKLES = (".pt", ".pth", ".bin")
SUFFIXES = (".safetensors", *PICKLES)
# the names and aliases of the tables in `registry`, in their order; a test holds the two to each other
NAMES = (
    "torch", "torch_separate", "d2l", "note_002", "note_003", "annotated", "note_004", "vit", "note_000", "bert",
    "roberta", "xlm-roberta", "camembert", "electra", "ernie", "vit_files", "bart", "clip", "whisper", "gpt2",
    "gpt2_cross", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "t5", "mt5",
    "x_transformers", "timm", "torchtune", "keras", "keras_linears",
)  # fmt: skip


def check_convention(name: str) -> None:
    """Refuse a name that no convention has, with those like it and all there are."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=3, cutoff=0.6)
        advice = f"choose one of them, such as {' or '.join(near)}" if near else "choose one of them"
        raise ConversionError(f"convention must be one of {', '.join(NAMES)}; got {name!r}: {advice}")


def check_file(file: Path) -> None:
    """Refuse a file of weights that is not there, or whose suffix is not of one."""
    if not file.is_file():
        raise refusal("refuse.no_file", file=file)
    check_suffix(file)


def check_suffix(file: Path) -> None:
    """Refuse a file whose suffix is not of weights."""
    if file.suffix not in SUFFIXES:
        raise refusal("refuse.weights_suffix", suffixes=", ".join(SUFFIXES), file=file)


def check_output(file: Path, *, force: bool) -> Path:
    """The file, if it may be written; else a Refusal."""
    check_suffix(file)
    return check_place(file, force=force)


def read_config(file: Path | None, weights: Path) -> Any:
    """The configuration in a json file; None: that beside the weights, or none."""
    beside = weights.with_name("config.json")
    place = beside if file is None and beside.is_file() else file
    if place is None:
        return None
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refusal("refuse.config", file=place, reason=f"{type(error).__name__}: {error}") from error
    if not isinstance(config, dict):
        raise refusal("refuse.config", file=place, reason=type(config).__name__)
    return config
