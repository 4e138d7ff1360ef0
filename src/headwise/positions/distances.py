"""Checked positions, and the distances between those of queries and those of keys."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import ArgumentError, ShapeError


def check_positions(name: str, positions: Tensor) -> None:
    """Raise unless positions are whole numbers, (L,) or (B, L).

    >>> check_positions("positions", torch.tensor([3, 4, 5]))
    """
    if positions.dtype.is_floating_point or positions.dtype.is_complex or positions.dtype == torch.bool:
        raise ArgumentError(f"{name} must be whole numbers, but came as {positions.dtype}: give an integer tensor")
    if positions.ndim not in (1, 2):
        raise ShapeError(
            f"{name} must be (L,) or (B, L), but came as {tuple(positions.shape)}: give one number a token"
        )


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Key position minus query position, in whole numbers, hence exact at any length.

    query_positions (Lq,) or (B, Lq), key_positions (Lk,) or (B, Lk) -> int64 (B|1, 1, Lq, Lk).

    >>> distances(torch.tensor([4, 5]), torch.tensor([3, 4, 5])).tolist()
    [[[[-1, 0, 1], [-2, -1, 0]]]]
    """
    check_positions("query_positions", query_positions)
    check_positions("key_positions", key_positions)
    queries = query_positions if query_positions.ndim == 2 else query_positions[None]
    keys = key_positions if key_positions.ndim == 2 else key_positions[None]
    if queries.shape[0] != keys.shape[0] and 1 not in (queries.shape[0], keys.shape[0]):
        raise ShapeError(
            f"query_positions and key_positions must be of the same batch, but came with {queries.shape[0]} and "
            f"{keys.shape[0]} samples: give both for the same samples, or one row for all"
        )
    return keys.long()[:, None, None, :] - queries[:, None, :, None]
