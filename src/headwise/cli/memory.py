"""Memory: how often the process of a command looks for garbage, which loading torch and ending would else pay for."""

from __future__ import annotations

import atexit
import gc

__all__ = ["collect_seldom"]

# objects that come to be between two collections: loading transformers makes some two million, nearly all of which stay
OBJECTS = 100_000


def collect_seldom() -> None:
    """Collect garbage seldom in this process, and not at its end; for a process that is a command and nothing else.

    Modules make hundreds of thousands of objects that live as long as the process. With Python's own threshold of 700
    they are walked through again and again as they come, and once more as the process ends.
    """
    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)
