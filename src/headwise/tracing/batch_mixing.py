"""Batch mixing: warnings where shapes show attention among the elements of a batch."""

from __future__ import annotations

from headwise.tracing.steps import Step, Trace
from headwise.wording import say

__all__ = ["signs_of"]


def signs_of(trace: Trace, step: Step) -> tuple[str, ...]:
    """The warnings about a step; (): its shapes show no mixing."""
    batch = next((each.name for each in trace.symbols if each.meaning == "batch"), None)
    if step.op != "MultiheadAttention" or batch is None:
        return ()
    return tuple(
        say("trace.among_batch", lang=trace.lang, shape=str(shape), batch=batch)
        for shape in step.outputs
        if [axis.text for axis in shape.axes[-2:]] == [batch, batch]
    )
