"""Windows: whether those of an image are put back as they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headwise.dataflow import MarkedOp, is_constant
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["windows_back"]

VIEWS = frozenset({"view", "reshape", "unflatten"})
# axes of what holds windows: samples, two counts, two sizes, channels
WINDOWED = 5


def windows_back(
    after: Sequence[MarkedOp], is_right: Callable[[dict[Site, Callable[..., Any]]], bool]
) -> Suspect | None:
    """Windows that are put back in another order than they were taken in: by a view whose counts and sizes changed
    places, or by a roll the wrong way. after: the movements behind an attention; is_right: whether all tokens come to
    their own places with stand-ins.
    """
    for entry in after:
        for right in _otherwise(entry):
            stand_ins = {entry.site: right}
            if is_right(stand_ins):
                return Suspect("windows-misplaced", entry.span, stand_ins, is_local=True)
    return None


def _otherwise(entry: MarkedOp) -> Iterator[Callable[..., Any]]:
    """What a view with two neighbouring sizes exchanged, or a roll the other way, would do."""
    shape = entry.outputs[0].shape if entry.outputs else ()
    marks = entry.output_marks[0] if entry.output_marks else None
    if entry.last in VIEWS and len(shape) >= WINDOWED and marks is not None and marks.kind == "token":
        holds_tokens = [not is_constant(marks.arrays["t"], axis) for axis in range(len(shape))]
        for at in [at for at in range(1, len(shape)) if holds_tokens[at - 1] and holds_tokens[at]]:
            sizes = (*shape[: at - 1], shape[at], shape[at - 1], *shape[at + 1 :])
            # one window alone is in its place either way
            if sizes != shape and min(shape[at - 1 : at + 1]) > 1:
                yield lambda x, *_, sizes=sizes, **__: x.reshape(sizes)
    if entry.last == "roll":
        function = entry.function
        args, options = entry.rules
        shifts = options.get("shifts", args[1] if len(args) > 1 else 0)
        axes = options.get("dims", args[2] if len(args) > 2 else None)
        turned = tuple(-shift for shift in shifts) if isinstance(shifts, tuple | list) else -shifts
        yield lambda x, *_, **__: function(x, turned, axes)
