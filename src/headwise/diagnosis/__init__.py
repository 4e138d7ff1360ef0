"""Diagnosis: whether anyone's attention is right; if not, which fault, where, the fix, and the proof.

Its names are loaded when they are first used: the command line's parent process prints a diagnosis without torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.diagnosis.diagnosed import doctor as doctor
    from headwise.diagnosis.diagnosis import Diagnosis as Diagnosis

_HOME = {"Diagnosis": "diagnosis", "doctor": "diagnosed"}

__all__ = ["Diagnosis", "doctor"]


def __getattr__(name: str) -> object:
    """The name asked for, imported at its first use."""
    if name not in _HOME:
        raise AttributeError(f"headwise.diagnosis has no name {name!r}: it has {', '.join(__all__)}")
    found = getattr(_import_module(f"headwise.diagnosis.{_HOME[name]}"), name)
    globals()[name] = found
    return found
