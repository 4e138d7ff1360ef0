"""Removed operations: whether a patch removes an operation that is not itself the fault."""

from __future__ import annotations

import ast

from headwise.diagnosis.patches.expressions import called
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, applied

__all__ = ["removes"]

# how a tensor is laid out, and what it is asked for, is no part of what code computes
LAYOUT = frozenset({
    "view", "reshape", "transpose", "permute", "contiguous", "flatten", "unflatten", "swapaxes", "movedim", "expand",
    "rearrange", "split", "chunk", "unbind", "squeeze", "unsqueeze", "mT", "size", "len", "int",
})  # fmt: skip


def removes(code: Code, edits: Edits, suspect: Suspect) -> bool:
    """Whether a file has fewer operations with these edits although none of them is what the suspect blames."""
    if suspect.fault.removes:
        return False
    before = "".join(code.lines)
    try:
        return _count(applied(before, edits)) < _count(before)
    except SyntaxError:
        # it is refused where it is loaded
        return False


def _count(text: str) -> int:
    """Calls and arithmetic, but for the layout."""
    nodes = list(ast.walk(ast.parse(text)))
    calls = sum(isinstance(each, ast.Call) and called(each) not in LAYOUT for each in nodes)
    return calls + sum(isinstance(each, ast.BinOp | ast.AugAssign) for each in nodes)
