"""Whole models: what shows between their inputs and their attentions: places in a batch, masks, other inputs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from torch import Tensor, nn

from headwise.dataflow import (
    ADDITIONS,
    LAYERS,
    LEARNED,
    AttentionOps,
    MarkedOp,
    Run,
    attentions,
    causal_argument,
    find_pattern,
    is_constant,
    is_movement,
    operand_marks,
    place_of,
    sample_of,
    sources_of,
)
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, function_node

__all__ = [
    "attends_back", "batch_place_suspects", "causal_crossing_suspects", "constant_place_suspects", "crossing_suspects",
    "query_and_key_sources", "unread_masks", "words_of",
]  # fmt: skip

# what a layer is called that attends to another input
CROSS = re.compile(
    r"(^|_)cross(?!_(shape|scale|window|channel|head|layer|frame|cov))(_|$|att)|(^|_)(encoder_decoder|enc_dec|src)_att",
    re.IGNORECASE,
)
# what says that an argument is there for others
UNUSED = re.compile(
    r"\b(un|not )used|\bignored?\b|compat|interface|signature|\bAPI\b|不使用|未使用|忽略", re.IGNORECASE
)
# a table of positions
POSITIONS = re.compile(r"(^|[._])(pos(itions?|itional|_?emb\w*|_?enc\w*)?|w?pe)($|[._])", re.IGNORECASE)
MASKS = frozenset({
    "mask", "attn_mask", "attention_mask", "key_padding_mask", "padding_mask", "pad_mask", "src_mask", "key_mask",
})  # fmt: skip


def batch_place_suspects(run: Run) -> list[Suspect]:
    """A table whose rows are added to the samples by their places in the batch, and not to the tokens by theirs."""
    for entry in run.seen:
        if entry.name not in ADDITIONS or len(entry.inputs) != 2 or len(entry.marked_inputs) != 1:
            continue
        marks = next(each for each in entry.given if each is not None)
        value = entry.unmarked_inputs[0].value if entry.unmarked_inputs else None
        if marks.kind != "token" or value is None or value.ndim < 2 or value.ndim > len(marks.shape):
            continue
        t = marks.arrays["t"]
        samples, places = sample_of(t), place_of(t)
        axes = [axis for axis in range(samples.ndim) if bool((samples.diff(dim=axis) != 0).any())]
        along = axes[0] - len(marks.shape) + value.ndim if len(axes) == 1 else -1
        if along < 0 or value.shape[along] != run.sizes.get("B") or marks.shape[axes[0]] != run.sizes.get("B"):
            continue
        is_of_samples_alone = is_constant(places, axes[0]) and is_constant(marks.arrays["f"], axes[0])
        if not is_of_samples_alone or not bool((value.diff(dim=along) != 0).any()) or not _is_of_table(run, entry):
            continue
        if all(value.shape[axis] == 1 for axis in range(value.ndim - 1) if axis != along):
            return [Suspect("batch-position", entry.span, proved=True)]
    return []


def constant_place_suspects(run: Run) -> list[Suspect]:
    """A table of positions of which all tokens are added the one row that their number names, and no other is read."""
    if not isinstance(run.target, nn.Module):
        return []
    tables = {
        name: table for name, table in (*run.target.named_parameters(), *run.target.named_buffers())
        if POSITIONS.search(name) and table.ndim > 1 and table.is_contiguous() and table.numel() > table.shape[-1]
    }  # fmt: skip
    for name, table in tables.items():
        parts = list(_parts_of(run, table))
        if parts and all(_is_row_of_count(entry, part, table) for entry, part in parts):
            return [Suspect("position-constant", parts[0][0].span, values={"name": name}, proved=True)]
    return []


def _is_row_of_count(entry: MarkedOp, part: Tensor, table: Tensor) -> bool:
    """Whether an operation adds one row of a table to all tokens: the one whose number is how many they are."""
    marks = next((marks for marks in entry.given if marks is not None), None)
    width = table.shape[-1]
    is_sum = part.numel() == width and entry.name in ADDITIONS and len(entry.inputs) == 2
    if not is_sum or marks is None or marks.kind != "token":
        return False
    count = marks.shape[-2] if len(marks.shape) > 1 else 1
    row: int = (part.storage_offset() - table.storage_offset()) // width
    return row == count > 1


def _parts_of(run: Run, table: Tensor) -> Iterator[tuple[MarkedOp, Tensor]]:
    """What operations read of a table, but those that only take a part of it."""
    storage = table.untyped_storage().data_ptr()
    for entry in run.seen:
        if not is_movement(entry.last):
            for tensor in entry.tensors:
                if tensor.untyped_storage().data_ptr() == storage:
                    yield entry, tensor


def _is_of_table(run: Run, entry: MarkedOp) -> bool:
    """Whether what an operation takes beside the tokens is a part of a parameter or of a buffer."""
    target = run.target
    if not isinstance(target, nn.Module):
        return False
    storages = {tensor.untyped_storage().data_ptr() for tensor in (*target.parameters(), *target.buffers())}
    beside = [t for t, marks in zip(entry.tensors, entry.given, strict=True) if marks is None]
    return any(tensor.untyped_storage().data_ptr() in storages for tensor in beside)


def crossing_suspects(run: Run) -> list[Suspect]:
    """The first attention of a layer that is called one of another input, where its keys are of the queries' input."""
    if len(run.argument_marks) < 2:
        return []
    for attention in attentions(run):
        queries, keys = query_and_key_sources(attention)
        entry = attention.context if attention.scores is None else attention.scores
        name = next((word for word in reversed(entry.operation.module.split(".")) if not word.isdigit()), "")
        others = set(run.sources.values()) - queries
        if CROSS.search(name) and "self" not in name and queries == keys and len(queries) == 1 and others:
            # where the layer is called
            chain = () if attention.context.last in LAYERS else entry.operation.chain
            span = chain[-1] if chain else entry.span
            return [Suspect("cross-attends-itself", span, values={"name": name}, proved=True)]
    return []


def causal_crossing_suspects(run: Run) -> list[Suspect]:
    """An attention to another input that hides later keys of it, as the attention of the queries to themselves does."""
    if run.sizes.get("L") == run.sizes.get("S", run.sizes.get("L")):
        # inputs of one length may go side by side
        return []
    every = [(each, *query_and_key_sources(each)) for each in attentions(run)] if len(run.argument_marks) > 1 else []
    if not any(queries == keys and queries and attends_back(each) for each, queries, keys in every):
        return []
    for attention, queries, keys in every:
        is_apart = queries and keys and not queries & keys and max(*queries, *keys) < LEARNED
        if is_apart and _is_flagged(attention) and attends_back(attention):
            entry = attention.context if attention.scores is None else attention.scores
            chain = () if attention.context.last in LAYERS else entry.operation.chain
            return [Suspect("causal-across", chain[-1] if chain else entry.span, proved=True)]
    return []


def _is_flagged(attention: AttentionOps) -> bool:
    """Whether it is torch's attention that is told to be causal: a mask of its own may be meant."""
    args, options = attention.context.rules
    return attention.fused and causal_argument(args, options)


def attends_back(attention: AttentionOps) -> bool:
    """Whether a query sees just the keys up to its own place."""
    pattern = find_pattern(attention)
    if pattern is None:
        return False
    before = pattern.column <= pattern.row
    return not bool(before.all()) and bool((pattern.visible == before).all())


def query_and_key_sources(attention: AttentionOps) -> tuple[set[int], set[int]]:
    """The inputs of which queries and keys are made; empty: not known."""
    scores = attention.scores
    added = next(
        (marks for marks in operand_marks(attention.context) if marks is not None and marks.kind == "pair"), None
    )
    if scores is None and added is not None:
        return sources_of(added, attention.looks), sources_of(added, attention.keys)
    pair = attention.context.given[:2] if attention.context.last in LAYERS or scores is None else operand_marks(scores)
    inputs = [sources_of(marks) for marks in pair]
    return (inputs[0], inputs[1]) if len(inputs) > 1 else (set(), set())


def unread_masks(run: Run) -> list[Suspect]:
    """A mask that forward takes and never reads, where it reads no other one and nothing says that this is meant."""
    if not isinstance(run.target, nn.Module):
        return []
    code = getattr(inspect.unwrap(type(run.target).forward), "__code__", None)
    tree = None if code is None else function_node(code)
    if tree is None or code is None:
        return []
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    if read & {"locals", "vars"} or len([statement for statement in tree.body if not _is_words(statement)]) <= 1:
        return []
    masks = [each for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs) if "mask" in each.arg]
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    if any(mask.arg in read for mask in masks) or UNUSED.search(words_of(type(run.target))):
        return []
    for argument in masks:
        if argument.arg in MASKS and argument.arg not in assigned:
            line, last = argument.lineno, argument.end_lineno or argument.lineno
            span = Span(code.co_filename, code.co_qualname, line, argument.col_offset, last, argument.end_col_offset)
            return [Suspect("input-unused", span, values={"name": argument.arg}, proved=True)]
    return []


def words_of(kind: type) -> str:
    """The source of a class; "": it cannot be read."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def _is_words(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
