"""Function lines: the lines of a file to show: the whole functions in which operations ran."""

from __future__ import annotations

import inspect
import re
import tokenize
from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["functions", "indent_of", "regions"]

DEFINES = re.compile(r"\s*(async\s+)?def\s+\w+")
CLASS = re.compile(r"\s*class\s+\w+.*:")
# of a longer run of lines without shapes only the ends are shown
LONGEST, ENDS = 16, 4


def functions(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first and the last line of each function of a file, from line 1; the file may be a note with code in it."""
    spans = []
    for at, line in enumerate(lines):
        if DEFINES.match(line):
            try:
                block = inspect.getblock([f"{each}\n" for each in lines[at:]])
            except (SyntaxError, tokenize.TokenError):
                continue
            first = at
            while first > 0 and lines[first - 1].lstrip().startswith("@"):
                first -= 1
            spans.append((first + 1, at + len(block)))
    return spans


def regions(lines: Sequence[str], numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last lines of the shown regions: the functions around some lines, with their classes."""
    spans = functions(lines)
    shown: set[int] = set()
    marked = {number for number in numbers if 1 <= number <= len(lines)}
    for number in marked:
        around = [(first, last) for first, last in spans if first <= number <= last]
        first, last = min(around, default=(number, number))
        shown |= set(range(first, last + 1))
        shown |= _class_of(lines, first) if around else set()
    return _runs(sorted(shown - _silent(sorted(shown), marked)))


def indent_of(line: str) -> int:
    """The number of columns of a line's indentation."""
    text = line.expandtabs(4)
    return len(text) - len(text.lstrip())


def _class_of(lines: Sequence[str], number: int) -> set[int]:
    """The line of the class around a line; empty: there is none."""
    indent = indent_of(lines[number - 1])
    for at in range(number - 1, 0, -1):
        line = lines[at - 1]
        if line.strip() and indent_of(line) < indent:
            return {at} if CLASS.match(line) else set()
    return set()


def _silent(shown: Sequence[int], marked: set[int]) -> set[int]:
    """The middle of each long run of unmarked lines."""
    out: set[int] = set()
    for first, last in _runs([number for number in shown if number not in marked]):
        if last - first + 1 > LONGEST:
            out |= set(range(first + ENDS, last - ENDS + 1))
    return out


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as runs without a gap."""
    if not numbers:
        return []
    breaks = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b > a + 1]
    edges = [0, *breaks, len(numbers)]
    return [(numbers[a], numbers[b - 1]) for a, b in pairwise(edges)]
