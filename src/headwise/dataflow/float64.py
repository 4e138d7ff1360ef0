"""Float64: a module prepared for a run: one dtype, no faint weights, and its buffers restored afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Unset", "as_it_is", "readied"]

# no weight that anyone chose is beyond these
LARGEST, SMALLEST = 1e6, 1e-30
# weights that all begin below this (LayerScale, arXiv:2103.17239; the last layer of arXiv:2006.11239) hide what they
# multiply as zeros do
FAINT = 1e-3
# what stands where memory was taken and not written; every dtype of 32 bits and more holds it as it is
UNSET = 2.0**-120


class Unset(TorchFunctionMode):
    """A block in which new memory holds one number: what lay in it would be another in each instance."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        is_taken = func in (torch.empty, torch.empty_like, Tensor.new_empty)
        if is_taken and made.is_floating_point() and made.layout == torch.strided:
            with torch.no_grad():
                made.fill_(UNSET)
        return made


def readied(target: nn.Module, dtype: torch.dtype, *, training: bool = False) -> nn.Module:
    """A module in a dtype, with no weights that are zero or next to it."""
    return _awake(_of(target, dtype).train(training))


def _of(target: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A module in a dtype; complex numbers stay complex."""
    wide = torch.complex128 if dtype == torch.float64 else torch.complex64

    def changed(t: Tensor) -> Tensor:
        if t.is_complex():
            return t.to(wide)
        return t.to(dtype) if t.is_floating_point() else t

    target._apply(changed)
    return target


def _is_unset(t: Tensor) -> bool:
    """Whether a parameter holds what lay in memory, as torch.empty leaves it, and not a mask of two values."""
    if bool((t == UNSET).any()):
        return True
    is_odd = ~t.isfinite() | (t.abs() > LARGEST) | ((t != 0) & (t.abs() < SMALLEST))
    return bool(is_odd.any()) and t.unique().numel() > 2


def _awake(target: nn.Module) -> nn.Module:
    """A module whose weights that begin next to zero are random, so that what they multiply can be seen."""
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(1)
        for name, each in target.named_parameters():
            if isinstance(each, nn.UninitializedParameter):
                continue
            is_faint = not bool((each.abs() >= FAINT).any()) and (each.ndim > 1 or "bias" not in name)
            if each.is_floating_point() and each.numel() and (is_faint or _is_unset(each)):
                each.normal_(std=0.3)
    return target


def as_it_is(target: nn.Module) -> Callable[[], None]:
    """A function that puts back all that a module keeps beside its parameters and its parts, as it is now."""
    kept = {module: {name: _like(each) for name, each in _own(module).items()} for module in target.modules()}

    def back() -> None:
        for module, held in kept.items():
            for name in _own(module).keys() - held.keys():
                (module.__dict__ if name in module.__dict__ else module._buffers).pop(name)
            for name, each in held.items():
                (module._buffers if name in module._buffers else module.__dict__)[name] = each

    return back


def _own(module: nn.Module) -> dict[str, Any]:
    """What a module keeps itself: its attributes and its buffers."""
    return {**{name: each for name, each in vars(module).items() if not name.startswith("_")}, **module._buffers}


def _like(value: Any) -> Any:
    """A value that stays what it is when another is written to."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, list | dict | set) else value
