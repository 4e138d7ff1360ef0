"""Random numbers: torch's, Python's and NumPy's, begun anew for a run and put back after it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["begin_anew", "seeded"]


def begin_anew(seed: int) -> None:
    """Begin the random numbers of torch on the CPU, of Python and of NumPy, where code has imported it, with a seed."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


@contextmanager
def seeded(seed: int | None = None, *, is_on_devices: bool = False) -> Iterator[None]:
    """A block after which the random numbers of torch on the CPU, of Python and of NumPy go on as if it had not been.

    seed: with which they begin in the block, None: as they are. is_on_devices: the same holds for torch on each GPU.
    """
    numpy = sys.modules.get("numpy")
    before, array_numbers = random.getstate(), None if numpy is None else numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if is_on_devices and torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        if seed is not None:
            begin_anew(seed)
        try:
            yield
        finally:
            random.setstate(before)
            if numpy is not None:
                numpy.random.set_state(array_numbers)
