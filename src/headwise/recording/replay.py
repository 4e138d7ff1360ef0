"""Replay: a run in which other functions replace some operations of user code."""

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

from headwise.recording.budget import RECORDED_OPERATIONS, Counting
from headwise.recording.function_names import is_question, name_of
from headwise.recording.fused_steps import steps_of
from headwise.recording.operations import Operation
from headwise.recording.torch_limits import check_lengths
from headwise.source import Span, UserCode, sign_at, span_of

__all__ = ["Rebound", "Recalled", "Replacing", "Site", "site_of"]

Site = tuple[tuple[Span, ...], Span, str]


def site_of(operation: Operation) -> Site:
    """The calls that lead to an operation, its place in the source, and its name."""
    return operation.chain, operation.span, operation.name


@dataclass(frozen=True, eq=False)
class Recalled:
    """A replacement that calls torch's attention with the same q, k and v, and another mask. overrides: the options in
    place of `attn_mask` and `is_causal`; the scale and the other options stay.
    """

    function: Callable[..., Any]
    overrides: Mapping[str, Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args[:3], **self.options(options))

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the replaced call, given those of the original."""
        kept = {name: each for name, each in options.items() if name not in ("attn_mask", "is_causal")}
        return {**kept, **self.overrides}


@dataclass(frozen=True, eq=False)
class Rebound:
    """A replacement that calls a function with other values for some parameters. overrides: these values, by name."""

    function: Callable[..., Any]
    overrides: Mapping[str, Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        function = inspect.unwrap(self.function)
        bound = inspect.signature(function).bind(*args, **options)
        bound.arguments.update(self.overrides)
        return function(*bound.args, **bound.kwargs)


class Replacing(Counting):
    """A mode that calls replacements, with the arguments of the operation, at their sites; it counts work."""

    def __init__(self, replacements: Mapping[Site, Callable[..., Any]], user_files: Sequence[str]) -> None:
        super().__init__(RECORDED_OPERATIONS)
        self._replacements = dict(replacements)
        self._spans = {span for _, span, _ in replacements}
        self._user_code = UserCode(user_files)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention:
            check_lengths(*args, **options)
        if is_question(func, count=len(args) + len(options)) or not self._replacements:
            return self.run_counted(func, args, options)
        frame = next(self._user_code.frames(sys._getframe(1)), None)
        sign = None if frame is None else sign_at(frame)

        def run(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
            name = None if sign is None else name_of(function, sign)[0]
            return self.run_counted(self._replacement(frame, name) or function, given, named)

        steps = steps_of(func, args, options)
        return run(func, *args, **options) if steps is None else steps(run, *args, **options)

    @contextmanager
    def within_layers(self) -> Iterator[None]:
        """A block in which calls of nn.MultiheadAttention, which reach no mode, are replaced too."""
        if not any(isinstance(replacement, Rebound) for replacement in self._replacements.values()):
            yield
            return
        original = nn.MultiheadAttention.forward

        @functools.wraps(original)
        def forward(*args: Any, **options: Any) -> Any:
            frame = next(self._user_code.frames(sys._getframe(1)), None)
            return (self._replacement(frame, nn.MultiheadAttention.__name__) or original)(*args, **options)

        setattr(nn.MultiheadAttention, "forward", forward)  # noqa: B010  mypy refuses the other
        try:
            yield
        finally:
            setattr(nn.MultiheadAttention, "forward", original)  # noqa: B010

    def _replacement(self, frame: FrameType | None, name: str | None) -> Callable[..., Any] | None:
        """The replacement of an operation of user code; None: it has none."""
        here = None if frame is None else span_of(frame)
        if frame is None or here not in self._spans:
            return None
        callers = tuple(span_of(each) for each in reversed(list(self._user_code.frames(frame))[1:]))
        for (chain, span, asked), replacement in self._replacements.items():
            if span == here and asked == name and (not chain or callers[-len(chain) :] == chain):
                return replacement
        return None
