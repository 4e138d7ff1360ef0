"""Recording: what anyone's code asks of torch, operation by operation, with the place where each was written."""

from headwise.recording.operations import Failure, Kernel, Operation, Record, TensorSeen
from headwise.recording.recorder import record
from headwise.recording.spans import Span

__all__ = ["Failure", "Kernel", "Operation", "Record", "Span", "TensorSeen", "record"]
