"""Token pairs: the tokens of a run, and which pairs of query and key stand in a relation that heads are named for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["PATTERNS", "TokenPairs", "Tokens", "token_rows"]

# names of one sample's tokens or a list of them for each sample, or ids (B, L)
Tokens = Sequence[Any] | Tensor
# tokens that stand for nothing, as tokenizers name them
PADDING = frozenset({"[PAD]", "<pad>", "<|pad|>", "<|padding|>"})
SEPARATORS = ("[SEP]", "</s>", "<sep>", "<|endoftext|>", "<eos>", "<|im_end|>")
PATTERNS = ("previous", "next", "same", "first", "separator", "duplicate", "induction")


def token_rows(tokens: Tokens, B: int, *, name: str = "tokens") -> list[list[Any]]:
    """The tokens of each sample; None, and names of padding, stand for no token."""
    if isinstance(tokens, Tensor):
        tokens = tokens.tolist()
    rows = list(tokens) if isinstance(tokens, Iterable) and not isinstance(tokens, str | Mapping) else [tokens]
    if rows and not isinstance(rows[0], list | tuple):
        rows = [rows]
    if len(rows) != B or not all(isinstance(row, list | tuple) for row in rows):
        raise ArgumentError(
            f"{name} must be a list of tokens for each of the B={B} samples, or one list where there is one, but "
            f"{len(rows)} came"
        )
    return [[None if token in PADDING else token for token in row] for row in rows]


class Pattern(ABC):
    """Which keys some queries have in a pattern."""

    @abstractmethod
    def sum(self, share: Tensor) -> Tensor:
        """The sums (B, H, rows) of weights (B, H, rows, L) at these keys; of a query without any, some number."""

    @abstractmethod
    def any(self, is_open: Tensor) -> Tensor:
        """Whether a query may attend to such a key, bool (B, H, rows), by pairs (B, H, rows, L)."""


class OneKey(Pattern):
    """One key for each query, (B, rows), -1 where it has none."""

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys[:, None, :, None]

    def sum(self, share: Tensor) -> Tensor:
        at = self._keys.clamp(min=0).expand(-1, share.shape[1], -1, -1)
        return share.expand(at.shape[0], -1, -1, -1).gather(-1, at)[..., 0]

    def any(self, is_open: Tensor) -> Tensor:
        return self.sum(is_open) & (self._keys[..., 0] >= 0)


class SomeKeys(Pattern):
    """Any keys, bool (B, rows, L)."""

    def __init__(self, pairs: Tensor) -> None:
        self._pairs = pairs[:, None]

    def sum(self, share: Tensor) -> Tensor:
        # one product of each row of weights with its keys
        return torch.einsum("bhrk,brk->bhr", share, self._pairs[:, 0].to(share.dtype))

    def any(self, is_open: Tensor) -> Tensor:
        return (self._pairs & is_open).any(-1)


class TokenPairs:
    """The tokens of a batch as numbers (B, L), -1 for none, and the pairs of each pattern.

    separators: names of tokens that part a text, or numbers where the tokens are numbers.
    """

    def __init__(self, rows: list[list[Any]], length: int, separators: Iterable[Any]) -> None:
        names: dict[Any, int] = {}
        numbers = [[-1 if t is None else names.setdefault(t, len(names)) for t in row] for row in rows]
        self.ids = torch.tensor([row + [-1] * (length - len(row)) for row in numbers]).reshape(len(rows), length)
        self.is_token = self.ids >= 0
        known = torch.tensor([names[separator] for separator in separators if separator in names], dtype=torch.long)
        self.is_separator = torch.isin(self.ids, known)
        # the first token of each sample, 0 where it has none
        self.first = self.is_token.int().argmax(1)

    def of(self, rows: slice) -> list[Pattern]:
        """The keys that each pattern has for some queries, in the order of PATTERNS."""
        B, L = self.ids.shape
        i = torch.arange(L)[rows].expand(B, -1)
        j = torch.arange(L)
        before = self.ids.roll(1, dims=1)[:, None]
        query = self.ids[:, rows, None]
        nowhere = torch.full_like(i, -1)
        is_other = ~self.is_separator[:, rows, None] & self.is_separator[:, None]
        return [
            OneKey(self._token(i - 1)), OneKey(self._token(i + 1)), OneKey(self._token(i)),
            OneKey(torch.where(i == self.first[:, None], nowhere, self.first[:, None])),
            SomeKeys(is_other),
            SomeKeys((query == self.ids[:, None]) & (i[..., None] != j)),
            SomeKeys((query == before) & (j != i[..., None]) & (j != i[..., None] + 1) & (j > 0)),
        ]  # fmt: skip

    def _token(self, at: Tensor) -> Tensor:
        """Places (B, rows), -1 where there is no token."""
        L = self.ids.shape[1]
        is_there = (at >= 0) & (at < L)
        return torch.where(is_there & self.is_token.gather(1, at.clamp(0, max(0, L - 1))), at, -1)
