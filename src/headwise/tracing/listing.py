"""Listing: a trace laid out line by line, before it is drawn in a terminal or on a page."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwise.tracing.batch_mixing import signs_of
from headwise.tracing.chains import Chain, chains, holds
from headwise.tracing.function_lines import regions
from headwise.tracing.steps import Comment, Place, Problem, Step, Trace

__all__ = ["Columns", "File", "Line", "columns_of", "listing", "unplaced"]

# of a call that no argument names
LABEL = 24

Key = tuple[Place, ...]


@dataclass(frozen=True)
class Columns:
    """What is said of one line: chains, one column for each call of the function it stands in.

    labels: the calls, where the function has several that differ; () where all columns of the line are one. group:
    the lines of one function have the same, and are drawn with columns of the same width. is_first: of its group.
    """

    chains: tuple[tuple[Chain, ...], ...]
    labels: tuple[str, ...] = ()
    group: int = 0
    is_first: bool = False


@dataclass(frozen=True)
class Line:
    """A line of the source with what is said of it. signs: what its shapes show to be wrong. is_failing: the code
    fails on it.
    """

    number: int
    text: str
    columns: tuple[Columns, ...] = ()
    comments: tuple[Comment, ...] = ()
    problems: tuple[Problem, ...] = ()
    signs: tuple[str, ...] = ()
    is_failing: bool = False


@dataclass(frozen=True)
class File:
    """The runs of lines of one file that are shown."""

    name: str
    runs: tuple[tuple[Line, ...], ...]


def listing(trace: Trace) -> tuple[File, ...]:
    """The lines of a trace that are shown, file by file in the order in which their code ran."""
    said: dict[str, dict[int, list[Columns]]] = {}
    for file, number, columns in columns_of(trace):
        said.setdefault(file, {}).setdefault(number, []).append(columns)
    signs: dict[tuple[str, int], dict[str, None]] = {}
    for step in _at_hand(trace):
        signs.setdefault((step.place.file, _last(step.place)), {}).update(dict.fromkeys(signs_of(trace, step)))
    wrong = [each for each in trace.comments if each.true]
    placed = [each.place for each in trace.problems if each.place is not None]
    told = [*said, *(each.file for each in placed), *(each.place.file for each in wrong)]
    names = dict.fromkeys(name for name in told if name in trace.sources)
    files = []
    for name in names:
        lines = trace.sources[name].split("\n")
        own = said.get(name, {})
        comments = [each for each in wrong if each.place.file == name]
        problems = [each for each in trace.problems if each.place is not None and each.place.file == name]
        marked = {
            *own, *(each.place.line for each in comments),
            *(number for each in problems if each.place is not None for number in (each.place.line, _last(each.place))),
        }  # fmt: skip
        runs = [
            tuple(
                _line(number, lines[number - 1], own, comments, problems, tuple(signs.get((name, number), ())))
                for number in range(first, last + 1)
            )
            for first, last in regions(lines, marked)
        ]
        files.append(File(name, tuple(runs)))
    return tuple(files)


def unplaced(trace: Trace) -> tuple[Problem, ...]:
    """The problems that stand on no line of the sources, and so are told at the end."""
    sizes = {name: text.count("\n") + 1 for name, text in trace.sources.items()}
    return tuple(
        each
        for each in trace.problems
        if each.place is None or not 1 <= _last(each.place) <= sizes.get(each.place.file, 0)
    )


def _line(
    number: int,
    text: str,
    own: dict[int, list[Columns]],
    comments: Sequence[Comment],
    problems: Sequence[Problem],
    signs: tuple[str, ...],
) -> Line:
    return Line(
        number,
        text,
        tuple(own.get(number, ())),
        tuple(each for each in comments if each.place.line == number),
        tuple(each for each in problems if each.place is not None and _last(each.place) == number),
        signs,
        any(each.place is not None and each.place.line == number for each in problems),
    )


def _last(place: Place) -> int:
    return place.end_line or place.line


def columns_of(trace: Trace) -> list[tuple[str, int, Columns]]:
    """What is said of each line, by its file and its number."""
    by_call: dict[Key, list[Step]] = {}
    for step in _at_hand(trace):
        by_call.setdefault(_calls(step), []).append(step)
    lines: dict[tuple[str, int], dict[Key, list[Chain]]] = {}
    for key, own in by_call.items():
        for chain in chains(own):
            lines.setdefault((chain.place.file, _last(chain.place)), {}).setdefault(key, []).append(chain)
    together: dict[tuple[Key, ...], list[tuple[str, int]]] = {}
    for at, calls in lines.items():
        together.setdefault(tuple(calls), []).append(at)
    out = []
    for group, (keys, places) in enumerate(together.items()):
        said = {key: tuple(tuple(each.said() for each in lines[at][key]) for at in places) for key in keys}
        alike: dict[tuple[tuple[str, ...], ...], list[Key]] = {}
        for key in keys:
            alike.setdefault(said[key], []).append(key)
        labels = tuple(_label(own, keys) for own in alike.values()) if len(alike) > 1 else ()
        is_first = True
        for at in places:
            found = tuple(tuple(lines[at][own[0]]) for own in alike.values())
            if len({tuple(each.said() for each in column) for column in found}) == 1:
                out.append((*at, Columns(found[:1], (), group)))
            else:
                out.append((*at, Columns(found, labels, group, is_first)))
                is_first = False
    return out


def _at_hand(trace: Trace) -> Iterator[Step]:
    """The steps, each at the innermost place whose source can be shown."""
    for step in trace.steps:
        inward = (*step.chain, step.place)
        known = [at for at, place in enumerate(inward) if place.file in trace.sources]
        if known:
            yield (
                step
                if known[-1] == len(step.chain)
                else replace(step, place=inward[known[-1]], chain=inward[: known[-1]])
            )


def _calls(step: Step) -> Key:
    """The calls that led to a step, without the frames of comprehensions, which stand around it."""
    inward = (*step.chain, step.place)
    return tuple(outer for outer, inner in pairwise(inward) if not holds(outer, inner))


def _label(own: Sequence[Key], keys: Sequence[Key]) -> str:
    """What the calls of a column are called: their lines, and what they were given."""
    deepest = max(map(len, keys))
    for depth in range(1, deepest + 1):
        sites = [key[-depth] if len(key) >= depth else None for key in keys]
        if len(set(sites)) > 1:
            break
    else:
        depth = 1
    found = [key[-depth] for key in own if len(key) >= depth]
    return ", ".join(dict.fromkeys(f"{site.line} {_given(site.source)}".strip() for site in found))


def _given(source: str) -> str:
    """What a call was given first, in a word: "keys" of "self.split(self.W_k(keys), self.heads)"."""
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(call, ast.Call) or not (call.args or call.keywords):
        return ""
    first = call.args[0] if call.args else call.keywords[0].value
    called = {id(part) for each in ast.walk(first) if isinstance(each, ast.Call) for part in ast.walk(each.func)}
    names = [each.id for each in ast.walk(first) if isinstance(each, ast.Name) and id(each) not in called]
    plain = [name for name in names if name != "self"]
    said = plain[0] if plain else ast.unparse(first)
    return said if len(said) <= LABEL else f"{said[: LABEL - 1]}…"
