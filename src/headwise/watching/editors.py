"""Editors: who changes the attention of running models, so that a watch shows the weights that the model has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import nn

from headwise.watching.record import CallRecord

__all__ = ["Editor", "edited", "editing", "is_changed", "other_editors"]


class Editor(Protocol):
    """Changes the calls of some modules."""

    def edits_module(self, module: nn.Module) -> bool:
        """Whether calls of a module are changed."""
        ...

    def weights_of(self, module: nn.Module, record: CallRecord) -> CallRecord:
        """A call of a module with the weights that it has once changed; the call itself where it is not."""
        ...


class _Active(threading.local):
    def __init__(self) -> None:
        self.editors: list[Editor] = []


ACTIVE = _Active()


@contextmanager
def editing(editor: Editor) -> Iterator[None]:
    """A block in which `editor` changes calls in this thread."""
    ACTIVE.editors.append(editor)
    try:
        yield
    finally:
        ACTIVE.editors.remove(editor)


def other_editors(editor: Editor, module: nn.Module) -> list[Editor]:
    """Who else changes the calls of a module in this thread."""
    return [active for active in ACTIVE.editors if active is not editor and active.edits_module(module)]


def is_changed(module: nn.Module | None) -> bool:
    """Whether the calls of a module are changed in this thread."""
    return module is not None and any(active.edits_module(module) for active in ACTIVE.editors)


def edited(module: nn.Module | None, record: CallRecord) -> CallRecord:
    """A call of a module with the weights that all editors of this thread give it."""
    if module is None:
        return record
    for editor in ACTIVE.editors:
        record = editor.weights_of(module, record)
    return record
