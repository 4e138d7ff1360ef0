"""Head split: whether there are as many heads as asked for, and a projection that mixes them where it is said to be."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator

import torch
from torch import nn

from headwise.dataflow import AttentionOps, Run, attentions, chain_of, sample_of
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["missing_projection", "spoken", "unsplit_heads"]

SAID = re.compile(
    r"W\s*[\^_]\s*\{?\(?[Oo]\b|\bW[Oo]\b|\bw_o\b|output projection|out(put)?_proj|fc_out|final (linear|projection)"
    r"|输出投影|输出线性|最后的线性|线性变换输出",
    re.IGNORECASE,
)
DENIED = re.compile(
    r"\b(no|not|without|skip|omit|outside|later|caller|elsewhere|none|absent|lives|handled|belongs|parent|outer|block"
    r"|applied by|done by)\b|没有|无|省略|不",
    re.IGNORECASE,
)


def unsplit_heads(run: Run) -> list[Suspect]:
    """One attention of the full width where several heads were asked for."""
    count = _asked_heads(run)
    all_attentions = attentions(run)
    # a list of heads is as many attentions as heads
    if count < 2 or not all_attentions or len(all_attentions) >= count:
        return []
    for attention in all_attentions:
        by_name = {each.name: each for each in sides(attention)}
        if set(by_name) != set("qkv") or attention.fused:
            return []
        if not all(_is_whole(run, each, count) for each in by_name.values()):
            return []
    side = next(each for each in sides(all_attentions[0]) if each.name == "q")
    span = _last_step(run, side)
    return [Suspect("heads-not-split", span, values={"factor": count})]


def _asked_heads(run: Run) -> int:
    """How many heads a class was built with; 1 where it was not asked for any number."""
    names = {symbol.name for symbol in run.plan.symbols if symbol.meaning == "heads"}
    symbols = [value for value in run.plan.init.values() if isinstance(value, str) and value in names]
    return run.sizes[symbols[0]] if symbols else 1


def _is_whole(run: Run, side: Side, count: int) -> bool:
    """Whether an operand holds each token once, with all its features: as many as all heads have together."""
    if bool((side.t < 0).any()):
        return False
    token = side.t[:, :, 0]
    if torch.unique(token).numel() != token.numel():
        return False
    samples = sample_of(token)
    width = side.t.shape[2]
    # a head is as wide as a number that the class is built with
    built = [run.sizes[text] for text in run.plan.init.values() if isinstance(text, str) and text in run.sizes]
    whole = {run.sizes.get("D"), run.sizes.get("H", 0) * run.sizes.get("d", 0), *(count * each for each in built)}
    return bool((samples == samples[:, :1]).all()) and width % count == 0 and width in whole


def _last_step(run: Run, side: Side) -> Span:
    """Where the split should stand: the last that was done to the queries before they met the keys."""
    chain = chain_of(run, side.entry, side.operand)
    moved = [entry for entry in chain if entry.is_movement or entry.joint is not None]
    # the last that gives it more axes, where there is one
    split = [op for op in moved if op.joint is None
             and len(op.outputs[0].shape) > len(op.inputs[0].shape)]  # fmt: skip
    moved = split or moved
    return (moved[-1] if moved else side.entry).operation.span


def missing_projection(run: Run) -> list[Suspect]:
    """Heads that are merged and never mixed: a fault where the class says that they are, else a note."""
    target, all_attentions = run.target, attentions(run)
    if not isinstance(target, nn.Module) or not all_attentions or run.output is None or all_attentions[-1].fused:
        return []
    attention = all_attentions[-1]
    if len(all_attentions) > 1 or not _has_projections(run, attention) or not _is_merged(run, attention):
        return []
    after = [entry for entry in run.seen if entry.at > attention.context.at]
    if any(entry.joint is not None or entry.last in ("conv1d", "conv2d") for entry in after):
        return []
    span = after[-1].span if after else attention.context.span
    claim = _said_in(target)
    if claim is None:
        return [Suspect("no-output-projection", span, proved=True)]
    return [Suspect("projection-missing", span, values={"name": claim})]


def _has_projections(run: Run, attention: AttentionOps) -> bool:
    """Whether queries, keys and values are all projected inside."""
    by_name = {side.name: side for side in sides(attention)}
    return set(by_name) == set("qkv") and all(
        any(entry.joint is not None for entry in chain_of(run, side.entry, side.operand)) for side in by_name.values()
    )


def _is_merged(run: Run, attention: AttentionOps) -> bool:
    """Whether the output holds the features of several heads side by side."""
    by_name = {side.name: side for side in sides(attention)}
    batch, heads = run.sizes.get("B", 1), run.sizes.get("H", 1)
    return (
        heads > 1
        and by_name["q"].t.shape[0] == batch * heads
        and run.output is not None
        and run.output.shape[-1:] == (by_name["v"].t.shape[2] * heads,)
    )


def _said_in(target: nn.Module) -> str | None:
    """What the comments and docstrings of a class say of an output projection; None: nothing, or that there is none."""
    claims = [line for line in spoken(type(target)) if SAID.search(line)]
    if not claims or any(DENIED.search(line) for line in claims):
        return None
    return claims[0].strip(" #\"'")[:80]


def spoken(kind: type) -> Iterator[str]:
    """The lines of prose in a class: its docstrings, and the comments in its functions."""
    yield from (kind.__doc__ or "").split("\n") if kind.__doc__ != nn.Module.__doc__ else ()
    for function in vars(kind).values():
        code = getattr(function, "__code__", None)
        if code is None:
            continue
        yield from (function.__doc__ or "").split("\n")
        lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
        for line in inspect.getblock(lines) if lines else ():
            yield line.partition("#")[2]
