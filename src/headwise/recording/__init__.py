"""Recording: what anyone's code asks of torch, operation by operation, with the place where each was written.

Its names are loaded when they are first used: the command line's parent process starts a child without torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.recording.operations import Failure as Failure
    from headwise.recording.operations import Kernel as Kernel
    from headwise.recording.operations import Operation as Operation
    from headwise.recording.operations import Record as Record
    from headwise.recording.operations import TensorSeen as TensorSeen
    from headwise.recording.recorder import record as record
    from headwise.recording.spans import Span as Span

_HOME = {
    "Failure": "operations", "Kernel": "operations", "Operation": "operations", "Record": "operations",
    "Span": "spans", "TensorSeen": "operations", "record": "recorder",
}  # fmt: skip

__all__ = ["Failure", "Kernel", "Operation", "Record", "Span", "TensorSeen", "record"]


def __getattr__(name: str) -> object:
    """The name asked for, imported at its first use."""
    if name not in _HOME:
        raise AttributeError(f"headwise.recording has no name {name!r}: it has {', '.join(__all__)}")
    found = getattr(_import_module(f"headwise.recording.{_HOME[name]}"), name)
    globals()[name] = found
    return found
