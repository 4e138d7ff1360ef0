"""Alike tokens: arguments whose tokens are all one, and the angles by which their places are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan, call_role

__all__ = ["AllAlike", "is_table"]

# radians from one place to the next
STEP = 0.3


@dataclass(frozen=True)
class AllAlike:
    """Lets all tokens of a sample be one token; the first axes are samples and places, in whichever order. What they
    are turned by is one angle for each step from place to place, whichever features make a pair.

    alone: the arguments that hold one sequence, with its places first.
    """

    alone: tuple[str, ...] = ()

    @staticmethod
    def of(plan: Plan) -> AllAlike:
        """That of a plan's arguments."""
        shapes = [(name, axes) for name, axes in plan.call.items() if isinstance(axes, list)]
        return AllAlike(tuple(name for name, axes in shapes if len(axes) == len("LD") and axes[0] == "L"))

    def __call__(self, _: Any, options: dict[str, Any]) -> None:
        """Change the arguments of a call."""
        for name in self.alone:
            if isinstance(options.get(name), Tensor):
                options[name] = options[name][:1].expand(options[name].shape).clone()
        _make_alike(options)


def _make_alike(options: dict[str, Any]) -> None:
    tokens = [each for name, each in options.items() if _holds_tokens(each) and not is_table(name, each)]
    lengths = [token.shape[at] for token in tokens[:1] for at in (1, 0)]
    for name, value in options.items():
        if isinstance(value, Tensor) and is_table(name, value):
            axes = [value.shape.index(length) for length in lengths if length in value.shape]
            if axes:
                shape = [-1 if at == axes[0] else 1 for at in range(value.ndim)]
                turn = torch.arange(value.shape[axes[0]], device=value.device) * STEP
                angles = turn.view(shape).expand(value.shape)
                table = torch.polar(torch.ones_like(angles), angles) if value.is_complex() else _of_role(name, angles)
                options[name] = table.to(value.dtype)
        elif _holds_tokens(value):
            options[name] = value[:1, :1].expand(value.shape).clone()


def _holds_tokens(value: Any) -> bool:
    # features, or token numbers
    return isinstance(value, Tensor) and value.ndim == (3 if value.is_floating_point() else 2)


def is_table(name: str, value: Tensor) -> bool:
    """Whether an argument holds cosines or sines of places, or both in complex numbers."""
    role = call_role(name)
    return value.ndim > 1 and (role in ("cosine", "sine") or (role == "frequencies" and value.is_complex()))


def _of_role(name: str, angles: Tensor) -> Tensor:
    return angles.cos() if call_role(name) == "cosine" else angles.sin()
