"""Process: settings of a process that is a command and nothing else: when garbage is collected, and warnings."""

from __future__ import annotations

import atexit
import gc
import warnings

__all__ = ["prepare_process"]

# objects made between two collections: loading transformers makes some two million, nearly all of which stay
OBJECTS = 100_000


def prepare_process() -> None:
    """Collect garbage seldom and not at the end, and leave out the warning of torch where numpy is not installed.

    Modules make hundreds of thousands of objects that live as long as the process; with Python's own threshold of 700
    they are walked through again and again while they are loaded, and once more as the process ends. No command needs
    numpy: what reads weights or models of others brings it along.
    """
    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
