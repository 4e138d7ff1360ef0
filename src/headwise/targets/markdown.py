"""Markdown: the Python in a Markdown note or a plain text, with its lines and columns kept."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.targets.notebooks import without_magics, without_prompts
from headwise.targets.python_lines import OPENING, pieces, placed
from headwise.targets.source_file import Cell, definitions

__all__ = ["cells_of_note", "fault_of_note"]

FENCE = re.compile(r"^(?P<front>[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+")
PYTHON = re.compile(r"^\{?[\s.`]*(?:code-cell|code-block)?[\s}:]*(python\w*|py\d*|ipython\w*|pycon)\b", re.IGNORECASE)
PROMPT = re.compile(r"^\s*In\s*\[[\d ]*\]:(.*)$")
TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
OUT = re.compile(r"^\s*Out\s*\[[\d ]*\]:")


@dataclass(frozen=True)
class _Block:
    """Lines that may be code. first: the number of the first line, from 0."""

    first: int
    lines: tuple[str, ...]


def cells_of_note(file: str, text: str, name: str = "") -> tuple[Cell, ...]:
    """The Python of a note: in its fences, its `In [n]:` cells, its other lines, or its lines without HTML tags.

    The first of these that defines `name` counts; with no name, the first that defines anything; else the first with
    any Python.
    """
    lines = text.split("\n")
    root = name.partition(".")[0]
    candidates = []
    for blocks in (_fenced(lines), _prompted(lines), _loose(lines, root), _loose(_untagged(lines), root)):
        cells = tuple(cell for block in blocks for cell in _cells(file, block, len(lines)))
        names = {definition.name for definition in definitions(cells)}
        if root in names or (not root and names):
            return cells
        candidates.append(cells)
    return next((cells for cells in candidates if cells), ())


def fault_of_note(text: str, name: str) -> SyntaxError | None:
    """The syntax error in a note's definition of a name; None: it has no such definition, or a valid one."""
    lines = text.split("\n")
    starts = re.compile(rf"\s*(?:[>] ?)*(?:>>> )?(?:class|def)\s+{re.escape(name)}\b")
    for block in (*_fenced(lines), *_prompted(lines), *_loose(lines, name)):
        at = next((at for at, line in enumerate(block.lines) if starts.match(line)), None)
        if at is not None:
            rest = re.split(r"\n(?=[^\s)\]}#])", "\n".join(without_prompts(block.lines[at:])))[0].split("\n")
            try:
                placed(rest, block.first + at, len(lines))
            except SyntaxError as error:
                return error
    return None


def _fenced(lines: Sequence[str]) -> Iterator[_Block]:
    """The blocks between fences of ``` or ~~~, in lists and quotes too."""
    at, is_comment = 0, False
    while at < len(lines):
        opening = None if is_comment else FENCE.match(lines[at])
        if opening is None:
            opened, closed = lines[at].rfind("<!--"), lines[at].rfind("-->")
            is_comment = opened > closed if max(opened, closed) >= 0 else is_comment
            at += 1
            continue
        end = re.compile(rf"^[ \t>]*{re.escape(opening['fence'][0])}{{{len(opening['fence'])},}}\s*$")
        last = next((i for i in range(at + 1, len(lines)) if end.match(lines[i])), len(lines))
        info = opening["info"].strip()
        if not info or PYTHON.match(info):
            inside = lines[at + 1 : last]
            if ">" in opening["front"]:
                inside = [QUOTED.sub(lambda m: " " * len(m[0]), line) for line in inside]
            yield _Block(at + 1, tuple(inside))
        at = last + 1


def _prompted(lines: Sequence[str]) -> Iterator[_Block]:
    """The blocks after each `In [n]:`, up to the next one or its output."""
    starts = [at for at, line in enumerate(lines) if PROMPT.match(line)]
    marks = sorted({*starts, *(at for at, line in enumerate(lines) if OUT.match(line)), len(lines)})
    for start in starts:
        end = next(at for at in marks if at > start)
        beside = PROMPT.match(lines[start])
        rest = beside[1] if beside else ""
        if rest.strip():
            # the code begins beside the prompt; the lines below are aligned with it, or not indented
            front = len(lines[start]) - len(rest.lstrip())
            below = lines[start + 1 : end]
            is_aligned = all(not line.strip() or line[:front].strip() in ("", "...:") for line in below)
            inside = [" " * front + line[front:] for line in below] if is_aligned else below
            first = " " * front + rest.lstrip() if is_aligned else rest.lstrip()
            yield _Block(start, (first, *inside))
        else:
            yield _Block(start + 1, tuple(lines[start + 1 : end]))


def _loose(lines: Sequence[str], name: str) -> Iterator[_Block]:
    """All lines, or those with the indentation of the definition of a name."""
    starts = re.compile(rf"([ \t]+)(?:class|def)\s+{re.escape(name)}\b") if name else None
    deep = next((match[1] for line in lines if starts and (match := starts.match(line))), "")
    yield _Block(0, tuple(line if line.startswith(deep) else "" for line in lines))


def _untagged(lines: Sequence[str]) -> list[str]:
    """The lines of a page without tags and entities; columns after these are not kept."""
    return [html.unescape(TAG.sub("", line)) for line in lines]


def _cells(file: str, block: _Block, total: int) -> Iterator[Cell]:
    """The Python in a block: the whole block, else its statements that parse."""
    # non-breaking and wide spaces of copied pages count as blanks
    lines = without_prompts([line.replace("\u00a0", " ").replace("\u3000", " ") for line in block.lines])
    text = [line for line in lines if line.strip()]
    deep = min((line[: len(line) - len(line.lstrip())] for line in text), key=len, default="")
    opening = [OPENING] if deep else []
    # an indented block parses only below a line that opens a block
    code = without_magics("\n".join([*opening, *lines]))
    lines = code.split("\n")[len(opening) :] if code else []
    try:
        whole = placed(lines, block.first, total)
    except SyntaxError:
        for start, end in pieces(lines, deep):
            yield Cell(file, placed(lines[start:end], block.first + start, total))
        return
    if whole.strip():
        yield Cell(file, whole)
