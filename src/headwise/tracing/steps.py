"""Trace: the operations of attention code step by step, with named axes, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.dataflow import Shape

__all__ = ["MOST_TURNS", "Comment", "Place", "Problem", "Step", "Symbol", "Trace"]

# of longer loops a page of steps shows the first turns
MOST_TURNS = 12


@dataclass(frozen=True)
class Place:
    """A piece of a file: lines from 1, columns from 0 in characters, the end exclusive; None: unknown.

    file: its display name, a key of `Trace.sources`; a cell of a notebook is "NAME.ipynb[3]".
    """

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Step:
    """One operation of user code.

    op: the short name ("linear", "view", "@", "/"). inputs, outputs: its tensors, in order. chain: the calls of user
    functions that lead there, outermost first. module: the sub-module that ran it, "": the target itself. times: how
    often a loop ran it with the same names, in symbols ("H"), "": once. writes: it changed an input in place. kernels:
    the operations that torch dispatched, one line each, where they are recorded.
    """

    op: str
    place: Place
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    chain: tuple[Place, ...] = ()
    module: str = ""
    times: str = ""
    writes: bool = False
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Symbol:
    """A name of a size. meaning: a key of the wording ("batch", "queries", "keys", "heads", "head_width", "width",
    "key_heads", "value_width", "groups", "parameter"); said: its name in the code, "": none; size: in the shown run;
    equals: the product that it must be ("H*d"), "": it is free.
    """

    name: str
    meaning: str
    size: int
    said: str = ""
    equals: str = ""


@dataclass(frozen=True)
class Comment:
    """A chain of shapes in a comment. said: as written; true: its correction, "": it is not wrong.

    is_compared: whether it is right or wrong; False: it is not understood, or what it describes is unknown.
    """

    place: Place
    said: str
    true: str = ""
    is_compared: bool = True


@dataclass(frozen=True)
class Problem:
    """A failure of the code. reason: one sentence in symbols; error: the error of Python.

    setting: "cross": only where keys and queries differ in length; "guessed": in the call that came furthest, where the
    user declared none; "": always.
    """

    place: Place | None
    op: str
    reason: str
    error: str
    setting: str = ""


@dataclass(frozen=True)
class Trace:
    """A traced target: `str` is the annotated source, `to_dict` the same as plain data, `repr` a line of counts.

    sources: the text of each file that a place names. symbols: in the order of the legend. steps: in the order in
    which they ran. problems: empty where the code ran. supplied: names that the code leaves undefined and headwise
    defined. init, call: the arguments, as `--init` and `--call` take them. lang: the language of its sentences.
    """

    target: str
    sources: Mapping[str, str]
    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    comments: tuple[Comment, ...] = ()
    problems: tuple[Problem, ...] = ()
    supplied: tuple[str, ...] = ()
    init: Mapping[str, Any] | None = None
    call: Mapping[str, Any] | None = None
    lang: str = "en"

    def __repr__(self) -> str:
        wrong = sum(bool(comment.true) for comment in self.comments)
        counts = [(len(self.steps), "step"), (len(self.problems), "problem"), (wrong, "wrong comment")]
        texts = [f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count or name == "step"]
        return f"<Trace {self.target}: {', '.join(texts)}>"

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON data, as `headwise trace --json` prints it."""
        from headwise.tracing.serialization import to_plain

        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """The trace of the data of `to_dict`."""
        from headwise.tracing.serialization import from_plain

        return from_plain(data)

    def renamed(self, names: Mapping[str, str]) -> Trace:
        """The same trace with other names for its symbols: {"D": "E", "L": "Lq"}.

        Errors: InputError for an unknown symbol, a new name that is no word, or one name for two symbols.
        """
        from headwise.tracing.symbol_names import renamed

        return renamed(self, names)

    def __str__(self) -> str:
        from headwise.tracing.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from headwise.tracing.html import block

        return block(self)
