"""Every exception that headwise raises on purpose.

AttentionError
├── ShapeError        (ValueError)    a tensor does not have the shape its name promises
├── MaskError         (ValueError)    a mask whose meaning, rank or dtype is not certain
├── ArgumentError     (ValueError)    an argument out of range, or two that exclude each other
├── BackendError      (RuntimeError)  the backend asked for cannot compute this exactly
├── CacheError        (RuntimeError)  a key/value cache that is full, or used where it must not be
├── ConversionError   (ValueError)    weights that do not fit the convention they are read by
├── DistributedError  (RuntimeError)  ranks that disagree on a call, or one that does not come
├── OutOfRangeError   (IndexError)    an index that names no entry of a map
├── StaleMapError     (RuntimeError)  a map whose q or k has been changed since
└── InputError        (ValueError)    what a person gave the command line

Each message is one sentence that says what must hold, what came, and what to do.
"""


class AttentionError(Exception):
    """The parent of every exception that headwise raises on purpose."""


class ShapeError(AttentionError, ValueError):
    """A tensor does not have the shape its name promises."""


class MaskError(AttentionError, ValueError):
    """A mask's meaning, rank or dtype is not certain."""


class ArgumentError(AttentionError, ValueError):
    """An argument is out of range, or two arguments exclude each other."""


class BackendError(AttentionError, RuntimeError):
    """The backend that was asked for cannot compute this call exactly."""


class CacheError(AttentionError, RuntimeError):
    """A key/value cache is full, or is used where it must not be."""


class ConversionError(AttentionError, ValueError):
    """Weights do not fit the convention they are read by."""


class DistributedError(AttentionError, RuntimeError):
    """The ranks of a group disagree on a call, or one of them does not come."""


class OutOfRangeError(AttentionError, IndexError):
    """An index names no entry of a map of attention."""


class StaleMapError(AttentionError, RuntimeError):
    """A tensor that a map of attention is computed from has been changed in place since the map was made."""


class InputError(AttentionError, ValueError):
    """What a person gave the command line cannot be used."""
