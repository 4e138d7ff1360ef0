"""Shape text: the chains of shapes in a comment or another text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.tracing.size_words import meanings

__all__ = ["SpokenChain", "SpokenShape", "names_in", "spoken"]

ARROWS = re.compile(r"→|-+>|=+>|⟶|⇒|➔|➜")
BRACKETS = re.compile(r"\[([^][()]*)\]|\(([^][()]*)\)|\(((?:[^][()]|\([^][()]*\))*)\)")
# B x L x D, with spaces, of at least three
CROSSED = re.compile(r"(?<![\w.])\w+(?: [x×] \w+){2,}(?![\w.])")
# BLHd_k
RUN = re.compile(r"(?<![\w.$\\])[A-Zb](?:[A-Za-z](?:_[a-z])?){1,4}(?![\w.(])")
LETTER = re.compile(r"[A-Za-z](?:_[a-z])?")
BARE = re.compile(r"\w+(?:, ?\w+){2,}")
PRODUCT = re.compile(r"[×@·*x⋅=]|and|和|与|\s")
# a bracket right after these words is a shape, after any other word a call
SHAPE_WORDS = ("shape", "size", "Size", "dims", "形状", "维度", "大小")


@dataclass(frozen=True)
class SpokenShape:
    """One written shape. elements: the texts between its commas; start, end: its position in the text."""

    elements: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True)
class SpokenChain:
    """Shapes in order, joined by arrows or product signs."""

    shapes: tuple[SpokenShape, ...]
    text: str
    start: int


def spoken(text: str, *, bare: bool = False) -> tuple[SpokenChain, ...]:
    """The chains of shapes in one line of text. bare: the text may itself be a shape without brackets: "B, T, C".

    >>> [each.text for each in spoken("split: (B, T, C) -> view(B, T, nh, hs) -> (B, nh, T, hs)")]
    ['(B, T, C) -> view(B, T, nh, hs) -> (B, nh, T, hs)']
    """
    if bare and BARE.fullmatch(text.strip()):
        elements = tuple(word.strip() for word in text.split(","))
        if all(meanings(element) for element in elements):
            start = len(text) - len(text.lstrip())
            stripped = text.strip()
            return (SpokenChain((SpokenShape(elements, start, start + len(stripped)),), stripped, start),)
    shapes = sorted([*_bracketed(text), *_crossed(text)], key=lambda shape: shape.start)
    is_run = False
    if not shapes:
        is_run = True
        shapes = list(_runs(text))
    chains: list[list[SpokenShape]] = []
    for shape in shapes:
        between = text[chains[-1][-1].end : shape.start] if chains else ""
        if chains and _joins(between):
            chains[-1].append(shape)
        else:
            chains.append([shape])
    # a word may look like a run of letters, but not two with an arrow between them
    accepted = [chain for chain in chains if not is_run or len(chain) > 1]
    return tuple(SpokenChain(tuple(chain), text[chain[0].start : chain[-1].end], chain[0].start) for chain in accepted)


def names_in(element: str) -> frozenset[str] | None:
    """The words of an element, which may be a product or a quotient; None: it cannot be read."""
    tree = tree_of(element)
    if tree is None:
        return None
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def tree_of(element: str) -> ast.expr | None:
    """The syntax tree of an element; None: it is no arithmetic expression."""
    text = re.sub(r"[×·⋅]", "*", element.strip())
    # "seq len" is one word
    text = re.sub(r"(?<=\w) (?=\w)", "_", text)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    allowed = (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)
    return tree if all(isinstance(node, allowed) for node in ast.walk(tree)) else None


def _joins(between: str) -> bool:
    """Whether the text between two shapes joins them into a chain."""
    if ARROWS.search(between):
        return True
    left = between.strip("() ")
    return bool(left) and PRODUCT.sub("", left) == ""


def _bracketed(text: str) -> Iterator[SpokenShape]:
    for match in BRACKETS.finditer(text):
        before = text[: match.start()].rstrip()
        touching = text[: match.start()]
        is_call = bool(re.search(r"[\w.\])]$", touching)) and not before.endswith(SHAPE_WORDS)
        inner = next((group for group in match.groups() if group is not None), "")
        elements = tuple(word.strip() for word in re.split(r"[,，、]", inner))
        if not is_call and _is_shape(elements):
            yield SpokenShape(elements, match.start(), match.end())


def _is_shape(elements: Sequence[str]) -> bool:
    """Whether every element reads as a size, and at least one has a word."""
    words = [names_in(element) for element in elements]
    return 2 <= len(elements) <= 6 and all(word is not None for word in words) and any(words)


def _crossed(text: str) -> Iterator[SpokenShape]:
    for match in CROSSED.finditer(text):
        elements = tuple(re.split(r" [x×] ", match[0]))
        if _is_shape(elements):
            yield SpokenShape(elements, match.start(), match.end())


def _runs(text: str) -> Iterator[SpokenShape]:
    for match in RUN.finditer(text):
        letters = tuple(LETTER.findall(match[0]))
        if (
            "".join(letters) == match[0]
            and len(set(letters)) == len(letters)
            and all(meanings(letter) for letter in letters)
            and len(letters) > 1
        ):
            yield SpokenShape(letters, match.start(), match.end())
