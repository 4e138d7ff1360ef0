"""Checks of dropout that need no tolerance of luck: what is kept is exact, and the backward pass keeps the same."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.harness import WrongNumbersError, compare

# how far a chance that is met with 16 random bits may raise what it keeps
RAISED_WITHIN = 2.0**-16
# a share of so many draws strays further than this many standard deviations once in a million runs
DEVIATIONS = 5.0


def check_drops(side: str, attend: Callable[[Tensor, float], Tensor], q: Tensor, k: Tensor, chance: float) -> None:
    """Raise WrongNumbersError unless attend(v, chance) zeroes that share of the weights and raises all others alike.

    Values that are 1 in one feature of one key show the weights themselves, of as many keys as there are features.
    """
    D, L = q.shape[-1], k.shape[2]
    shown = torch.arange(min(D, L)) * (L // min(D, L))
    v = torch.zeros(*k.shape[:3], D, dtype=k.dtype)
    v[:, :, shown, torch.arange(len(shown))] = 1.0
    with torch.no_grad():
        found = attend(v, chance)[..., : len(shown)]
        exact, plain = (_weights(q.to(dtype), k.to(dtype), shown) for dtype in (torch.float64, q.dtype))
    kept = found != 0
    # rounding aside, one number
    raised = (found.double() / exact)[kept].median() if kept.any() else torch.tensor(1.0)
    if not abs(raised.item() * (1 - chance) - 1) <= RAISED_WITHIN:
        raise WrongNumbersError(
            f"{side} raises what dropout {chance} keeps by {raised:.6g}, not {1 / (1 - chance):.6g}"
        )
    wanted = exact * raised * kept, (plain * raised * kept).to(q.dtype)
    compare(f"{side}, under dropout,", (found,), (wanted[0],), (wanted[1],))
    share, spread = 1 - kept.double().mean().item(), math.sqrt(chance * (1 - chance) / kept.numel())
    if not abs(share - chance) <= DEVIATIONS * spread:
        raise WrongNumbersError(f"{side} drops {share:.4g} of {kept.numel()} weights, but dropout is {chance}")


def check_same_drops(side: str, out: Tensor, gradient: Tensor, v: Tensor, v_gradient: Tensor) -> None:
    """Raise WrongNumbersError unless the backward pass dropped what the forward did.

    The output is linear in v, so sum(out * gradient) is sum(v * v_gradient) whatever was dropped, if it was the same.
    """
    out, gradient, v, v_gradient = (t.detach() for t in (out, gradient, v, v_gradient))
    ahead, back = (float((a.double() * b.double()).sum()) for a, b in ((out, gradient), (v, v_gradient)))
    # each output is rounded at its own size, and the roundings add up as a walk does
    rounding = torch.finfo(out.dtype).eps * float((out.double() * gradient.double()).norm())
    if not abs(ahead - back) <= 32 * rounding:
        raise WrongNumbersError(f"{side} drops other weights backward: {ahead:.6g} forward, {back:.6g} backward")


def _weights(q: Tensor, k: Tensor, shown: Tensor) -> Tensor:
    """The weights (B, H, L, shown) before dropout, head by head."""
    heads = [torch.softmax(q[:, h] @ k[:, h].mT * q.shape[-1] ** -0.5, dim=-1)[..., shown] for h in range(q.shape[1])]
    return torch.stack(heads, dim=1)
