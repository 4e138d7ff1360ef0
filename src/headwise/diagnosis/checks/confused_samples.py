"""Confused samples: whether torch's layer takes samples for tokens, so that nothing of an input arrives."""

from __future__ import annotations

from torch import nn

from headwise.dataflow import LEARNED, MarkedOp, Run, attentions, is_constant, sample_of, source_of
from headwise.diagnosis.checks.built_layers import untold_layer
from headwise.diagnosis.suspects import Suspect

__all__ = ["arriving_nowhere", "takes_samples"]


def arriving_nowhere(run: Run, name: str, sources: set[str | None]) -> list[Suspect]:
    """That the one argument which an attention reads changes nothing, since its samples are taken for tokens; not that
    of a gate which is off at first.
    """
    context = attentions(run)[0].context
    if sources - {name} or not takes_samples(context):
        return []
    return [
        Suspect(
            "batch-length-confused", context.span, values={"name": name}, proved=True, home=untold_layer(run, context)
        )
    ]


def takes_samples(entry: MarkedOp) -> bool:
    """Whether torch's layer is handed its tokens along what it takes for the batch, and samples along their axis."""
    layer, marks = entry.args[0] if entry.args else None, next((each for each in entry.given if each is not None), None)
    if not isinstance(layer, nn.MultiheadAttention) or marks is None or marks.kind != "token" or len(marks.shape) != 3:
        return False
    of_tokens = 1 if layer.batch_first else 0
    # what is learned is no sample's
    samples = sample_of(marks.arrays["t"]).masked_fill(source_of(marks.arrays["t"]) >= LEARNED, -1)
    return is_constant(samples, 1 - of_tokens) and not is_constant(samples, of_tokens)
