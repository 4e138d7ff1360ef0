"""Built layers: where a person's own class builds the layer of torch that a step calls."""

from __future__ import annotations

import linecache

from torch import nn

from headwise.dataflow import MarkedOp, Run
from headwise.source import Span, assigned

__all__ = ["built_at", "untold_layer"]


def built_at(run: Run, path: str) -> Span | None:
    """The statement that builds the layer at a path of the target; None: there is none, or a library builds it."""
    if not path or not isinstance(run.target, nn.Module):
        return None
    above, _, name = path.rpartition(".")
    owner = run.target.get_submodule(above)
    return None if type(owner).__module__.startswith("torch.") else assigned(owner, [name])


def untold_layer(run: Run, entry: MarkedOp) -> Span | None:
    """The statement that builds torch's attention which an operation calls, if nothing in it says which axis is the
    batch; None: it calls none, or is told.
    """
    layer = entry.args[0] if entry.args else None
    if not isinstance(layer, nn.MultiheadAttention) or not isinstance(run.target, nn.Module):
        return None
    span = built_at(run, next((name for name, each in run.target.named_modules() if each is layer), ""))
    if span is None:
        return None
    lines = linecache.getlines(span.file)[span.line - 1 : span.end_line or span.line]
    return None if "batch_first" in "".join(lines) else span
