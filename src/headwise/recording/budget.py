"""Budget: how much this thread has tried and recorded so far, in operations and numbers, not in seconds.

What limits a search by work gives the same result on every machine, however busy it is. A unit is an operation of
torch on small tensors in a call that is only tried, about 40 µs with all that headwise does around it (one core of a
quiet server of 2024); the other rates are what was measured of them against that, by least squares over the hosts of
the tests: a recorded operation 0.13 ms, a recording 5.5 ms, a number 4 ns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

__all__ = ["OPERATIONS", "RECORDED", "RECORDING", "TRIAL", "Budget", "Counting", "Endless", "spend", "spent"]

# units of: a call that is tried, an operation that is recorded, a recording
TRIAL, RECORDED, RECORDING = 10, 4, 120
# so many numbers of tensors are a unit
NUMBERS = 10_000
# a call that asks torch for more operations than this does not end, for all that is known
OPERATIONS = 20_000


class _Total(threading.local):
    units = 0


_TOTAL = _Total()


def spend(units: int) -> None:
    """Count work that this thread does."""
    _TOTAL.units += units


def spent() -> int:
    """The units of work that this thread has done since it began."""
    return _TOTAL.units


class Budget:
    """How much more work may be done: units of this thread's own."""

    def __init__(self, units: int) -> None:
        self._end = spent() + units

    @property
    def left(self) -> int:
        """The units that are left."""
        return max(0, self._end - spent())

    @property
    def is_over(self) -> bool:
        """Whether all of it was used."""
        return spent() > self._end


class Endless(RuntimeError):
    """A call asked torch for more operations than any that ends was seen to."""

    def __init__(self) -> None:
        super().__init__(f"the call ran {OPERATIONS} operations of torch and had not ended")


class Counting(TorchFunctionMode):
    """A mode that counts the operations of its block as work, and ends a block that runs more than OPERATIONS."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def counted(self, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What an operation returns. Errors: Endless."""
        self._count += 1
        if self._count > OPERATIONS:
            raise Endless
        made = function(*args, **options)
        has_shape = isinstance(made, Tensor) and not is_lazy(made)
        spend(1 + (made.numel() // NUMBERS if has_shape else 0))
        return made
