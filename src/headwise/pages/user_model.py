"""User model: a module and a tokenizer in memory, read and run as they are."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError
from headwise.pages.models import LoadedModel, first_line
from headwise.pages.vocabulary import named_pieces
from headwise.pages.words import Token
from headwise.wording import refusal
from headwise.wording.screen import visible

__all__ = ["called_with", "encoded", "in_evaluation", "own_model", "parts_of"]

# what a module may call the numbers of its tokens
IDS = "input_ids"


def own_model(pair: Sequence[Any]) -> LoadedModel:
    """A module and its tokenizer as a model. What is no such pair raises an ArgumentError."""
    kinds = ", ".join(type(each).__name__ for each in pair)
    if len(pair) != 2 or not isinstance(pair[0], nn.Module) or not callable(pair[1]):
        raise ArgumentError(
            f"model must be a name, a folder, or (module, tokenizer): a torch module and what makes tokens of a text; "
            f"got ({kinds})"
        )
    module, tokenizer = pair
    config: Any = getattr(module, "config", None)
    if not hasattr(config, "model_type"):
        config = SimpleNamespace(model_type=type(module).__name__, is_encoder_decoder=False)
    if getattr(config, "is_encoder_decoder", False):
        raise refusal("refuse.encoder_decoder", model=type(module).__name__, model_type=config.model_type)
    name = str(getattr(module, "name_or_path", "") or type(module).__name__)
    return LoadedModel(Path(name).name if Path(name).is_dir() else name, module, tokenizer, config)


def encoded(loaded: LoadedModel, texts: Sequence[str]) -> tuple[str, tuple[Token, ...], dict[str, Tensor]]:
    """What a tokenizer without offsets makes of texts: the text that its tokens spell, the tokens, the model's inputs.

    It gives "input_ids" by name, or a list of numbers alone; the tokens' names come from convert_ids_to_tokens, or each
    number's own from decode.
    """
    try:
        encoding = loaded.tokenizer(*texts)
        if not isinstance(encoding, Mapping):
            encoding = {IDS: getattr(encoding, IDS, getattr(encoding, "ids", encoding))}
        inputs = {str(name): _row(value) for name, value in encoding.items() if _is_numbers(value)}
        ids = [int(number) for number in inputs[IDS][0].tolist()]
        names = _names(loaded.tokenizer, ids)
    except Exception as error:
        raise refusal(
            "refuse.own_tokenizer", tokenizer=type(loaded.tokenizer).__name__, reason=first_line(error)
        ) from error
    special = set(map(int, getattr(loaded.tokenizer, "all_special_ids", None) or ()))
    text, pieces = _spelled(names)
    tokens = tuple(
        Token(visible(piece.strip() or piece), None if number in special else span)
        for (piece, span), number in zip(pieces, ids, strict=True)
    )
    return text, tokens, inputs


def _names(tokenizer: Any, ids: list[int]) -> list[str]:
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    return [str(tokenizer.decode([number])) for number in ids] if hasattr(tokenizer, "decode") else list(map(str, ids))


def _spelled(names: list[str]) -> tuple[str, list[tuple[str, tuple[int, int] | None]]]:
    """The text that names spell; of no convention, with a space between each two, unless each is one sign."""
    read = named_pieces(names)
    if read is not None:
        return read
    between = "" if all(len(name) <= 1 for name in names) else " "
    text, pieces = "", list[tuple[str, tuple[int, int] | None]]()
    for name in names:
        text += between if text else ""
        pieces.append((name, (len(text), len(text) + len(name)) if name else None))
        text += name
    return text, pieces


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, Sequence) and not isinstance(value, str))


def _row(value: Any) -> Tensor:
    """Numbers as (1, L)."""
    numbers = torch.as_tensor(value)
    return numbers if numbers.ndim > 1 else numbers[None]


def called_with(loaded: LoadedModel, inputs: Mapping[str, Tensor]) -> Callable[[], Any]:
    """A call of the model with what it takes of the inputs, on its device: by their names, or the numbers alone."""
    module = loaded.model
    place = next((tensor.device for tensor in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    there = {name: value.to(place) for name, value in inputs.items()}
    parameters = inspect.signature(module.forward).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    accepted = {name: value for name, value in there.items() if name in parameters}
    if takes_all and hasattr(loaded.config, "output_hidden_states"):
        return lambda: module(**there, output_hidden_states=True)
    hidden = {"output_hidden_states": True} if "output_hidden_states" in parameters else {}
    if IDS in parameters:
        return lambda: module(**(there if takes_all else accepted), **hidden)
    return lambda: module(there[IDS], **{name: value for name, value in accepted.items() if name != IDS}, **hidden)


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """A block in which a module runs as it does when it is used; how it was is put back afterwards."""
    training = [inner for inner in module.modules() if inner.training]
    module.eval()
    try:
        yield
    finally:
        for inner in training:
            inner.training = True


def parts_of(module: nn.Module) -> str:
    """What a module is made of, its parts by their kinds, the most frequent first."""
    counts = Counter(type(each).__name__ for each in module.modules() if not any(each.children()))
    return ", ".join(f"{count} {name}" for name, count in counts.most_common(8)) or "no parts"
