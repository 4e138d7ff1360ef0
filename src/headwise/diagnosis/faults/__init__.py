"""The table of faults: one row for each, in files by family; kinds, severities and sentences come from it alone."""

from __future__ import annotations

from dataclasses import replace

from headwise.diagnosis.faults import (
    batch,
    cache,
    calls,
    causal,
    context,
    documentation,
    dropout,
    gradients,
    grouped_heads,
    half_precision,
    head_layout,
    inputs,
    mask,
    names,
    padding,
    parameters,
    position_bias,
    projections,
    rotary,
    scale,
    softmax,
    windows,
)
from headwise.diagnosis.faults.fault import FAULT, NOTE, SEVERITIES, WARNING, Fault

__all__ = ["FAMILIES", "FAULT", "FAULTS", "KINDS", "NOTE", "SEVERITIES", "WARNING", "fault_of"]

# in the order of a forward pass
FAMILIES = (
    calls, names, inputs, projections, head_layout, windows, grouped_heads, rotary, position_bias, scale, mask, padding,
    causal, softmax, dropout, context, cache, batch, parameters, gradients, half_precision, documentation,
)  # fmt: skip
FAULTS: dict[str, Fault] = {
    fault.kind: replace(fault, family=file.__name__.rpartition(".")[2]) for file in FAMILIES for fault in file.FAULTS
}
KINDS = tuple(FAULTS)


def fault_of(kind: str) -> Fault:
    """The row of a kind; one that is not in the table raises a KeyError.

    >>> fault_of("scale-missing").family
    'scale'
    """
    return FAULTS[kind]
