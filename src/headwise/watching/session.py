"""Session: one watched block: which modules run, whether functions are intercepted, and where their maps go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.watching.editors import edited, is_changed
from headwise.watching.gradient_collection import collected
from headwise.watching.map_collector import MapCollector
from headwise.watching.mode_switch import ModeSwitch
from headwise.watching.other_threads import OtherThreads
from headwise.watching.product_layout import ProductLayout
from headwise.watching.record import CallRecord
from headwise.watching.running_modules import RunningModules
from headwise.watching.softmaxes import Softmaxes
from headwise.watching.watched_maps import Seen
from headwise.watching.watched_modules import WatchedModules

__all__ = ["Session"]

OTHER_THREAD = "ran in another thread than the one that watches, where it is not seen: watch there"


class Session:
    """The parts of one watched block, and what the start and the end of a module mean to each of them.

    modules: whose calls are recorded. maps: where the maps go. grad: whether maps lead back to q and k. gradients:
    whether the gradients of what calls give are collected.
    """

    def __init__(self, modules: WatchedModules, maps: Seen, *, grad: bool, gradients: bool = False) -> None:
        self.modules, self.gradients = modules, gradients
        self.running = RunningModules(modules)
        self.switch = ModeSwitch()
        self.threads = OtherThreads()
        self._modules_by_name = {name: module for module, name in modules.names.items()}
        # what a session is part of must not hold it: maps are let go with the last name for them, not by a collection
        self.collector = MapCollector(maps, partial(_edited, self._modules_by_name), grad=grad)
        self.softmaxes = Softmaxes(self.add, modules.names)
        # the queries that a Hugging Face model passed to its attention function, while that runs
        self.huggingface_query: Tensor | None = None

    @contextmanager
    def open(self, mode: TorchFunctionMode) -> Iterator[None]:
        """Intercept functions by `mode` while the block runs."""
        self.switch.open(mode)
        self.switch.turn(self.modules.takes_functions)
        try:
            yield
        finally:
            self.switch.close()
            self.running.clear()
            self.collector.miss_softmaxes(self.softmaxes.close())

    @property
    def is_open(self) -> bool:
        """Whether the block is running, and this is its thread, outside of a backward pass."""
        # activation checkpointing runs a forward again in the backward, which is no other call
        return self.switch.is_open and self.threads.is_watching and torch._C._current_graph_task_id() == -1

    def call_name(self) -> str | None:
        """The name under which a call made now is recorded; None: it is not, or the session is not open."""
        return self.running.call_name() if self.is_open else None

    def reads(self, name: str) -> bool:
        """Whether the arguments of kernels and of Hugging Face functions under a name are read."""
        return True

    def edits(self, name: str | None) -> bool:
        """Whether calls under a name are changed."""
        return False

    def add(self, name: str, record: CallRecord, context: Tensor, layout: ProductLayout | None = None) -> Tensor:
        """Take a call in, and give what it is to give. context: what it gave, (B, Hq, Lq, Dv) as `layout` says.

        layout: None: (..., Lq, Dv), in the order of the rows of `record.q`.
        """
        self.collector.add(
            name, self.followed(name, record, context, record.rows_of if layout is None else layout.context)
        )
        return context

    def add_weights(self, name: str, record: CallRecord, weights: Tensor) -> Tensor:
        """The weights (B, Hq, Lq, Lk) that a call which was taken in is to give beside its context."""
        return weights

    def miss_compiled(self, name: str, reason: str) -> None:
        """Compiled code is about to run, which a module calls: what is inside of it has no calls to be met."""
        self.collector.miss(name, reason)

    def miss_elsewhere(self, name: str) -> None:
        """A module starts to run in another thread, outside of those that run there."""
        self.collector.miss(name, OTHER_THREAD)

    def followed(
        self, name: str, record: CallRecord, output: Tensor, rows: Callable[[Tensor], Tensor | None]
    ) -> CallRecord:
        """The record of a call, with the gradient that a backward pass will bring to what it gave, if that is wanted.

        rows: gives the gradient of the output as that of what the heads gave, (B, Hq, Lq, Dv), None: it cannot be read.
        """
        if not self.gradients:
            return record
        return collected(record, output, rows, is_edited=is_changed(self._modules_by_name.get(name)))

    def enter(self, module: nn.Module, frame: FrameType | None = None) -> None:
        """A module starts to run; frame: that of its caller."""
        is_taken = module in self.modules.taken
        self.collector.note_run()
        if self.threads.is_watching:
            self.running.push(module, frame, is_intercepted=self.switch.is_on)
            self.switch.turn(is_taken)
        elif is_taken and self.threads.enter():
            self.miss_elsewhere(self.modules.names[module])

    def leave(self, module: nn.Module) -> None:
        """A module has run, or has failed."""
        if not self.threads.is_watching:
            if module in self.modules.taken:
                self.threads.leave()
        elif (entry := self.running.pop(module)) is not None:
            self.switch.turn(entry.is_intercepted)

    @contextmanager
    def hookless(self, module: Any) -> Iterator[None]:
        """A block in which a layer of torch's own, which has no hook, runs in what may be another thread."""
        is_watched = self.switch.is_open and isinstance(module, nn.Module) and module in self.modules.taken
        if not is_watched or self.threads.is_watching:
            yield
            return
        self.enter(module)
        try:
            yield
        finally:
            self.leave(module)


def _edited(modules: Mapping[str, nn.Module], name: str, record: CallRecord) -> CallRecord:
    """A call with the weights that those give it who change it in this thread."""
    return edited(modules.get(name), record)
