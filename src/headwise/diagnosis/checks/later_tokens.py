"""Later tokens: whether something beside attention lets a token read later ones, where all attention looks back."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Run, attentions, makers, place_of, source_of
from headwise.diagnosis.checks.built_layers import built_at
from headwise.diagnosis.checks.whole_models import attends_back, query_and_key_sources
from headwise.diagnosis.suspects import Suspect

__all__ = ["later_tokens"]

# what moves tokens past each other; a mean of all of them, or what is learned of all, may be meant
MOVING = frozenset({
    "conv1d", "conv2d", "conv3d", "group_norm", "instance_norm", "avg_pool1d", "max_pool1d", "roll", "flip", "unfold",
    "lstm", "gru", "rnn_tanh", "pad",
})  # fmt: skip
# that a file reads later tokens on purpose
MEANT = re.compile(
    r"look-?_?ahead|right[ _-]context|future context|non-?causal conv|bidirectional|前瞻|右侧上下文", re.I
)
NEAR = 1e-6


def later_tokens(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The first operation beside attention by which earlier tokens change with the last one, where each token attends
    to those up to its own place.

    run: one without a mask. A file that speaks of a look-ahead is left, and sums over all tokens.
    """
    if len(run.argument_marks) != 1 or not attentions(run):
        return []
    for attention in attentions(run):
        queries, keys = query_and_key_sources(attention)
        if not queries or queries != keys or not attends_back(attention):
            return []
    ((name, marks),) = run.argument_marks.items()
    places = place_of(marks.arrays["t"])
    last = int(places.max())
    if last < 1:
        return []

    def change(_: Any, options: dict[str, Any]) -> None:
        value = options.get(name)
        if isinstance(value, Tensor) and value.shape == places.shape:
            # the last token of another sample
            options[name] = torch.where(places == last, value.flip(0), value)

    changed = rerun(more_change=change)
    if changed.failure is not None or len(changed.seen) != len(run.seen):
        return []
    source = int(source_of(marks.arrays["t"]).max())
    for entry, changed_entry in zip(run.seen, changed.seen, strict=True):
        if _is_changed_before(entry, changed_entry, source, last):
            lines = "".join(linecache.getlines(entry.span.file))
            is_meant = entry.last not in MOVING or MEANT.search(lines) is not None
            padded = [op for op in makers(run, entry.at, entry.inputs[0].number)[:1] if op.last == "pad"]
            home = None if padded else built_at(run, entry.operation.module)
            span = padded[0].span if padded else entry.span
            return [] if is_meant else [Suspect("later-tokens-read", span, home=home, proved=True)]
    return []


def _is_changed_before(entry: MarkedOp, changed_entry: MarkedOp, source: int, last: int) -> bool:
    """Whether numbers of a token before the last one are others in another run."""
    for before, after, marks in zip(entry.outputs, changed_entry.outputs, entry.output_marks, strict=False):
        a, b = before.value, after.value
        if marks is None or marks.kind != "token" or a is None or b is None or a.shape != b.shape or not a.numel():
            continue
        t = marks.arrays["t"]
        is_before = ((source_of(t) == source) & (place_of(t) < last) & (place_of(t) >= 0)).expand(a.shape)
        a, b = (value if value.is_complex() else value.double() for value in (a, b))
        far = (a - b).abs().nan_to_num() > NEAR * max(1.0, float(a.abs().nan_to_num().max()))
        if bool((far & is_before).any()):
            return True
    return False
