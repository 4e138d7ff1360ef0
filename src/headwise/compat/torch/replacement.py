"""Replacement: every nn.MultiheadAttention of a model replaced by headwise's, in place, with a report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import nn

from headwise.compat.torch.multi_head import MultiheadAttention
from headwise.errors import ArgumentError

__all__ = ["Left", "Replaced", "replace"]


@dataclass(frozen=True)
class Left:
    """The full name of a module that was left as it is, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Replaced:
    """What `replace` did: the full names of what it swapped and of what it left; a shared module has several names."""

    swapped: tuple[str, ...]
    left: tuple[Left, ...]
    strict_torch: bool = False

    def __str__(self) -> str:
        """A line for each module."""
        count = len(self.swapped) + len(self.left)
        if not count:
            return (
                "the model holds no nn.MultiheadAttention, and nothing was swapped: convert other attention with "
                "headwise.compat.convert, models of Hugging Face with headwise.compat.huggingface.register()"
            )
        how = ", strict_torch=True" if self.strict_torch else ""
        lines = [f"swapped {len(self.swapped)} of {count}{how}"]
        lines += [f"  {name}" for name in self.swapped]
        lines += [f"left {len(self.left)}"] if self.left else []
        lines += [f"  {each.name}: {each.why}" for each in self.left]
        return "\n".join(lines)


def replace(model: nn.Module, *, strict_torch: bool = False) -> Replaced:
    """Make every nn.MultiheadAttention of a model a `compat.torch.MultiheadAttention`, and say which.

    The very objects get the other class: their parameters, which an optimizer may hold, hooks, modes, dtypes and
    devices stay, and a module that is used in several places stays one. Subclasses are left, since they may compute
    something else. strict_torch: as there. A UserWarning where the model holds none. Raises ArgumentError where the
    model is itself one; nothing is changed then.

    >>> import torch
    >>> model = torch.nn.TransformerDecoderLayer(8, 2)
    >>> print(replace(model))
    swapped 2 of 2
      self_attn
      multihead_attn
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"replace takes an nn.Module, but {type(model).__name__} came: give the model itself")
    if isinstance(model, nn.MultiheadAttention):
        raise ArgumentError(
            f"the model must hold its attention as a sub-module, but it is itself {_kind(model)}: build a "
            "compat.torch.MultiheadAttention and load its state_dict, or take headwise's layer by compat.convert(it)"
        )
    attentions = [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.MultiheadAttention)
    ]
    reasons = {module: _why_not(module) for _, module in attentions}
    for module, why in reasons.items():
        if not why:
            module.__class__ = MultiheadAttention
            module._become(strict_torch)  # type: ignore[operator]  # its class is ours now
    replaced = Replaced(
        swapped=tuple(name for name, module in attentions if not reasons[module]),
        left=tuple(Left(name, reasons[module]) for name, module in attentions if reasons[module]),
        strict_torch=strict_torch,
    )
    if not attentions:
        warnings.warn(str(replaced), stacklevel=2)
    return replaced


def _why_not(module: nn.MultiheadAttention) -> str:
    """Why a module is left as it is; "" where it is swapped."""
    if isinstance(module, MultiheadAttention):
        return f"is headwise's already, with strict_torch={module.strict_torch}"
    if type(module) is not nn.MultiheadAttention:
        return f"is a subclass, {_kind(module)}, which may compute something else"
    if "forward" in vars(module):
        return "has a forward of its own, put on the object"
    return ""


def _kind(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
