"""Spans: the place of an operation in user code, to the column."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

import torch
from torch.nn.modules import lazy

from headwise.source.libraries import is_library
from headwise.source.syntax import characters

__all__ = ["Span", "UserCode", "sign_at", "span_of"]

UNARY = {"UNARY_INVERT": "~", "UNARY_NEGATIVE": "-"}
LIBRARIES = tuple(f"{folder.resolve()}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
HEADWISE = f"{Path(__file__).resolve().parents[1]}/"
LAZY = str(lazy.__file__)
# these observe a run and are no steps of it
ONLOOKERS = tuple(
    f"{HEADWISE}{part}/"
    for part in (
        *("wording", "watching", "source", "targets", "recording", "calls", "dataflow", "tracing", "diagnosis"),
    )
)


@dataclass(frozen=True)
class Span:
    """A piece of source: lines from 1, columns from 0 in characters, the end exclusive; None: unknown."""

    file: str
    function: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    @property
    def source(self) -> str:
        """The text of the span; the whole line where columns are unknown; "" without source."""
        lines = linecache.getlines(self.file)[self.line - 1 : self.end_line or self.line]
        if not lines:
            return ""
        if self.column is None or self.end_column is None:
            return lines[0].strip()
        if len(lines) == 1:
            return lines[0][self.column : self.end_column]
        return "".join([lines[0][self.column :], *lines[1:-1], lines[-1][: self.end_column]])


class UserCode:
    """User code: all code that is in no library, and the named files."""

    def __init__(self, files: Collection[str] = ()) -> None:
        self._files = frozenset(files)
        self._is_user: dict[str, bool] = {}

    def __contains__(self, code: CodeType) -> bool:
        name = code.co_filename
        if name not in self._is_user:
            self._is_user[name] = name in self._files or not _is_library(name)
        return self._is_user[name]

    def frames(self, frame: FrameType | None, stop: FrameType | None = None) -> Iterator[FrameType]:
        """The frames of user code from the innermost outward, up to but not with `stop`."""
        while frame is not None and frame is not stop:
            if frame.f_code in self:
                yield frame
            frame = frame.f_back

    def supplied(self, frame: FrameType | None, stop: FrameType) -> FrameType | None:
        """The outermost frame of headwise between a frame and the user code that called it; None: there is none.

        Where a file of headwise is itself user code, the other files of its folder are no steps.
        """
        outermost, folder = None, stop.f_code.co_filename.rpartition("/")[0]
        while frame is not None and frame is not stop:
            name = frame.f_code.co_filename
            is_neighbour = name.rpartition("/")[0] == folder
            if name.startswith(HEADWISE) and not name.startswith(ONLOOKERS) and not is_neighbour:
                outermost = frame
            frame = frame.f_back
        return outermost

    def is_making(self, frame: FrameType | None, stop: FrameType) -> bool:
        """Whether torch is initialising a lazy module between a frame and the user code that called it."""
        while frame is not None and frame is not stop:
            if frame.f_code.co_filename == LAZY:
                return True
            frame = frame.f_back
        return False


def sign_at(frame: FrameType) -> str:
    """The operator that a frame is running, such as "@" or "+="; "": none."""
    return _signs(frame.f_code).get(frame.f_lasti, "")


@lru_cache(maxsize=512)
def _signs(code: CodeType) -> dict[int, str]:
    signs = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("BINARY_OP", "COMPARE_OP"):
            # from Python 3.13 on a comparison in a condition reads "bool(>)"
            signs[instruction.offset] = instruction.argrepr.removeprefix("bool(").removesuffix(")")
        elif instruction.opname in UNARY:
            signs[instruction.offset] = UNARY[instruction.opname]
    return signs


def span_of(frame: FrameType) -> Span:
    """The place of the expression that a frame is running."""
    code = frame.f_code
    return _span(code, code.co_filename, frame.f_lasti, frame.f_lineno)


@lru_cache(maxsize=4096)
def _span(code: CodeType, file: str, instruction: int, fallback: int) -> Span:
    # code objects of two files with the same text are equal, hence `file`
    for at, positions in enumerate(code.co_positions()):
        if at == instruction // 2:
            line, end_line, column, end_column = positions
            break
    else:
        line = end_line = column = end_column = None
    if line is None or column is None or end_column is None:
        # python -X no_debug_ranges, and code objects without positions
        return Span(file, code.co_qualname, line or fallback)
    columns = (characters(file, line, column), characters(file, end_line or line, end_column))
    return Span(file, code.co_qualname, line, columns[0], end_line or line, columns[1])


@lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    if file.startswith("<"):
        # a cell, a prompt or exec is user code; frozen modules are Python's
        return file.startswith(("<frozen", "<__array_function__"))
    path = Path(file)
    # torch, einops and dataclasses compile code under names of their own
    full = str(path.resolve() if path.is_absolute() else path)
    return full.startswith(LIBRARIES) or is_library(full)
