"""Forward method: a class of modules without the method that nn.Module calls, and the methods that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dis import get_instructions
from types import FunctionType
from typing import Any

from torch import nn

from headwise.wording import refusal

__all__ = ["assigned_forward", "check_forward", "lacks_forward", "methods_of"]

FORWARD = "forward"
UNIMPLEMENTED = vars(nn.Module)[FORWARD]


def check_forward(target: Any) -> None:
    """Refuse a class of modules, or a module, that defines no forward, before any call of it is tried."""
    if not lacks_forward(target):
        return
    name = _class_of(target).__name__
    names = [method.__name__ for method in methods_of(target) if not method.__name__.startswith("__")]
    if not names:
        raise refusal("refuse.no_method", name=name)
    raise refusal("refuse.no_forward", name=name, methods=", ".join(names))


def lacks_forward(target: Any) -> bool:
    """Whether a target is a class of modules, or a module, whose call raises for want of a forward."""
    kind = _class_of(target)
    if not issubclass(kind, nn.Module) or _defined(kind, "__call__") is not vars(nn.Module)["__call__"]:
        return False
    if not isinstance(target, type):
        # an attribute of the instance counts as much as a method
        forward = getattr(target, FORWARD, None)
        return forward is None or getattr(forward, "__func__", forward) is UNIMPLEMENTED
    return _defined(kind, FORWARD) is UNIMPLEMENTED and not any(map(_assigns_forward, methods_of(kind)))


def assigned_forward(kind: type) -> FunctionType | None:
    """The method that a class of modules without a forward assigns as one, as `self.forward = self.attend`; of several
    the last; None: it defines a forward, or assigns something else.
    """
    if _defined(kind, FORWARD) is not UNIMPLEMENTED:
        return None
    methods = {each.__name__: each for each in methods_of(kind)}
    for method in methods.values():
        if _assigns_forward(method):
            # a method that is called is loaded otherwise
            loaded = [
                instruction.argval
                for instruction in get_instructions(method)
                if instruction.argrepr == instruction.argval in methods
            ]
            return next((methods[name] for name in reversed(loaded) if name != FORWARD), None)
    return None


def methods_of(target: Any) -> Iterator[FunctionType]:
    """The methods that the classes of a target define, static and class methods too, those of the innermost first."""
    for kind in _class_of(target).__mro__:
        if kind is nn.Module:
            return
        for member in vars(kind).values():
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if isinstance(function, FunctionType):
                yield function


def _defined(kind: type, name: str) -> Any:
    """A member as the innermost class defines it, read without running a descriptor; None: no class does."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def _assigns_forward(method: FunctionType) -> bool:
    """Whether a method assigns an attribute forward, as `self.forward = self.run` or by setattr."""
    code = method.__code__
    is_set = "setattr" in code.co_names and FORWARD in code.co_consts
    return is_set or any(
        instruction.opname == "STORE_ATTR" and instruction.argval == FORWARD for instruction in get_instructions(code)
    )


def _class_of(target: Any) -> type:
    return target if isinstance(target, type) else type(target)
