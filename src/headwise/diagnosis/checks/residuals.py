"""Residuals: whether what an attention gives is added to its input, not to itself, and stays in the stream."""

from __future__ import annotations

import ast
from collections import Counter

import torch

from headwise.dataflow import ADDITIONS, MarkedOp, Run, attentions, chain_of
from headwise.diagnosis.suspects import Suspect
from headwise.source import code_at

__all__ = ["doubled_residuals", "dropped_residuals", "normed_residuals"]

# what a part that follows an attention has between its projections; without it, it may be the last of a branch
BENDS = frozenset({"relu", "relu_", "gelu", "silu", "leaky_relu", "elu", "mish", "tanh", "sigmoid", "softplus", "glu"})
# what stands behind the sums of a block
NORMS = frozenset({"layer_norm", "rms_norm", "group_norm"})


def doubled_residuals(run: Run) -> list[Suspect]:
    """The first sum whose two operands are the same features of tokens, made by the same attention."""
    contexts = {attention.context.at for attention in attentions(run)}
    for entry in run.seen:
        if entry.name not in ADDITIONS or len(entry.inputs) != 2 or not _are_same(entry):
            continue
        left, right = (tensor.number for tensor in entry.inputs)
        chains = [chain_of(run, entry.at, number) for number in (left, right)]
        # two results of one input, as of two dropouts, are added on purpose
        is_itself = (
            left == right
            or any(left in step.taken for step in chains[1])
            or any(right in step.taken for step in chains[0])
        )
        is_of_tokens = all(marks is not None and marks.kind == "token" for marks in entry.given)
        if is_of_tokens and is_itself and any(step.at in contexts for step in chains[0]):
            return [Suspect("residual-doubled", entry.span, proved=True)]
    return []


def dropped_residuals(run: Run) -> list[Suspect]:
    """The first sum of a function that adds to its input what was made of the input and an attention together.

    The sum of these two has a name and is in no sum itself, so that the output holds what the attention gave through
    that part alone, which has a nonlinearity: a sum inside of a branch, or before its last projection, is the branch's,
    and one that only projections read is what these ask with.
    In a block with its norms behind the sums each of the two is normed.
    """
    contexts = {attention.context.at for attention in attentions(run)}
    sums = [entry for entry in run.seen if entry.name in ("+", "add") and len(entry.inputs) == 2]
    # a loop that adds the input at each turn adds it on purpose
    turns = Counter((each.span, each.operation.chain, each.operation.module) for each in sums)
    once = [each for each in sums if turns[each.span, each.operation.chain, each.operation.module] == 1]
    added = {operand.number for entry in sums for operand in entry.inputs}
    for first in sums:
        is_named = _is_named(first)
        norm = None if is_named else _norm_of(run, first)
        given = first if norm is None else norm
        if given.outputs[0].number in added or not (is_named or norm is not None):
            continue
        for place in (0, 1):
            stream, beside = first.inputs[place].number, first.inputs[1 - place].number
            chain = chain_of(run, first.at, beside)
            if not any(step.at in contexts for step in chain) or not any(stream in step.taken for step in chain):
                continue
            for second in (each for each in once if each.at > first.at and _are_of_one_function(first, each)):
                numbers = [tensor.number for tensor in second.inputs]
                others = [number for number in numbers if number != stream]
                is_alike = second.outputs[0].shape == first.outputs[0].shape
                if len(others) != 1 or not is_alike or (norm is not None and _norm_of(run, second) is None):
                    continue
                if _is_projected(run, second):
                    continue
                between = [step for step in chain_of(run, second.at, others[0]) if step.at > first.at]
                is_made_of_it = any(given.outputs[0].number in step.taken for step in between)
                if is_made_of_it and any(step.last in BENDS or step.at in contexts for step in between):
                    return [Suspect("residual-dropped", second.span, proved=True)]
    return []


def normed_residuals(run: Run) -> list[Suspect]:
    """The sum of a block whose other sums add to what has not been normed, and that adds to what its own norm gave.

    What it adds to is read by its branch as it is, and nothing else reads what was normed, so that the block's input
    goes no further. A block with each of its norms before a residual connection, or behind one, is alike throughout.
    """
    contexts = {attention.context.at for attention in attentions(run)}
    sums = [entry for entry in run.seen if entry.name in ("+", "add") and len(entry.inputs) == 2]
    blocks = [(entry, *found) for entry in sums if (found := _stream_of(run, entry)) is not None]
    before = [entry for entry, stream, branch in blocks if _norm_in(stream, branch) is not None]
    for entry, stream, branch in blocks:
        norm = next((op for op in run.seen if op.at < entry.at and stream in op.results), None)
        if norm is None or norm.last not in NORMS or _norm_in(stream, branch) is not None:
            continue
        is_alone = [op.at for op in run.seen if norm.inputs[0].number in op.taken] == [norm.at]
        is_beside = any(_are_of_one_function(entry, each) for each in before)
        is_its_own = (norm.span.file, norm.span.function) == (entry.span.file, entry.span.function)
        is_of_attention = any(step.at in contexts for step in branch if step.at > norm.at)
        if is_alone and is_its_own and is_of_attention and is_beside and _norm_of(run, entry) is None:
            return [Suspect("residual-normed", norm.span, proved=True)]
    return []


def _is_projected(run: Run, entry: MarkedOp) -> bool:
    """Whether a sum goes into projections alone, as that of queries and their positions (arXiv:2304.02643)."""
    takers = [op for op in run.seen if op.at > entry.at and entry.results & op.taken]
    return bool(takers) and all(taker.joint is not None for taker in takers)


def _stream_of(run: Run, entry: MarkedOp) -> tuple[int, list[MarkedOp]] | None:
    """What a sum adds to, and the operations that make of it what is added; None: it is no such sum."""
    for place in (0, 1):
        stream = entry.inputs[place].number
        branch = chain_of(run, entry.at, entry.inputs[1 - place].number)
        if any(stream in step.taken for step in branch):
            return stream, branch
    return None


def _norm_in(stream: int, branch: list[MarkedOp]) -> MarkedOp | None:
    """The norm with which a branch begins; None: it has none."""
    return next((step for step in branch if step.last in NORMS and stream in step.taken), None)


def _norm_of(run: Run, entry: MarkedOp) -> MarkedOp | None:
    """The norm that alone takes a sum, as that of a block with its norms behind the sums; None: there is none."""
    takers = [op for op in run.seen if op.at > entry.at and entry.results & op.taken]
    return takers[0] if len(takers) == 1 and takers[0].last in NORMS else None


def _is_named(entry: MarkedOp) -> bool:
    """Whether a sum is all that a statement gives a name to: one inside of a call is of the branch that takes it."""
    code = code_at(entry.span)
    around = () if code is None else (code.node, *code.around(code.node))
    return any(isinstance(node, ast.Assign) and code is not None and node.value is code.node for node in around)


def _are_of_one_function(first: MarkedOp, second: MarkedOp) -> bool:
    """Whether two operations are of one call of a function, on different lines."""
    a, b = first.span, second.span
    if a is None or b is None or a.file != b.file or a.line == b.line:
        return False
    return first.operation.chain == second.operation.chain and first.operation.module == second.operation.module


def _are_same(entry: MarkedOp) -> bool:
    """Whether the two operands of a sum hold the same numbers, which are not all 0."""
    left, right = entry.inputs
    if left.number == right.number:
        return True
    a, b = left.value, right.value
    return a is not None and b is not None and a.shape == b.shape and torch.equal(a, b) and bool(a.any())
