"""Token pairs: the tokens of a run, and which pairs of query and key stand in a relation that heads are named for."""

from __future__ import annotations

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


class TokenPairs:
    """The tokens of a batch as numbers (B, L), -1 for none, and the pairs of each pattern.

    separators: names of tokens that part a text, or numbers where the tokens are numbers.
    """

    def __init__(self, rows: list[list[Any]], length: int, separators: Iterable[Any]) -> None:
        names: dict[Any, int] = {}
        numbers = [[-1 if t is None else names.setdefault(t, len(names)) for t in row] for row in rows]
        self.ids = torch.tensor([row + [-1] * (length - len(row)) for row in numbers]).reshape(len(rows), length)
        self.is_token = self.ids >= 0
        known = torch.tensor([names[each] for each in separators if each in names], dtype=torch.long)
        self.is_separator = torch.isin(self.ids, known)
        # the first token of each sample, 0 where it has none
        self.first = self.is_token.int().argmax(1)

    def of(self, rows: slice) -> Tensor:
        """Which pairs of some queries with all keys each pattern has, bool (B, patterns, rows, L)."""
        B, L = self.ids.shape
        i = torch.arange(L)[rows, None]
        j = torch.arange(L)
        query, before = self.ids[:, rows, None], self.ids.roll(1, dims=1)[:, None]
        is_query, is_key = self.is_token[:, rows, None], self.is_token[:, None]
        at_first = (j == self.first[:, None])[:, None]
        distant = (j != i) & (j != i + 1) & (j > 0)
        patterns = (
            (j == i - 1).expand(B, -1, -1),
            (j == i + 1).expand(B, -1, -1),
            (j == i).expand(B, -1, -1),
            at_first & (i != self.first[:, None, None]),
            self.is_separator[:, None] & ~self.is_separator[:, rows, None],
            (query == self.ids[:, None]) & (i != j),
            (query == before) & distant,
        )
        return torch.stack([pattern & is_query & is_key for pattern in patterns], dim=1)
