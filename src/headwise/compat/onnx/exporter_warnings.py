"""Exporter warnings: torch's exporter without its messages about itself; those about the model stay."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["quiet_exporter"]

# what torch 2.13 warns of in its own code
OUTDATED = r"`isinstance\(treespec, LeafSpec\)` is deprecated"
# loggers, and the begin and the end of what each need not log: a package that no model asked for, the second name of
# numbers that headwise.positions keeps, of which the first is written, constants left as they are, and a version that
# `export` then refuses
LOGGED = (
    ("torch.onnx._internal.exporter._registration", "torchvision is not installed", ""),
    ("torch.onnx._internal.exporter._core", "Tensor '", "_placed' is not one of the initializers"),
    ("onnxscript.optimizer._constant_folding", "Skipping constant folding for op", "with multiple outputs."),
    ("onnxscript.version_converter", "The model version conversion is not supported", ""),
    ("onnxscript.version_converter", "Failed to convert the model to the target version", ""),
)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Leave out what is listed above, for as long as the context lasts.

    >>> with quiet_exporter():
    ...     logging.getLogger("torch.onnx._internal.exporter._registration").warning("torchvision is not installed.")
    """
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.filterwarnings("ignore", OUTDATED, FutureWarning)
        for name, begin, end in LOGGED:
            logger, unneeded = logging.getLogger(name), _Unneeded(begin, end)
            logger.addFilter(unneeded)
            stack.callback(logger.removeFilter, unneeded)
        yield


class _Unneeded(logging.Filter):
    def __init__(self, begin: str, end: str) -> None:
        super().__init__()
        self._begin, self._end = begin, end

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not (message.startswith(self._begin) and message.endswith(self._end))
