"""Archive: several maps and their tokens in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from headwise.errors import ArgumentError, InputError
from headwise.maps import container
from headwise.maps.serialization import Shelf, describe, restore
from headwise.ops.call import Call

SCHEMA = 1
LONGEST_SHOWN = 60

Tokens = list[str] | list[list[str]] | None


class Archive(Mapping[str, tuple[Call, Tensor | None]]):
    """What a file holds: a call and its lse by name, the tokens that they were made of, and what was not seen."""

    def __init__(
        self,
        calls: Mapping[str, tuple[Call, Tensor | None]],
        tokens: Tokens,
        unseen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._calls, self.tokens, self.unseen = dict(calls), tokens, dict(unseen)

    def __getitem__(self, name: str) -> tuple[Call, Tensor | None]:
        return self._calls[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the file."""
        place = _place(path)
        if not _are_tokens(self.tokens):
            raise ArgumentError(
                f"tokens must be texts, or a list of texts to each sample, or None, but {_shown(self.tokens)} came: "
                "pass tokens as lists"
            )
        for name in self._calls:
            if not isinstance(name, str):
                raise ArgumentError(f"maps are kept by names, but {type(name).__name__} {name!r} came: give texts")
        shelf = Shelf()
        described = {name: describe(str(n), *pair, shelf) for n, (name, pair) in enumerate(self._calls.items())}
        metadata = {"maps": described, "tokens": self.tokens, "unseen": self.unseen}
        text = json.dumps(metadata, allow_nan=False)
        container.write(place, shelf.tensors, {"format": "pt", "schema": str(SCHEMA), "headwise": text})

    @staticmethod
    def read(path: str | PathLike[str]) -> Archive:
        """What was written; InputError in one sentence where the file is not whole and sound."""
        tensors, metadata = container.read(_place(path))
        if metadata.get("schema") != str(SCHEMA):
            came = metadata.get("schema", "none")[:40]
            raise InputError(
                f"{path} must have schema {SCHEMA}, the one this headwise reads, but has {came}: save it again"
            )
        try:
            described: Any = json.loads(metadata.get("headwise", ""))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} does not describe its maps ({error}): save it again") from error
        has_maps = isinstance(described, dict) and isinstance(described.get("maps"), dict)
        if not has_maps or not _are_tokens(described.get("tokens")):
            raise InputError(f"{path} must name its maps and their tokens: save it again")
        unseen = described.get("unseen", {})
        if not isinstance(unseen, dict) or not all(isinstance(why, str) for why in unseen.values()):
            raise InputError(f"{path} must say of what was not seen why in words: save it again")
        maps = {name: restore(name, d, tensors) for name, d in described["maps"].items()}
        return Archive(maps, described["tokens"], unseen)


def _place(path: Any) -> Path:
    if not isinstance(path, str | PathLike):
        raise ArgumentError(f"maps are in a file, but {type(path).__name__} {_shown(path)} came: give its path")
    return Path(path)


def as_lists(tokens: Sequence[str] | Sequence[Sequence[str]] | None) -> Any:
    """Tokens as JSON knows them; a text alone, and what holds none, stays as it is, to be refused."""
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        return tokens
    return [list(t) if isinstance(t, Sequence) and not isinstance(t, str) else t for t in tokens]


def _shown(tokens: Any) -> str:
    text = repr(tokens)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _are_tokens(tokens: Any) -> bool:
    if tokens is None:
        return True
    if not isinstance(tokens, list):
        return False
    is_flat = all(isinstance(t, str) for t in tokens)
    return is_flat or all(isinstance(row, list) and all(isinstance(t, str) for t in row) for row in tokens)
