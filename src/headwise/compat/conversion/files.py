"""Files of weights: read without running what is in them, written whole or not at all."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.atomic_write import write_whole
from headwise.compat.conversion.arguments import check_file, check_suffix
from headwise.compat.conversion.registry import blocks, conventions, named
from headwise.wording import refusal

__all__ = ["one_block", "read_weights", "write_weights"]


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights, by their names; what is not one, or would run code, raises a Refusal."""
    check_file(file)
    weights = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pickle(file)
    is_dict = isinstance(weights, Mapping) and len(weights) > 0
    if not is_dict or not all(isinstance(value, Tensor) for value in weights.values()):
        raise refusal("refuse.no_state_dict", file=file, kind=type(weights).__name__)
    return dict(weights)


def one_block(
    weights: Mapping[str, Tensor], convention: str | None, layer: int | None, prefix: str | None
) -> dict[str, Tensor]:
    """The weights of one attention layer of a file, under their full names.

    layer: a number among the dotted parts of its name; prefix: the beginning of its name. A choice that is not one
    raises a Refusal that lists the candidates.
    """
    if prefix is not None:
        begins = prefix if not prefix or prefix[-1] in "./" else f"{prefix}."
        chosen = {name: t for name, t in weights.items() if name.startswith(begins)}
        if not chosen:
            raise refusal("refuse.no_block", prefix=prefix, names=", ".join(sorted(weights)[:4]))
        return chosen
    inside = blocks(weights, conventions() if convention is None else named(convention))
    fitting = [each for each in inside if layer is None or str(layer) in each.split(".")]
    if not inside or fitting == [""]:
        # the names do not separate layers: as a whole they are right, or the reason why not comes later
        return dict(weights)
    if len(fitting) != 1:
        listed = [each.rstrip("./") for each in (fitting or inside)]
        shown = ", ".join(listed[:8]) + (f" (+ {len(listed) - 8})" if len(listed) > 8 else "")
        if layer is None:
            raise refusal("refuse.block_unchosen", count=len(fitting), candidates=shown)
        raise refusal("refuse.blocks", count=len(fitting), layer=layer, candidates=shown)
    return {name: t for name, t in weights.items() if name.startswith(fitting[0])}


def write_weights(weights: Mapping[str, Tensor], file: Path, *, force: bool) -> None:
    """Write tensors to a file, whole or not at all."""
    check_suffix(file)
    tensors = {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in weights.items()}

    def fill(unfinished: Path) -> None:
        if file.suffix == ".safetensors":
            _needs_safetensors()
            from safetensors.torch import save_file

            save_file(tensors, unfinished, metadata={"format": "pt"})
        else:
            torch.save(tensors, unfinished)

    write_whole(file, fill, force=force)


def _needs_safetensors() -> None:
    if find_spec("safetensors") is None:
        raise refusal("refuse.extra", package="safetensors", extra="models")


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    _needs_safetensors()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise refusal("refuse.unreadable", file=file, reason=_first_line(error)) from error
    return weights


def _read_pickle(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            # of what is refused in a moment, or was read all the same
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise refusal("refuse.pickle", file=file) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise refusal("refuse.unreadable", file=file, reason=_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:200]}"
