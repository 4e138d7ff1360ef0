"""Replay: a run in which another function stands in for some of a person's operations."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn

from headwise.recording.budget import Counting
from headwise.recording.function_names import is_question, name_of
from headwise.recording.operations import Operation
from headwise.recording.torch_limits import check_lengths
from headwise.source import Own, Span, sign_at, span_of

__all__ = ["Rebound", "Recalled", "Replacing", "Site", "site_of"]

Site = tuple[tuple[Span, ...], Span, str]


def site_of(operation: Operation) -> Site:
    """Where an operation was written, and by which calls it was reached."""
    return operation.chain, operation.span, operation.name


@dataclass(frozen=True, eq=False)
class Recalled:
    """A stand-in that calls torch's attention with another mask, or another order. given: its options, but the scale
    and what else it was called with.
    """

    function: Callable[..., Any]
    given: Mapping[str, Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args[:3], **self.options(options))

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options it is called with in place of these."""
        kept = {name: each for name, each in options.items() if name not in ("attn_mask", "is_causal")}
        return {**kept, **self.given}


@dataclass(frozen=True, eq=False)
class Rebound:
    """A stand-in that calls a function with other values for some of its parameters. given: these, by name."""

    function: Callable[..., Any]
    given: Mapping[str, Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        function = inspect.unwrap(self.function)
        bound = inspect.signature(function).bind(*args, **options)
        bound.arguments.update(self.given)
        return function(*bound.args, **bound.kwargs)


class Replacing(Counting):
    """A mode that calls a stand-in, with the arguments of the operation, at each site that has one; it counts work."""

    def __init__(self, stand_ins: Mapping[Site, Callable[..., Any]], own: Sequence[str]) -> None:
        super().__init__()
        self._stand_ins = dict(stand_ins)
        self._spans = {span for _, span, _ in stand_ins}
        self._own = Own(own)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention:
            check_lengths(*args, **options)
        if is_question(func, count=len(args) + len(options)) or not self._stand_ins:
            return self.counted(func, args, options)
        frame = next(self._own.frames(sys._getframe(1)), None)
        named = None if frame is None else name_of(func, sign_at(frame))[0]
        return self.counted(self._stand_in(frame, named) or func, args, options)

    @contextmanager
    def within_layers(self) -> Iterator[None]:
        """A block in which what stands in for a call of torch's own layer, which no mode sees, is called too."""
        if not any(isinstance(each, Rebound) for each in self._stand_ins.values()):
            yield
            return
        original = nn.MultiheadAttention.forward

        @functools.wraps(original)
        def forward(*args: Any, **options: Any) -> Any:
            frame = next(self._own.frames(sys._getframe(1)), None)
            return (self._stand_in(frame, nn.MultiheadAttention.__name__) or original)(*args, **options)

        setattr(nn.MultiheadAttention, "forward", forward)  # noqa: B010  mypy refuses the other
        try:
            yield
        finally:
            setattr(nn.MultiheadAttention, "forward", original)  # noqa: B010

    def _stand_in(self, frame: FrameType | None, name: str | None) -> Callable[..., Any] | None:
        """What stands in for an operation that the person's code runs; None: nothing does."""
        here = None if frame is None else span_of(frame)
        if frame is None or here not in self._spans:
            return None
        callers = tuple(span_of(each) for each in reversed(list(self._own.frames(frame))[1:]))
        for (chain, span, asked), stand_in in self._stand_ins.items():
            if span == here and asked == name and (not chain or callers[-len(chain) :] == chain):
                return stand_in
        return None
