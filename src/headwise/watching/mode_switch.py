"""Mode switch: turns the function mode of a watched block on and off, where it was in torch's stack of modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

from headwise.watching import mode_stack

__all__ = ["ModeSwitch"]


class ModeSwitch:
    """The function mode of one watched block; off while compiled code runs."""

    def __init__(self) -> None:
        # whether the mode is in the stack
        self.is_on = False
        self._mode: TorchFunctionMode | None = None
        # how many modes are below it
        self._depth = 0
        self._is_compiled = self._was_on_before_compiled = False

    @property
    def is_open(self) -> bool:
        """Whether the watched block is running."""
        return self._mode is not None

    def open(self, mode: TorchFunctionMode) -> None:
        """The watched block starts; its mode is still off."""
        self._mode, self._depth = mode, torch._C._len_torch_function_stack()

    def close(self) -> None:
        """The watched block ends."""
        mode, self._mode, self.is_on = self._mode, None, False
        if mode is not None:
            mode_stack.remove(mode)

    def turn(self, on: bool) -> None:
        """Turn the mode on or off; in compiled code it stays off."""
        if self._mode is None or on == self.is_on or (on and self._is_compiled):
            return
        if on:
            mode_stack.insert(self._mode, self._depth)
        else:
            mode_stack.remove(self._mode)
        self.is_on = on

    @contextmanager
    def off(self) -> Iterator[None]:
        """A block whose functions are not intercepted, and in which torch finds no function mode of headwise."""
        before = self.is_on
        self.turn(False)
        try:
            yield
        finally:
            self.turn(before)

    def start_compiled(self) -> None:
        """Compiled code starts to run in this thread."""
        self._was_on_before_compiled = self.is_on
        self.turn(False)
        self._is_compiled = True

    def end_compiled(self) -> None:
        """Compiled code has run, or calls what is not compiled."""
        self._is_compiled = False
        self.turn(self._was_on_before_compiled)
