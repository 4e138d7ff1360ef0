"""Ears: the state of one watched block: what is running, whether it is listened to, and where what is heard goes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.errors import AttentionError
from headwise.watching import stack
from headwise.watching.record import Record, unreadable
from headwise.watching.seen import Seen
from headwise.watching.softmaxes import Softmaxes

__all__ = ["ADVICE", "NO_MODULE", "UNREAD", "Ears"]

NO_MODULE = "(no module)"
# what is added to the reason why a softmax is no map
ADVICE = ": if that is attention, call F.scaled_dot_product_attention, or make the map by hw.attention_map(q, k)"
# what a call of an unforeseen form may raise while it is read: the model has run, and must go on
UNREAD = (AttentionError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


class Running(NamedTuple):
    """A module that runs, the frame that called its hook, and whether functions were heard around it."""

    module: Any
    frame: FrameType | None
    before: bool


class Ears:
    """Who is running in a watched block, and what has been heard of it.

    names: of all modules of the model. taken: those to listen to. hears_all: whether to listen outside of modules too.
    """

    def __init__(
        self, names: Mapping[nn.Module, str], taken: frozenset[nn.Module], seen: Seen, *, hears_all: bool, grad: bool
    ) -> None:
        self.names, self.taken, self.seen = names, taken, seen
        self.hears_all, self.grad = hears_all, grad
        # the modules that are running, also those inside of a chosen one that are not chosen
        self.running: list[Running] = []
        # the queries that a Hugging Face model handed to its attention function, while that is running
        self.asked: Tensor | None = None
        # each nn.MultiheadAttention called in the nn.TransformerEncoderLayer that is running; None: in no such layer
        self.called: list[nn.Module] | None = None
        # the arguments of each F.multi_head_attention_forward in the module that is running; None: in no such module
        self.functions: list[dict[str, Any]] | None = None
        # the length of the sequences that nn.TransformerEncoder is running on
        self.padded_length: int | None = None
        self.softmaxes = Softmaxes(self.add, names)
        self._elsewhere: dict[int, int] = {}
        self._thread = threading.get_ident()
        self._mode: TorchFunctionMode | None = None
        self._depth = 0
        # whether compiled code is running, and whether functions were heard before
        self._is_compiled = self._before_compiled = False
        # whether the mode is in the stack
        self.is_listening = False

    @contextmanager
    def open(self, mode: TorchFunctionMode) -> Iterator[None]:
        """Listen by `mode` while the block runs."""
        self._mode, self._depth = mode, torch._C._len_torch_function_stack()
        self.turn(self.hears_all)
        try:
            yield
        finally:
            self._mode, self.is_listening = None, False
            stack.remove(mode)
            self.running.clear()
            for name, why in self.softmaxes.close().items():
                self.seen._miss(name, why + ADVICE)

    @property
    def is_open(self) -> bool:
        """Whether the block is running, and this is its thread, outside of compilation and of a backward pass."""
        # activation checkpointing runs a forward again in the backward, which is no other call
        return (
            self._mode is not None and threading.get_ident() == self._thread and torch._C._current_graph_task_id() == -1
        )

    def turn(self, on: bool) -> None:
        """Start or stop to hear functions; in compiled code none are heard."""
        if self._mode is None or on == self.is_listening or (on and self._is_compiled):
            return
        if on:
            stack.insert(self._mode, self._depth)
        else:
            stack.remove(self._mode)
        self.is_listening = on

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """A block whose functions are not heard, and which finds no function mode of ours."""
        before = self.is_listening
        self.turn(False)
        try:
            yield
        finally:
            self.turn(before)

    @contextmanager
    def asking(self, query: Tensor) -> Iterator[None]:
        """A block in which a Hugging Face attention function runs, given these queries."""
        before, self.asked = self.asked, query
        try:
            yield
        finally:
            self.asked = before

    def enter(self, module: nn.Module, frame: FrameType | None = None) -> None:
        """A module starts to run."""
        ident, is_taken = threading.get_ident(), module in self.taken
        self.seen._has_run = True
        if ident == self._thread:
            self.running.append(Running(module, frame, self.is_listening))
            return self.turn(is_taken)
        if is_taken:
            if ident not in self._elsewhere:
                why = "ran in another thread than the one that watches, where it is not seen: watch there"
                self.seen._miss(self.names[module], why)
            self._elsewhere[ident] = self._elsewhere.get(ident, 0) + 1
        return None

    def leave(self, module: nn.Module) -> None:
        """A module has run, or has failed."""
        ident = threading.get_ident()
        if ident != self._thread:
            if module in self.taken and self._elsewhere.get(ident, 0) > 1:
                self._elsewhere[ident] -= 1
            elif module in self.taken:
                self._elsewhere.pop(ident, None)
        elif any(each.module is module for each in self.running):
            # what has been interrupted inside of it has not left
            while True:
                left = self.running.pop()
                if left.module is module:
                    return self.turn(left.before)
        return None

    def start_compiled(self) -> None:
        """Compiled code starts to run in this thread, and nothing is heard."""
        self._before_compiled = self.is_listening
        self.turn(False)
        self._is_compiled = True

    def end_compiled(self) -> None:
        """Compiled code has run, or calls what is not compiled."""
        self._is_compiled = False
        self.turn(self._before_compiled)

    @contextmanager
    def elsewhere(self, module: Any) -> Iterator[None]:
        """A block in which a layer of torch's own, which has no hook, runs in what may be another thread."""
        is_ours = self._mode is not None and isinstance(module, nn.Module) and module in self.taken
        if not is_ours or threading.get_ident() == self._thread:
            yield
            return
        self.enter(module)
        try:
            yield
        finally:
            self.leave(module)

    def where(self) -> str | None:
        """The name under which a call is recorded that is made now; None: it is not."""
        # an interrupt that the block has caught ended modules without a word to their hooks
        while self.running and not _runs(self.running[-1].frame):
            self.running.pop()
        return self._innermost() if self.running else self.caller()

    def caller(self) -> str | None:
        """The name of the innermost module of which a method is running, with a hook or without."""
        # a method that was called past the module's __call__ has no hook, but its frame tells whose it is
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(first, nn.Module):
                # torch.compile makes a module around another
                return self.name_of(first if first in self.names else first._modules.get("_orig_mod") or first)
            frame = frame.f_back
        return NO_MODULE if self.hears_all else None

    def name_of(self, module: nn.Module) -> str | None:
        """The name under which a call of this module is recorded; None: it is not."""
        if module in self.names:
            return self.names[module] if module in self.taken else None
        return self._innermost() if self.running else None

    def _innermost(self) -> str | None:
        module = self.running[-1].module
        return self.names[module] if module in self.taken else None

    def add(self, name: str, record: Record) -> None:
        """Take a call in, or say why it cannot be read."""
        if why := unreadable(record.q):
            return self.seen._miss(name, why)
        try:
            made = record.held(grad=self.grad)
            result = made.map()
        except UNREAD as error:
            return self.seen._miss(name, no_map(error))
        return self.seen._add(name, made, result)

    def read(self, name: str, make: Callable[[], Record]) -> None:
        """Take in a call whose queries and keys are computed anew, with a graph only where it is wanted."""
        try:
            with nullcontext() if self.grad else torch.no_grad():
                record = make()
        except UNREAD as error:
            return self.seen._miss(name, no_map(error))
        return self.add(name, record)


def _runs(frame: FrameType | None) -> bool:
    """Whether a frame is among those that led here."""
    each: FrameType | None = sys._getframe(1)
    while each is not None and each is not frame:
        each = each.f_back
    return each is frame


def no_map(error: Exception) -> str:
    """Why a call that ran has no map, given what its reading raised."""
    return f"its call takes a form that a map has not: {(str(error) or repr(error)).splitlines()[0]}"
