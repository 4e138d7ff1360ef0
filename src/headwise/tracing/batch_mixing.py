"""Batch mixing: what shapes show to be wrong although they are legal: attention among the elements of a batch."""

from __future__ import annotations

from headwise.tracing.steps import Step, Trace
from headwise.wording import say

__all__ = ["signs_of"]


def signs_of(trace: Trace, step: Step) -> tuple[str, ...]:
    """The sentences that a step is to be read with; () where its shapes show nothing wrong."""
    batch = next((each.name for each in trace.symbols if each.meaning == "batch"), None)
    if step.op != "MultiheadAttention" or batch is None:
        return ()
    return tuple(
        say("trace.among_batch", lang=trace.lang, shape=str(shape), batch=batch)
        for shape in step.outputs
        if [axis.text for axis in shape.axes[-2:]] == [batch, batch]
    )
