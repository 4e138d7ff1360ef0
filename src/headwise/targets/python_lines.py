"""Python lines: which lines of a text are Python statements, and code put where its lines stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headwise.targets.source_file import parsed

__all__ = ["OPENING", "pieces", "placed"]

# stands above code that is all indented, whose columns are to be true
OPENING = "if True:"
CONTINUES = re.compile(r"(?:else|elif|except|finally)\b|[)\]}]")
# what Python says of code to which more belongs
UNFINISHED = ("was never closed", "unterminated triple", "unexpected EOF", "expected 'except'", "expected an indented")
# a statement goes over so many lines that begin at the left, at most
MOST = 100


def placed(lines: Sequence[str], first: int, total: int) -> str:
    """The code of lines of which the first is line `first`, from 0, of `total`, the others empty.

    Lines that are all indented stay so. SyntaxError where they are no Python, with the line and the column there.
    """
    text = [line for line in lines if line.strip()]
    empty = next((at for at, line in enumerate(lines) if line.strip()), 0)
    first += empty
    above = [""] * first
    own = list(lines[empty:])
    if text and text[0][0] in " \t":
        if first:
            above[-1] = OPENING
        else:
            # nothing stands above: the columns cannot be kept
            front = len(text[0]) - len(text[0].lstrip())
            own = [line[front:] if not line[:front].strip() else line for line in own]
    code = "\n".join([*above, *own, *[""] * (total - first - len(own))])
    if text:
        parsed(code)
    return code


def pieces(lines: Sequence[str], deep: str = "") -> Iterator[tuple[int, int]]:
    """Where the statements among some lines begin and end. deep: the blanks with which they begin."""
    own = [line.removeprefix(deep) for line in lines]
    starts = [at for at, line in enumerate(own) if line.strip() and line[0] not in " \t" and not CONTINUES.match(line)]
    starts.append(len(own))
    at = 0
    while at < len(starts) - 1:
        end = _end(own, starts, at)
        if end is not None:
            yield starts[at], starts[end]
        at = end or at + 1


def _end(lines: Sequence[str], starts: Sequence[int], at: int) -> int | None:
    """Which of the starts is where the statement at one of them has ended; None where it is no statement."""
    for after in range(at + 1, min(at + 1 + MOST, len(starts))):
        code = "\n".join(lines[starts[at] : starts[after]])
        try:
            return after if parsed(code).body else None
        except SyntaxError as error:
            is_decorator = all(lines[start].startswith("@") for start in starts[at:after])
            if not is_decorator and not any(words in (error.msg or "") for words in UNFINISHED):
                return None
    return None
