"""Code comments: the shapes that a person wrote beside code, and the operations that each is about."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwise.tracing.chains import Chain, chains
from headwise.tracing.function_lines import functions
from headwise.tracing.shape_text import SpokenChain, spoken
from headwise.tracing.size_words import ROLES, meanings
from headwise.tracing.steps import Place, Step

__all__ = ["Remark", "remarks"]

FENCE = re.compile(r"\s*(```|~~~)")
TICKS = re.compile(r"`([^`\n]+)`")
MATH = re.compile(r"\$[^$]*\$")
WORD = re.compile(r"[A-Za-z_]\w*")
# how far above a chain in prose the word may stand that says which tensor is meant
NEAR = 3


@dataclass(frozen=True)
class Remark:
    """A chain of shapes in a comment or in prose.

    about: the operations that it must be about, from which a mistake in it can be told; beside: others that it may be
    about; later: the operations that follow without a blank line, which it may tell as well.
    """

    place: Place
    chain: SpokenChain
    about: tuple[Chain, ...] = ()
    beside: tuple[Chain, ...] = ()
    later: tuple[Chain, ...] = ()


def remarks(file: str, text: str, steps: Sequence[Step]) -> tuple[Remark, ...]:
    """What a file says of the shapes of the functions that ran in it; a note says it in prose too."""
    lines = text.split("\n")
    own = _by_call(steps)
    inside = [each for each in own if each.place.file == file]
    found: list[Remark] = []
    for first, last in _outermost(functions(lines)):
        here = [each for each in inside if first <= each.place.line <= last]
        if here:
            found += _in_code(file, lines, first, last, here)
    if _is_prose(text):
        found += _in_prose(file, lines, inside)
    return tuple(found)


def _by_call(steps: Sequence[Step]) -> list[Chain]:
    """The chains of each call of a function; and, where it calls others of the person's own, those that go through."""
    calls: dict[tuple[Place, ...], list[Step]] = {}
    through: dict[tuple[Place, ...], list[Step]] = {}
    for step in steps:
        calls.setdefault(step.chain, []).append(step)
        for level in range(len(step.chain) + 1):
            at = step.chain[level] if level < len(step.chain) else step.place
            through.setdefault(step.chain[:level], []).append(replace(step, place=at, chain=step.chain[:level]))
    own = [chain for each in calls.values() for chain in chains(each)]
    longer = [chain for call, each in through.items() if len(each) > len(calls.get(call, ())) for chain in chains(each)]
    return own + [each for each in longer if each not in own]


def _outermost(blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in blocks if not any((c, d) != (a, b) and c <= a and b <= d for c, d in blocks)]


def _in_code(file: str, lines: Sequence[str], first: int, last: int, here: Sequence[Chain]) -> Iterator[Remark]:
    words, code, held = _tokens(lines, first, last)
    for number, column, text in words:
        later: tuple[Chain, ...] = ()
        is_alone = number not in code
        if is_alone:
            after = next((line for line in range(number + 1, last + 1) if line in code), 0)
            touches = all(lines[line - 1].strip() for line in range(number, after))
            about = _at(here, after) if touches else ()
            block = _following(after, last, code) if after else []
            later = tuple(each for line in block for each in _at(here, line) if each not in about)
            beside = _at(here, next((line for line in range(number - 1, first - 1, -1) if line in code), 0))
        else:
            about, beside = _at(here, number), ()
        for chain in spoken(text, bare=True):
            yield Remark(_placed(file, number, column, chain), chain, about, beside, later)
    for number in held:
        for chain in spoken(lines[number - 1]):
            yield Remark(_placed(file, number, 0, chain), chain, (), tuple(here))


def _following(first: int, last: int, code: set[int]) -> list[int]:
    """The lines of code from one on, up to the next blank line or comment."""
    out = []
    for number in range(first, last + 1):
        if number not in code:
            break
        out.append(number)
    return out


def _tokens(lines: Sequence[str], first: int, last: int) -> tuple[list[tuple[int, int, str]], set[int], list[int]]:
    """The comments of a function (line, column, text), the lines that hold code, and those of its docstrings."""
    comments: list[tuple[int, int, str]] = []
    code: set[int] = set()
    held: list[int] = []
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
                # a text that stands alone, such as a docstring
                held += range(start, end + 1)
                fresh = False
            else:
                code |= set(range(start, end + 1))
                fresh = False
    except (SyntaxError, tokenize.TokenError):
        pass
    return comments, code, held


def _at(here: Sequence[Chain], number: int) -> tuple[Chain, ...]:
    """The chains of the expressions that a line has a part in."""
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
    """What stands between backticks outside of blocks of code."""
    is_code = False
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            is_code = not is_code
            continue
        for found in () if is_code else TICKS.finditer(line):
            role = _role_near(lines, number)
            about = tuple(each for each in inside if _role_of(each) == role) if role else ()
            for chain in spoken(found[1]):
                yield Remark(_placed(file, number, found.start(1), chain), chain, about, tuple(inside))


def _role_near(lines: Sequence[str], number: int) -> str:
    """Which tensor a line of prose is about, by its own words or by those above it; "": that is not said."""
    seen = 0
    for line in reversed(lines[:number]):
        if not line.strip():
            continue
        if FENCE.match(line) or seen > NEAR:
            break
        seen += 1
        plain = TICKS.sub(" ", line)
        # a formula beside the word names other tensors by single letters
        for said in (MATH.sub(" ", plain), plain):
            words = {each.lower() for each in re.findall(r"[A-Za-z]+|[\u4e00-\u9fff]+", said)}
            roles = [role for role, own in ROLES.items() if words & own]
            if len(roles) == 1:
                return roles[0]
        if roles:
            return ""
    return ""


def _role_of(chain: Chain) -> str:
    """Which tensor an expression makes, by the names in it; "": none or several of queries, keys and values."""
    names = [
        name
        for name in WORD.findall(chain.steps[0].place.source)
        if "head_width" not in meanings(name) or len(name) == 1
    ]
    parts = {part.lower() for name in names for part in name.split("_")}
    roles = [role for role, own in ROLES.items() if parts & own]
    return roles[0] if len(roles) == 1 else ""
