"""Annotation: a copy of traced code with its shapes as comments and the same syntax tree."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.tracing.chains import Chain
from headwise.tracing.legend import condition
from headwise.tracing.listing import Columns, columns_of, signs_of
from headwise.tracing.steps import Trace
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["annotated"]

FENCE = re.compile(r"(\s*)(```|~~~)")
TOP = re.compile(r"(async\s+def|def|class)\s+\w|@")
IMPORT = re.compile(r"(import|from)\s+\w")


@dataclass(frozen=True)
class _Piece:
    """Consecutive lines of code of one file. first: the number of the first."""

    file: str
    first: int
    lines: tuple[str, ...]

    @property
    def code(self) -> str:
        return "\n".join(self.lines)


def annotated(traces: Sequence[Trace]) -> str:
    """The code of one target, or of several of one file, with the shapes of each statement as a comment above it.

    Notes and notebooks give their code alone. Errors: Refusal where the code cannot be parsed.
    """
    path = traces[0].target.rpartition(":")[0] or traces[0].target
    comments: dict[tuple[str, int], list[str]] = {}
    for trace in traces:
        for file, number, text in _remarks(trace):
            texts = comments.setdefault((file, number), [])
            texts += [] if text in texts else [text]
    pieces = [piece for file, text in _target_files(traces[0], path) for piece in _pieces(file, text, set(comments))]
    before = "\n\n".join(piece.code for piece in pieces)
    after = "\n\n".join(_with_comments(piece, comments) for piece in pieces)
    if not pieces or _parsed(before) is None or _parsed(before) != _parsed(after):
        raise refusal("refuse.no_copy", target=path)
    return after if after.endswith("\n") else f"{after}\n"


def _target_files(trace: Trace, path: str) -> list[tuple[str, str]]:
    """The files of a target itself, without those that it imports."""
    name = path.rpartition("/")[2]
    files = [(file, text) for file, text in trace.sources.items() if file.rpartition("/")[2].startswith(name)]
    ran = {step.place.file for step in trace.steps}
    return files or [(file, text) for file, text in trace.sources.items() if file in ran]


def _remarks(trace: Trace) -> Iterator[tuple[str, int, str]]:
    """The comments (file, line, text) to write above statements."""
    for comment in trace.comments:
        if comment.true:
            sentence = say("trace.comment", lang=trace.lang, said=comment.said, true=comment.true)
            yield comment.place.file, comment.place.line, f"≠ {sentence}"
    for file, number, columns in columns_of(trace):
        for text in _of_columns(columns, trace.lang):
            yield file, number, text
    for step in trace.steps:
        for sign in signs_of(trace, step):
            yield step.place.file, step.place.line, f"⚠ {sign}"
    for problem in trace.problems:
        if problem.place is not None:
            if problem.setting:
                yield problem.place.file, problem.place.line, condition(problem, trace.lang)
            for line in filter(None, (problem.reason, *problem.error.split("\n"))):
                yield problem.place.file, problem.place.line, f"✗ {line}"


def _of_columns(columns: Columns, lang: str) -> Iterator[str]:
    labels = columns.labels or ("",) * len(columns.chains)
    for label, column in zip(labels, columns.chains, strict=True):
        for chain in column:
            yield (f"{label}: " if label else "") + _of_chain(chain)
            if chain.scrambled:
                yield f"⚠ {say('trace.scrambled', lang=lang, axes=', '.join(chain.scrambled))}"


def _of_chain(chain: Chain) -> str:
    return f"{chain.text()}  {chain.times}".rstrip()


def _pieces(file: str, text: str, commented: set[tuple[str, int]]) -> Iterator[_Piece]:
    """The code of a file: the whole file, or, in a note, the blocks that ran and the imports before them."""
    lines = text.split("\n")
    if _parsed(text) is not None:
        yield _Piece(file, 1, tuple(lines))
        return
    numbers = {number for name, number in commented if name == file}
    blocks = [piece for piece in _fenced(file, lines) if _parsed(piece.code) is not None]
    shown = [piece for piece in blocks if numbers & set(range(piece.first, piece.first + len(piece.lines)))]
    if not shown:
        blocks = list(_bare(file, lines))
        shown = [piece for piece in blocks if numbers & set(range(piece.first, piece.first + len(piece.lines)))]
    yield from (
        piece for piece in blocks if piece in shown or (shown and _only_imports(piece) and piece.first < shown[0].first)
    )


def _fenced(file: str, lines: Sequence[str]) -> Iterator[_Piece]:
    """The blocks between fences, moved to the left margin."""
    start = None
    for number, line in enumerate(lines, 1):
        if not FENCE.match(line):
            continue
        if start is not None:
            block = textwrap.dedent("\n".join(lines[start : number - 1])).split("\n")
            yield _Piece(file, start + 1, tuple(block))
        start = number if start is None else None


def _bare(file: str, lines: Sequence[str]) -> Iterator[_Piece]:
    """Classes, functions and imports without indentation among other text."""
    at = 0
    while at < len(lines):
        size = 0
        if TOP.match(lines[at]):
            try:
                size = len(inspect.getblock([f"{line}\n" for line in lines[at:]]))
            except (SyntaxError, tokenize.TokenError):
                size = 0
        else:
            while at + size < len(lines) and IMPORT.match(lines[at + size]):
                size += 1
        piece = _Piece(file, at + 1, tuple(lines[at : at + size]))
        if size and _parsed(piece.code) is not None:
            yield piece
        at += max(size, 1)


def _only_imports(piece: _Piece) -> bool:
    body = ast.parse(piece.code).body
    return bool(body) and all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)


def _with_comments(piece: _Piece, comments: dict[tuple[str, int], list[str]]) -> str:
    starts = _starts(piece.lines)
    above: dict[int, list[str]] = {}
    for (file, number), texts in comments.items():
        at = number - piece.first
        if file == piece.file and 0 <= at < len(piece.lines):
            above.setdefault(starts.get(at, at), []).extend(texts)
    out = []
    for at, line in enumerate(piece.lines):
        margin = line[: len(line) - len(line.lstrip())]
        end = "\r" if line.endswith("\r") else ""
        out += [f"{margin}# {visible(text)}{end}" for text in above.get(at, ())]
        out.append(line)
    return "\n".join(out)


def _starts(lines: Sequence[str]) -> dict[int, int]:
    """The first line of the statement of each line, both counted from 0."""
    starts: dict[int, int] = {}
    first: int | None = None
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        if token.type in (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT):
            continue
        first = token.start[0] - 1 if first is None else first
        starts.update(dict.fromkeys(range(token.start[0] - 1, token.end[0]), first))
        if token.type == tokenize.NEWLINE:
            starts.update(dict.fromkeys(range(first, token.start[0]), first))
            first = None
    return starts


def _parsed(code: str) -> str | None:
    """The syntax tree of code, dumped without positions; None: it is no Python."""
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
