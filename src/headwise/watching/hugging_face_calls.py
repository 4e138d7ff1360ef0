"""Hugging Face calls: attention functions of transformers, read by the kernel they call, or by their own weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from headwise.watching import hugging_face
from headwise.watching.map_collector import UNREAD, no_map
from headwise.watching.patch_points import PatchedCall
from headwise.watching.record import unreadable
from headwise.watching.session import Session

__all__ = ["HuggingFaceCalls"]


class HuggingFaceCalls:
    """What one session reads of the attention functions that models of transformers look up."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_interface(self, call: PatchedCall) -> Any:
        """AttentionInterface.get_interface: the function that it returns, read where it is called."""
        function = call.result()

        @functools.wraps(function)
        def watched(*args: Any, **options: Any) -> Any:
            session = self._session
            if not session.is_open or not session.switch.is_on or len(args) < len(hugging_face.FIRST):
                return function(*args, **options)
            name = session.running.name_of(args[0])
            if name is None:
                return function(*args, **options)
            if not session.reads(name):
                # nor is a softmax in it followed
                with self._running_on(args[1]):
                    return function(*args, **options)
            return self._read(name, function, args, options)

        return watched

    def _read(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call of an attention function, added by the kernel that it calls or else by its own weights."""
        session, query = self._session, args[1]
        count = session.collector.count(name)
        with self._running_on(query):
            result = function(*args, **options)
        if session.collector.count(name) > count:
            return result
        with session.switch.off():
            if why := unreadable(query):
                session.collector.miss(name, why)
                return result
            try:
                arguments = hugging_face.arguments_of(function, args, options)
                record = hugging_face.of_eager(arguments)
                weights = result[1] if isinstance(result, tuple) and len(result) > 1 else None
                with torch.no_grad():
                    why = hugging_face.deviation(record, weights, dropout=record.dropout)
            except UNREAD as error:
                why = no_map(error)
            if why:
                session.collector.miss(name, why)
                return result
            context = session.add(name, record, result[0].transpose(1, 2)).transpose(1, 2)
            if session.gradients and not session.edits(name):
                # the way that the gradient takes
                return (context, *result[1:])
            if not session.edits(name):
                return result
            return (context, session.add_weights(name, record, result[1]), *result[2:])

    @contextmanager
    def _running_on(self, query: Tensor) -> Iterator[None]:
        before, self._session.huggingface_query = self._session.huggingface_query, query
        try:
            yield
        finally:
            self._session.huggingface_query = before
