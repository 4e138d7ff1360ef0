"""Stated uses: how a class says that it is run: in half precision, on chunks after a cache, or trained by segments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from headwise.calls import parameters
from headwise.diagnosis.checks.head_split import spoken
from headwise.source import constructors, file_tree, is_installed

__all__ = ["is_for_chunks", "is_for_halves", "may_be_empty", "sentences", "trains_by_segments"]

HALF = re.compile(r"\.half\(\)|\bfp16\b|\bfloat16\b|\bhalf[- ]precision\b|半精度")
CHUNK = re.compile(
    r"\bchunk(?:s|ed|wise)?\b[^,;]*\b(?:prefill|prompt|cache|token)"
    r"|\b(?:prefill|prompt|cache|token)\w*\b[^,;]*\bchunk(?:s|ed)?\b"
    r"|\bany number of new tokens\b"
    r"|\bprompts?\b[^.]*\b(?:in|by) (?:(?:several|many|equal|small|a few|\d+) )?(?:pieces|parts|blocks)\b"
    r"|\bspeculative\b|\bdraft(?:ed)? tokens?\b|\b(?:several|multiple|more|many|any number of)\b[^.]*\btokens? "
    r"(?:at (?:a time|once)|per (?:step|call)|in one (?:step|call))|分段|分块预填|多个 ?token",
    re.IGNORECASE,
)
SEGMENTS = re.compile(
    r"truncated (?:bptt|back-?prop)|\btbptt\b|\bstep per (?:segment|chunk|window)|\btrain\w*\b.*\b(?:segment|chunk) by "
    r"(?:segment|chunk)\b|逐段训练|截断的?反向传播",
    re.IGNORECASE,
)
EMPTY = re.compile(
    r"\b(?:is|be|are|with|an?|has|have)\b[^.]*\bempty\b|\bempty (?:histor|sequence|set|context|memor|session|document)"
    r"|\bcold[- ]start|\bmay be (?:0|zero|none)\b|\b(?:without|with no|has no|have no) (?:any )?(?:photos?|images?|hits"
    r"|neighbou?rs|edges|history|items|keys|tokens|objects|passages|context)|空的?(?:历史|序列|集合)|可以?为空|可能为空",
    re.IGNORECASE,
)
DENIED = re.compile(
    r"\bnot?\b|n't\b|\bonly\b|\btoo\b|\bnever\b|avoid|except|instead|rather|bfloat|float32|fp32|unsupported|不|仅",
    re.IGNORECASE,
)
# what ends a sentence, and a line that speaks of another thing than the one before
END = re.compile(r"(?<=[.!?;])\s+|(?<=[。；！？])")
ENTRY = re.compile(r"\s*(?:[-*•] |\d+[.)] |[:@]\w+|[`*]*\w+[`*]*(?:, *\w+)*(?: *\([^)]*\))? *:)")


def is_for_halves(target: Any) -> bool:
    """Whether a class says that it runs in half precision, by its words or the dtype that it is built with."""
    dtypes = (parameter.default for parameter in parameters(target) if isinstance(target, type))
    return torch.float16 in dtypes or _says(target, HALF)


def is_for_chunks(target: Any) -> bool:
    """Whether a class says that several tokens may come after those that a cache holds."""
    return _says(target, CHUNK)


def may_be_empty(target: Any) -> bool:
    """Whether a class says that a sample may hold nothing to attend to."""
    return _says(target, EMPTY)


def trains_by_segments(target: Any) -> bool:
    """Whether a class says that it is trained on one segment of a text after the other, with a step after each."""
    return _says(target, SEGMENTS)


def _says(target: Any, use: re.Pattern[str]) -> bool:
    return any(use.search(sentence) and not DENIED.search(sentence) for sentence in _sentences(target))


def _sentences(target: Any) -> Iterator[str]:
    """The lines at the head of a target's file and of its class, and the sentences of docstrings, which may go on in
    the next line.
    """
    kind = target if isinstance(target, type) else type(target)
    trees = (file_tree(each.code.co_filename) for each in constructors(kind) if not is_installed(each.code.co_filename))
    head = next((ast.get_docstring(tree) or "" for tree in trees if tree is not None), "")
    yield from (*head.splitlines(), *spoken(kind))
    own = kind.__doc__ if kind.__doc__ != nn.Module.__doc__ else ""
    for text in (head, own, *(value.__doc__ for value in vars(kind).values() if isinstance(value, FunctionType))):
        yield from sentences(text or "")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, which may go on in the next line; none goes on behind a blank line or in another entry.

    >>> list(sentences("One goes on\\nhere. Another ends\\n\\nx: features"))
    ['One goes on here.', 'Another ends', 'x: features']
    """
    paragraph: list[str] = []
    for line in (*text.splitlines(), ""):
        if not line.strip() or ENTRY.match(line):
            yield from filter(None, END.split(" ".join(paragraph)))
            paragraph = []
        if line.strip():
            paragraph.append(line.strip())
