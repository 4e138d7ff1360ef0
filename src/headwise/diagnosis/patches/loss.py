"""Loss: whether a patch takes an operation away, which it may only where that operation itself is the fault."""

from __future__ import annotations

import ast

from headwise.diagnosis.patches.rewriting import called
from headwise.diagnosis.patches.sources import Code, Edits, applied
from headwise.diagnosis.suspects import Suspect

__all__ = ["removes"]

# the fault is an operation that is one too many, the wrong factor, the wrong sense of a mask, or a cut of the graph
EXCESS = frozenset({
    "scale-twice", "scale-wrong", "scale-inverted", "scale-floor-division", "gradient-cut", "mask-inverted",
    "scale_again", "rotary_values", "rotary_twice", "dropout_twice",
})  # fmt: skip
# how a tensor is laid out, and what it is asked for, is no part of what code computes
LAYOUT = frozenset({
    "view", "reshape", "transpose", "permute", "contiguous", "flatten", "unflatten", "swapaxes", "movedim", "expand",
    "rearrange", "split", "chunk", "unbind", "squeeze", "unsqueeze", "mT", "size", "len", "int",
})  # fmt: skip


def removes(code: Code, edits: Edits, suspect: Suspect) -> bool:
    """Whether a file has fewer operations with these edits although none of them is what the suspect blames."""
    if {suspect.kind, suspect.words} & EXCESS:
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
