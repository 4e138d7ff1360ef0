"""Every reading of a map that ranks share, and what dense weights in one process give for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.maps import AttentionMap
from headwise.testing import assert_within_budget
from tests.maps.oracle import BY_LSE, OF_SCORES, OF_WEIGHTS, Dense

Given = dict[str, Any]
FACTORS = torch.tensor([[0.5], [-2.0]])


def _weighted(p: Tensor) -> Tensor:
    return (p * _factors(p.shape[2]).to(p.dtype)[:, None, :, None]).sum(-2)


def _factors(Lq: int) -> Tensor:
    factors = FACTORS * torch.linspace(0.5, 1.5, Lq)
    # the first and last rows pass nothing on
    factors[:, [0, -1]] = 0.0
    return factors


def _distance(p: Tensor) -> Tensor:
    """By the sums of rows and columns, as maps make it, which nearly cancel where windows are short."""
    Lq, Lk = p.shape[2:]
    mass, received = p.sum(-1).double(), p.sum(-2).double()
    total = mass.sum(-1)
    back = (mass * torch.arange(Lk - Lq, Lk)).sum(-1) - (received * torch.arange(Lk)).sum(-1)
    return (back / total.masked_fill(total == 0, 1.0)).to(p.dtype)


# a weight is at its place however many are equal, so that keys need no order of their own
MORE: dict[str, tuple[Callable[[AttentionMap], Tensor], Callable[[Tensor], Tensor]]] = {
    "mass": (lambda m: m.mass(), lambda p: p.sum(-1)),
    "keys of the largest": (lambda m: m.dense().gather(-1, m.topk(2)[1]), lambda p: p.topk(2)[0]),
    "rows by factors": (lambda m: m.weighted_rows(_factors(m.shape[2])), _weighted),
    "some pairs": (
        lambda m: m[torch.tensor([1, 0, 1]), [0, -1, 1], torch.tensor([2, -1, 0]), [1, 0, 2]],
        lambda p: p[torch.tensor([1, 0, 1]), [0, -1, 1], torch.tensor([2, -1, 0]), [1, 0, 2]],
    ),
    "distance": (lambda m: m.distance(), _distance),
    # more than a block may waste: single pairs
    "far pairs": (lambda m: m[..., [0, -1], [-1, 0]], lambda p: p[..., [0, -1], [-1, 0]]),
}
OF_MAP = OF_WEIGHTS | MORE
OF_MEAN = ("dense", "one row", "scattered", "entropy", "received", "largest", "picture", "picture of peaks")


def readings(m: AttentionMap) -> dict[str, Tensor]:
    """All that is read of a map."""
    whole = {name: read(m) for name, (read, _) in OF_MAP.items()}
    scores = {name: read(m) for name, (read, _) in OF_SCORES.items()}
    mean = m.mean_heads()
    averaged = {f"{name} of the mean": OF_WEIGHTS[name][0](mean) for name in OF_MEAN}
    return {**whole, **scores, **averaged}


def expected(dense: Dense) -> dict[str, Tensor]:
    """The same of dense weights."""
    by_lse = {*BY_LSE, "mass", "rows by factors", "far pairs"}
    whole = {
        name: read(dense.weights_by_lse if name in by_lse else dense.weights) for name, (_, read) in OF_MAP.items()
    }
    mean = {f"{name} of the mean": OF_WEIGHTS[name][1](dense.weights.mean(1, keepdim=True)) for name in OF_MEAN}
    return {**whole, **{name: read(dense) for name, (_, read) in OF_SCORES.items()}, **mean}


def assert_readings(found: Sequence[dict[str, Tensor]], exact: Dense, plain: Dense, case: object) -> None:
    """The readings of all ranks have the same bits, and are those of one process."""
    want, measure = expected(exact), expected(plain)
    for name in want:
        for rank, each in enumerate(found):
            assert torch.equal(each[name], found[0][name]), f"{name} of {case}: rank {rank} has other bits than rank 0"
        try:
            assert_within_budget(found[0][name], want[name], measure[name])
        except AssertionError as error:
            raise AssertionError(f"{name} of {case}: {error}") from error
