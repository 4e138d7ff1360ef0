"""Python lines: the Python statements in a text, with their line numbers and columns kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headwise.targets.source_file import parsed

__all__ = ["OPENING", "pieces", "placed"]

# the line above indented code, so that its columns stay valid
OPENING = "if True:"
CONTINUES = re.compile(r"(?:else|elif|except|finally)\b|[)\]}]")
# error messages of incomplete code
UNFINISHED = ("was never closed", "unterminated triple", "unexpected EOF", "expected 'except'", "expected an indented")
# the most unindented lines of a statement
MOST = 100


def placed(lines: Sequence[str], first: int, total: int) -> str:
    """Code with some lines at their line numbers, from `first` (from 0) of `total`, the others empty.

    Indented lines stay indented. Errors: SyntaxError with the line and the column.
    """
    text = [line for line in lines if line.strip()]
    empty = next((at for at, line in enumerate(lines) if line.strip()), 0)
    first += empty
    above = [""] * first
    code_lines = list(lines[empty:])
    if text and text[0][0] in " \t":
        if first:
            above[-1] = OPENING
        else:
            # without a line above, the columns cannot be kept
            front = len(text[0]) - len(text[0].lstrip())
            code_lines = [line[front:] if not line[:front].strip() else line for line in code_lines]
    code = "\n".join([*above, *code_lines, *[""] * (total - first - len(code_lines))])
    if text:
        parsed(code)
    return code


def pieces(lines: Sequence[str], deep: str = "") -> Iterator[tuple[int, int]]:
    """The first and end line of each statement among some lines. deep: their indentation."""
    unindented = [line.removeprefix(deep) for line in lines]
    starts = [
        at for at, line in enumerate(unindented) if line.strip() and line[0] not in " \t" and not CONTINUES.match(line)
    ]
    starts.append(len(unindented))
    at = 0
    while at < len(starts) - 1:
        end = _end(unindented, starts, at)
        if end is not None:
            yield starts[at], starts[end]
        at = end or at + 1


def _end(lines: Sequence[str], starts: Sequence[int], at: int) -> int | None:
    """The index of the start after the statement at a start; None: it is no statement."""
    for after in range(at + 1, min(at + 1 + MOST, len(starts))):
        code = "\n".join(lines[starts[at] : starts[after]])
        try:
            return after if parsed(code).body else None
        except SyntaxError as error:
            is_decorator = all(lines[start].startswith("@") for start in starts[at:after])
            if not is_decorator and not any(words in (error.msg or "") for words in UNFINISHED):
                return None
    return None
