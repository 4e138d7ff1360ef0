"""Code comments: the shapes in the comments of code, and the operations that each describes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.dataflow import Shape
from headwise.tracing.chains import Chain, chains
from headwise.tracing.function_lines import functions
from headwise.tracing.shape_text import SpokenChain, spoken
from headwise.tracing.size_words import ROLES, meanings
from headwise.tracing.steps import Place, Step
from headwise.tracing.variable_shapes import VariableShapes

__all__ = ["Remark", "remarks"]

FENCE = re.compile(r"\s*(```|~~~)")
TICKS = re.compile(r"`([^`\n]+)`")
MATH = re.compile(r"\$[^$]*\$")
WORD = re.compile(r"[A-Za-z_]\w*")
# the variable that a shape is of: `q: (B, L, D)`, `q (B, L, D)`, `q.shape = (B, L, D)`
NAMED = re.compile(r"(?<![\w.])((?:self\.)?[A-Za-z_]\w*)(?:\.shape|\.size\(\))?`?\s*[:：=]*\s*$")
# the most lines between a chain in prose and the word for its tensor
NEAR = 3


@dataclass(frozen=True)
class Remark:
    """A chain of shapes in a comment or in prose.

    about: the operations that it must describe, against which it is checked; beside: others that it may describe;
    later: the operations that follow without a blank line, which it may describe as well. name: the variable of the
    code that a single shape is of, "": none. values: the shapes of that variable before and after the line.
    is_labelled: a word with a colon is before the shape.
    """

    place: Place
    chain: SpokenChain
    about: tuple[Chain, ...] = ()
    beside: tuple[Chain, ...] = ()
    later: tuple[Chain, ...] = ()
    name: str = ""
    values: tuple[Shape, ...] = ()
    is_labelled: bool = False


def remarks(file: str, text: str, steps: Sequence[Step], call: Mapping[str, Any] | None = None) -> tuple[Remark, ...]:
    """The chains of shapes in a file about the functions that ran in it; those in the prose of a note too.

    call: the arguments of the target, as in `Trace`.
    """
    lines = text.split("\n")
    by_call = _by_call(steps)
    inside = [each for each in by_call if each.place.file == file]
    variables = VariableShapes(file, text, inside, call)
    out: list[Remark] = []
    for first, last in _outermost(functions(lines)):
        here = [each for each in inside if first <= each.place.line <= last]
        if here:
            out += _in_code(file, lines, first, last, here, variables)
    if _is_prose(text):
        out += _in_prose(file, lines, inside)
    return tuple(out)


def _by_call(steps: Sequence[Step]) -> list[Chain]:
    """The chains of each function call; where it calls other user functions, also those through these calls."""
    calls: dict[tuple[Place, ...], list[Step]] = {}
    through: dict[tuple[Place, ...], list[Step]] = {}
    for step in steps:
        calls.setdefault(step.chain, []).append(step)
        for level in range(len(step.chain) + 1):
            at = step.chain[level] if level < len(step.chain) else step.place
            through.setdefault(step.chain[:level], []).append(replace(step, place=at, chain=step.chain[:level]))
    direct = [chain for call in calls.values() for chain in chains(call)]
    longer = [chain for call, each in through.items() if len(each) > len(calls.get(call, ())) for chain in chains(each)]
    return direct + [each for each in longer if each not in direct]


def _outermost(blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in blocks if not any((c, d) != (a, b) and c <= a and b <= d for c, d in blocks)]


def _in_code(
    file: str, lines: Sequence[str], first: int, last: int, here: Sequence[Chain], variables: VariableShapes
) -> Iterator[Remark]:
    words, code, docstring_lines = _tokens(lines, first, last)
    for number, column, text in words:
        later: tuple[Chain, ...] = ()
        is_alone, after, end = number not in code, number, number
        if is_alone:
            after = next((line for line in range(number + 1, last + 1) if line in code), 0)
            touches = all(lines[line - 1].strip() for line in range(number, after))
            about = _at(here, after) if touches else ()
            block = _following(after, last, code) if after else []
            end = max(block, default=number)
            later = tuple(each for line in block for each in _at(here, line) if each not in about)
            beside = _at(here, next((line for line in range(number - 1, first - 1, -1) if line in code), 0))
        else:
            about, beside = _at(here, number), ()
        for chain in spoken(text, bare=True):
            place, before = _placed(file, number, column, chain), text[: chain.start]
            name = NAMED.search(before) if len(chain.shapes) == 1 else None
            if name is None or not variables.is_bound(name[1], number):
                is_labelled = before.rstrip().endswith((":", "："))
                yield Remark(place, chain, about, beside, later, is_labelled=is_labelled)
                continue
            yield Remark(place, chain, about, beside, later, name[1], variables.around(name[1], after or number, end))
    for number in docstring_lines:
        for chain in spoken(lines[number - 1]):
            yield Remark(_placed(file, number, 0, chain), chain, (), tuple(here))


def _following(first: int, last: int, code: set[int]) -> list[int]:
    """The lines of code from a line up to the next blank line or comment."""
    out = []
    for number in range(first, last + 1):
        if number not in code:
            break
        out.append(number)
    return out


def _tokens(lines: Sequence[str], first: int, last: int) -> tuple[list[tuple[int, int, str]], set[int], list[int]]:
    """The comments of a function (line, column, text), its lines of code, and those of its docstrings."""
    comments: list[tuple[int, int, str]] = []
    code: set[int] = set()
    docstring_lines: list[int] = []
    block = "\n".join(lines[first - 1 : last]) + "\n"
    fresh = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(block).readline):
            start, end = token.start[0] + first - 1, token.end[0] + first - 1
            if token.type == tokenize.COMMENT:
                skipped = len(token.string) - len(token.string.lstrip("#"))
                comments.append((start, token.start[1] + skipped, token.string[skipped:]))
            elif token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                fresh = fresh or token.type == tokenize.NEWLINE
            elif token.type == tokenize.STRING and fresh:
                # a bare string, such as a docstring
                docstring_lines += range(start, end + 1)
                fresh = False
            else:
                code |= set(range(start, end + 1))
                fresh = False
    except (SyntaxError, tokenize.TokenError):
        pass
    return comments, code, docstring_lines


def _at(here: Sequence[Chain], number: int) -> tuple[Chain, ...]:
    """The chains of the expressions on a line."""
    return tuple(each for each in here if each.place.line <= number <= (each.place.end_line or each.place.line))


def _placed(file: str, number: int, column: int, chain: SpokenChain) -> Place:
    start = column + chain.start
    return Place(file, number, start, number, start + len(chain.text), chain.text)


def _is_prose(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return True
    return False


def _in_prose(file: str, lines: Sequence[str], inside: Sequence[Chain]) -> Iterator[Remark]:
    """The chains between backticks outside of code blocks."""
    is_code = False
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            is_code = not is_code
            continue
        for match in () if is_code else TICKS.finditer(line):
            role = _role_near(lines, number)
            about = tuple(each for each in inside if _role_of(each) == role) if role else ()
            for chain in spoken(match[1]):
                yield Remark(_placed(file, number, match.start(1), chain), chain, about, tuple(inside))


def _role_near(lines: Sequence[str], number: int) -> str:
    """The tensor that a line of prose is about, by its words or by those above; "": unknown."""
    count = 0
    for line in reversed(lines[:number]):
        if not line.strip():
            continue
        if FENCE.match(line) or count > NEAR:
            break
        count += 1
        plain = TICKS.sub(" ", line)
        # a formula beside the word names other tensors by single letters
        for text in (MATH.sub(" ", plain), plain):
            words = {word.lower() for word in re.findall(r"[A-Za-z]+|[\u4e00-\u9fff]+", text)}
            roles = [role for role, role_words in ROLES.items() if words & role_words]
            if len(roles) == 1:
                return roles[0]
        if roles:
            return ""
    return ""


def _role_of(chain: Chain) -> str:
    """The tensor that an expression makes, by its names; "": none or several of queries, keys and values."""
    names = [
        name
        for name in WORD.findall(chain.steps[0].place.source)
        if "head_width" not in meanings(name) or len(name) == 1
    ]
    parts = {part.lower() for name in names for part in name.split("_")}
    roles = [role for role, role_words in ROLES.items() if parts & role_words]
    return roles[0] if len(roles) == 1 else ""
