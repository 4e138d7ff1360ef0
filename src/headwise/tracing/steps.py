"""Trace: what anyone's attention code does, step by step, every axis by its name; plain data that JSON carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.dataflow import Shape

__all__ = ["MOST_TURNS", "Comment", "Place", "Problem", "Step", "Symbol", "Trace"]

# of a loop that turns more often, a page of steps shows the beginning
MOST_TURNS = 12


@dataclass(frozen=True)
class Place:
    """A piece of a file: lines from 1, columns from 0 in characters, the end exclusive; None: not known.

    file: as the person would say it, a key of `Trace.sources`; a cell of a notebook is "NAME.ipynb[3]".
    """

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Step:
    """One operation as it was written.

    op: as a person would say it ("linear", "view", "@", "/"). inputs, outputs: its tensors, in order. chain: the calls
    of the person's own functions that led there, outermost first. module: the sub-module that ran it, "": the target
    itself. times: how often a loop ran it with the same names, in symbols ("H"); "" for once. writes: it changed an
    input in place. kernels: what torch really ran, one line each, where that was asked for.
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
    "key_heads", "value_width", "groups", "parameter"); said: what the person's own code calls it, "": nothing does;
    size: in the run that is shown; equals: the product that it is bound to be ("H*d"), "": it is free.
    """

    name: str
    meaning: str
    size: int
    said: str = ""
    equals: str = ""


@dataclass(frozen=True)
class Comment:
    """A chain of shapes that the person wrote. said: as written; true: what it should say, "": it is right."""

    place: Place
    said: str
    true: str = ""


@dataclass(frozen=True)
class Problem:
    """Where and why the code fails. reason: in symbols, as `wording` says it; error: Python's own words.

    setting: "cross": only where keys and queries differ in length; "guessed": in the call that came furthest, of those
    that were tried where the person gave none; "": always.
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
    gave it. init, call: how it was built and called, as `--init` and `--call` take them. lang: what it is said in.
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
        wrong = sum(bool(each.true) for each in self.comments)
        counts = [(len(self.steps), "step"), (len(self.problems), "problem"), (wrong, "wrong comment")]
        said = [f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count or name == "step"]
        return f"<Trace {self.target}: {', '.join(said)}>"

    def to_dict(self) -> dict[str, Any]:
        """All of it as data that JSON carries: what `headwise trace --json` prints."""
        from headwise.tracing.serialization import to_plain

        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """The trace that `to_dict` made this of."""
        from headwise.tracing.serialization import from_plain

        return from_plain(data)

    def renamed(self, names: Mapping[str, str]) -> Trace:
        """The same trace with other names for its symbols: {"D": "E", "L": "Lq"}.

        An InputError says which name is none of the trace's, is no word, or would stand for two symbols.
        """
        from headwise.tracing.symbol_names import renamed

        return renamed(self, names)

    def __str__(self) -> str:
        from headwise.tracing.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from headwise.tracing.html import block

        return block(self)
