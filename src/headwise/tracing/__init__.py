"""Tracing: the record of anyone's attention code as annotated source, every axis by its name.

Its names are loaded when they are first used: the command line's parent process prints a trace without torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.tracing.steps import Trace as Trace
    from headwise.tracing.traced import trace as trace

_HOME = {"Trace": "steps", "trace": "traced"}

__all__ = ["Trace", "trace"]


def __getattr__(name: str) -> object:
    """The name asked for, imported at its first use."""
    if name not in _HOME:
        raise AttributeError(f"headwise.tracing has no name {name!r}: it has {', '.join(__all__)}")
    found = getattr(_import_module(f"headwise.tracing.{_HOME[name]}"), name)
    globals()[name] = found
    return found
