"""Forward method: a class of modules without the method that nn.Module calls, and the methods that it has."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

from headwise.wording import refusal

__all__ = ["check_forward", "lacks_forward", "methods_of"]


def check_forward(target: Any) -> None:
    """Refuse a class of modules, or a module, that defines no forward, before any call of it is tried."""
    if not lacks_forward(target):
        return
    name = _class_of(target).__name__
    names = [each.__name__ for each in methods_of(target) if not each.__name__.startswith("__")]
    if not names:
        raise refusal("refuse.no_method", name=name)
    raise refusal("refuse.no_forward", name=name, methods=", ".join(names))


def lacks_forward(target: Any) -> bool:
    """Whether a target is a class of modules, or a module, whose call raises for want of a forward."""
    kind = _class_of(target)
    return issubclass(kind, nn.Module) and kind.forward is nn.Module.forward and kind.__call__ is nn.Module.__call__


def methods_of(target: Any) -> Iterator[FunctionType]:
    """The methods that the classes of a target define, those of the innermost first."""
    for kind in _class_of(target).__mro__:
        if kind is nn.Module:
            return
        yield from (each for each in vars(kind).values() if isinstance(each, FunctionType))


def _class_of(target: Any) -> type:
    return target if isinstance(target, type) else type(target)
