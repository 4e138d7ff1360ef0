"""Float64: a module prepared for a run: one dtype, no faint weights, a mode, and its buffers restored afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.recording import seeded

__all__ = ["Unset", "as_it_is", "move_weights", "readied"]

# no weight that anyone chose is beyond these
LARGEST, SMALLEST = 1e6, 1e-30
# weights that all begin below this (LayerScale, arXiv:2103.17239; the last layer of arXiv:2006.11239) hide what they
# multiply as zeros do
FAINT = 1e-3
# the value of uninitialised memory; exact in every dtype of 32 bits and more
UNSET = 2.0**-120


class Unset(TorchFunctionMode):
    """A mode that fills uninitialised tensors with UNSET, so that runs are reproducible."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_taken = func in (torch.empty, torch.empty_like, Tensor.new_empty)
        if is_taken and result.is_floating_point() and result.layout == torch.strided:
            with torch.no_grad():
                result.fill_(UNSET)
        return result


def readied(target: nn.Module, dtype: torch.dtype, *, training: bool = False) -> nn.Module:
    """A module in a dtype and a mode, with no weights that are zero or next to it."""
    target = _awake(_of(target, dtype))
    # a switch of its own may read the weights, and draw random numbers
    with seeded(1):
        target.train() if training else target.eval()
    return target


def move_weights(target: nn.Module, std: float, *, is_learned: Callable[[nn.Parameter], bool] | None = None) -> None:
    """Add normal numbers to the weights of a module, as training moves them. is_learned: which of them; None: all."""
    with torch.no_grad(), seeded(0):
        for param in target.parameters():
            if param.requires_grad and param.is_floating_point() and (is_learned is None or is_learned(param)):
                param.add_(torch.randn_like(param), alpha=std)


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
    """Whether a parameter is uninitialised memory of torch.empty, and not a mask of two values."""
    if bool((t == UNSET).any()):
        return True
    is_odd = ~t.isfinite() | (t.abs() > LARGEST) | ((t != 0) & (t.abs() < SMALLEST))
    return bool(is_odd.any()) and t.unique().numel() > 2


def _awake(target: nn.Module) -> nn.Module:
    """A module whose weights that begin next to zero are random, so that what they multiply can be seen."""
    with torch.no_grad(), seeded(1):
        for name, param in target.named_parameters():
            if isinstance(param, nn.UninitializedParameter) or not param.is_floating_point() or not param.numel():
                continue
            smallest, largest = (float(each) for each in param.abs().aminmax())
            if smallest > SMALLEST and FAINT <= largest <= LARGEST:
                # as most are
                continue
            is_faint = not bool((param.abs() >= FAINT).any()) and (param.ndim > 1 or "bias" not in name)
            if is_faint or _is_unset(param):
                param.normal_(std=0.3)
    return target


def as_it_is(target: nn.Module) -> Callable[[], None]:
    """A function that restores the present attributes and buffers of a module and its sub-modules."""
    kept = {module: {name: _like(value) for name, value in _state(module).items()} for module in target.modules()}

    def back() -> None:
        for module, values in kept.items():
            for name in _state(module).keys() - values.keys():
                (module.__dict__ if name in module.__dict__ else module._buffers).pop(name)
            for name, value in values.items():
                (module._buffers if name in module._buffers else module.__dict__)[name] = value

    return back


def _state(module: nn.Module) -> dict[str, Any]:
    """The public attributes and the buffers of a module."""
    return {**{name: each for name, each in vars(module).items() if not name.startswith("_")}, **module._buffers}


def _like(value: Any) -> Any:
    """A copy of a value that is independent of in-place changes."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, list | dict | set) else value
