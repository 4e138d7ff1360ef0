"""Budget: the work of this thread in trial calls and recordings, counted in operations and numbers, not in seconds.

A search limited by work gives the same result on every machine, however busy it is. A unit is one torch operation on
small tensors in a trial call, about 40 µs with the overhead of headwise (one core of an idle server of 2024). The other
rates were measured against that by least squares over the hosts of the tests: a recorded operation 0.13 ms, a recording
5.5 ms, a number 4 ns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

__all__ = [
    "OPERATIONS",
    "RECORDED",
    "RECORDED_OPERATIONS",
    "RECORDING",
    "TAKEN",
    "TRIAL",
    "Budget",
    "Counting",
    "Endless",
    "spend",
    "spent",
]

# units of: a trial call, a recorded operation, each tensor that it takes, a recording
TRIAL, RECORDED, TAKEN, RECORDING = 10, 4, 4, 120
# numbers of a result tensor per unit
NUMBERS = 10_000
# and products per unit, of the functions that take weights: a core does some 10 in a nanosecond
PRODUCTS = 400_000
WEIGHED = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
# a call that runs more operations than this counts as endless, and one that is recorded, which takes more time
OPERATIONS, RECORDED_OPERATIONS = 20_000, 2_800


class _Total(threading.local):
    units = 0


_TOTAL = _Total()


def spend(units: int) -> None:
    """Add to the work of this thread."""
    _TOTAL.units += units


def spent() -> int:
    """The units of work that this thread has done since it began."""
    return _TOTAL.units


class Budget:
    """A limit on the work of this thread, in units."""

    def __init__(self, units: int) -> None:
        self._end = spent() + units

    @property
    def left(self) -> int:
        """The units that are left."""
        return max(0, self._end - spent())

    @property
    def is_over(self) -> bool:
        """Whether more than the limit was spent."""
        return spent() > self._end


class Endless(RuntimeError):
    """A call ran too many torch operations."""

    def __init__(self, operations: int) -> None:
        super().__init__(f"the call ran {operations} operations of torch and had not ended")


class Counting(TorchFunctionMode):
    """A mode that counts the operations of its block as work and raises Endless after `operations` of them."""

    def __init__(self, operations: int = OPERATIONS) -> None:
        super().__init__()
        self._operations = operations
        self._count = 0

    def run_counted(self, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The result of an operation, which counts as work. Errors: Endless."""
        self._count += 1
        if self._count > self._operations:
            raise Endless(self._operations)
        result = function(*args, **options)
        has_shape = isinstance(result, Tensor) and not is_lazy(result)
        count = result.numel() if has_shape else 0
        spend(1 + count // NUMBERS + count * _summed(function, args) // PRODUCTS)
        return result


def _summed(function: Callable[..., Any], args: Sequence[Any]) -> int:
    """How many products each number of a projection is the sum of; 0: it is none."""
    weight = args[1] if len(args) > 1 else None
    if getattr(function, "__name__", "") not in WEIGHED or not isinstance(weight, Tensor) or not weight.numel():
        return 0
    return weight.numel() // weight.shape[0]
