"""Conversions that prove themselves: one table for each convention, read both ways.

Its names are loaded when they are first used: the command line refuses a name or a file without torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.compat.conversion.converting import Conversion as Conversion
    from headwise.compat.conversion.converting import convert as convert
    from headwise.compat.conversion.converting import to_state_dict as to_state_dict
    from headwise.compat.conversion.report import Check as Check
    from headwise.compat.conversion.report import Report as Report

_HOME = {
    "Check": "report", "Conversion": "converting", "Report": "report", "convert": "converting",
    "to_state_dict": "converting",
}  # fmt: skip

__all__ = ["Check", "Conversion", "Report", "convert", "to_state_dict"]


def __getattr__(name: str) -> object:
    """The name asked for, imported at its first use."""
    if name not in _HOME:
        raise AttributeError(f"headwise.compat.conversion has no name {name!r}: it has {', '.join(__all__)}")
    found = getattr(_import_module(f"headwise.compat.conversion.{_HOME[name]}"), name)
    globals()[name] = found
    return found
