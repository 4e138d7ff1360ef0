"""Certain: errors that code would raise however it is called."""

from __future__ import annotations

import re
import sys
from types import ModuleType

from torch import Tensor, nn

from headwise.recording.calls.plan import Plan

__all__ = ["Silent", "is_kept", "is_of_code"]

NUMBER = re.compile(r"must be Tensor, not (int|float)\b")
WHOLE = re.compile(r"but got float\b|'float' object cannot be interpreted as an integer")


class Silent(TypeError):
    """A call that ran to its end and gave nothing back."""

    def __init__(self) -> None:
        super().__init__("the call gave None back")


def is_of_code(error: Exception, plan: Plan | None = None) -> bool:
    """Whether code that raised this would raise it however it is called: a name or an attribute that is nowhere, parts
    of what is no module yet, a number where torch takes tensors, a view of what it laid out otherwise, nothing that is
    returned; by a plan also a fraction as a size.
    """
    if isinstance(error, NameError | Silent) or "view size is not compatible" in str(error):
        return True
    if isinstance(error, AttributeError):
        return (
            isinstance(error.obj, nn.Module | Tensor) or is_kept(error.obj) or "before Module.__init__()" in str(error)
        )
    if isinstance(error, TypeError) and WHOLE.search(str(error)):
        return plan is not None and not any(
            isinstance(each, float) and each for each in (*plan.init.values(), *plan.call.values())
        )
    # the number may be one that it was called with
    given = {} if plan is None else {name: each for name, each in plan.call.items() if not name.startswith("_")}
    is_given = any(isinstance(each, str | int | float) for each in given.values())
    return isinstance(error, TypeError) and NUMBER.search(str(error)) is not None and not is_given


def is_kept(value: object) -> bool:
    """Whether a value is a module of torch or of Python itself, whose names are known."""
    if not isinstance(value, ModuleType):
        return False
    root = value.__name__.partition(".")[0]
    return root == "torch" or root in sys.stdlib_module_names
