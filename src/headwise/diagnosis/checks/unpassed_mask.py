"""Unpassed mask: where a block calls an attention that takes a mask, and does not hand its own on."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from torch import nn

from headwise.calls import callee, mask_arguments, parameters
from headwise.dataflow import AttentionOps, Run
from headwise.diagnosis.checks.untaken_branches import is_elsewhere
from headwise.source import Span

__all__ = ["is_unread", "withheld"]

UNUSED = re.compile(r"not used|unused|ignored|compat|placeholder|noqa|未使用|没有用|兼容", re.IGNORECASE)
MODULE = re.compile(r"self\.(\w+)\(")


def withheld(run: Run, attention: AttentionOps) -> Span | None:
    """Where the target calls what holds an attention and takes a mask, and gives it none; None: nowhere."""
    operation = attention.context.operation
    own = f"{type(run.target).__qualname__}.forward"
    span = next((each for each in operation.chain if each.function == own), None)
    if span is None or not isinstance(run.target, nn.Module) or is_elsewhere(run, run.plan.mask):
        return None
    found = MODULE.search(span.source)
    module = getattr(run.target, found[1], None) if found is not None else None
    if not isinstance(module, nn.Module) or re.search(rf"\b{re.escape(run.plan.mask)}\b", span.source):
        return None
    return span if mask_arguments(parameters(module.forward)) else None


def is_unread(target: Any, name: str) -> bool:
    """Whether the code of what is called reads an argument nowhere, and says nowhere that it does not."""
    try:
        source = textwrap.dedent(inspect.getsource(callee(target)))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return False
    reads = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    return all(each.id not in (name, "locals") for each in reads) and not UNUSED.search(source)
