"""Axes: patches that bring axes into the order in which what belongs together meets."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from headwise.diagnosis.patches.expressions import called, rearranged, receiver, turned
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at

__all__ = ["moved"]


def moved(code: Code, suspect: Suspect) -> Iterator[Edits]:
    swapped, merge = suspect.said.get("_swapped"), suspect.said.get("_merge")
    if isinstance(swapped, tuple):
        yield from _swapped(swapped, merge)
    move = suspect.said.get("_move")
    if move is not None:
        yield from ((code.edit(code.node, text),) for text in rearranged(code, move))
    order = suspect.said.get("_then")
    if isinstance(order, tuple):
        yield (code.edit(code.node, f"{code.bracketed(code.node)}.permute({', '.join(map(str, order))})"),)
    if suspect.said.get("_product") and isinstance(code.node, ast.BinOp | ast.Call):
        second = code.node.right if isinstance(code.node, ast.BinOp) else code.node.args[-1]
        if called(second) in ("transpose", "permute", "swapaxes") and isinstance(second, ast.Call):
            # a transposition of the wrong axes
            whose = receiver(second) or second.args[0]
            yield (code.edit(second, f"{code.bracketed(whose)}.transpose(-2, -1)"),)
        yield (code.edit(second, f"{code.bracketed(second)}.transpose(-2, -1)"),)


def _swapped(splits: Sequence[tuple[Span, Sequence[int]]], merge: object) -> Iterator[Edits]:
    """Heads and tokens transposed where heads are split, and back where they are merged. merge: where, and how it goes;
    None: it fits.
    """
    found = [(code_at(span), order) for span, order in splits]
    edits = tuple(code.edit(code.node, f"{code.of(code.node)}{turned(order)}") for code, order in found if code)
    if isinstance(merge, tuple):
        there = code_at(merge[0])
        texts = () if there is None else rearranged(there, merge[1])
        yield from ((*edits, there.edit(there.node, text)) for text in texts if there is not None)
    else:
        yield edits
