"""Listing: the lines of a trace with their chains and problems, for the terminal and the page."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwise.tracing.chains import Chain, chains, holds
from headwise.tracing.function_lines import regions
from headwise.tracing.steps import Comment, Place, Problem, Step, Trace
from headwise.wording import say

__all__ = ["Columns", "File", "Line", "columns_of", "listing", "signs_of", "unplaced"]

# the longest label of a call
LABEL = 24
Key = tuple[Place, ...]


@dataclass(frozen=True)
class Columns:
    """The chains of one line, in one column for each call of its function.

    labels: the calls, where they differ; (): one column for all calls. group: the same for the lines of one function,
    which have columns of the same width. is_first: of its group.
    """

    chains: tuple[tuple[Chain, ...], ...]
    labels: tuple[str, ...] = ()
    group: int = 0
    is_first: bool = False


@dataclass(frozen=True)
class Line:
    """A line of the source with its chains. signs: warnings about its shapes. is_failing: the code fails on it."""

    number: int
    text: str
    columns: tuple[Columns, ...] = ()
    comments: tuple[Comment, ...] = ()
    problems: tuple[Problem, ...] = ()
    signs: tuple[str, ...] = ()
    is_failing: bool = False


@dataclass(frozen=True)
class File:
    """The shown lines of one file, in runs without gaps."""

    name: str
    runs: tuple[tuple[Line, ...], ...]


def listing(trace: Trace) -> tuple[File, ...]:
    """The shown lines of a trace, file by file in the order in which their code ran."""
    by_file: dict[str, dict[int, list[Columns]]] = {}
    for file, number, columns in columns_of(trace):
        by_file.setdefault(file, {}).setdefault(number, []).append(columns)
    signs: dict[tuple[str, int], dict[str, None]] = {}
    for step in _shown_steps(trace):
        signs.setdefault((step.place.file, _last(step.place)), {}).update(dict.fromkeys(signs_of(trace, step)))
    wrong = [comment for comment in trace.comments if comment.true]
    placed = [problem.place for problem in trace.problems if problem.place is not None]
    mentioned = [*by_file, *(each.file for each in placed), *(each.place.file for each in wrong)]
    names = dict.fromkeys(name for name in mentioned if name in trace.sources)
    files = []
    for name in names:
        by_line = by_file.get(name, {})
        # code that was typed at a prompt has no text: its lines are shown by their numbers
        lines = trace.sources[name].split("\n") if trace.sources[name] else [""] * max(by_line, default=0)
        comments = [each for each in wrong if each.place.file == name]
        problems = [problem for problem in trace.problems if problem.place is not None and problem.place.file == name]
        marked = {
            *by_line, *(comment.place.line for comment in comments),
            *(number for problem in problems if problem.place is not None
              for number in (problem.place.line, _last(problem.place))),
        }  # fmt: skip
        runs = [
            tuple(
                _line(number, lines[number - 1], by_line, comments, problems, tuple(signs.get((name, number), ())))
                for number in range(first, last + 1)
            )
            for first, last in regions(lines, marked)
        ]
        files.append(File(name, tuple(runs)))
    return tuple(files)


def unplaced(trace: Trace) -> tuple[Problem, ...]:
    """The problems without a line in the sources, which are shown at the end."""
    sizes = {name: text.count("\n") + 1 for name, text in trace.sources.items()}
    return tuple(
        problem
        for problem in trace.problems
        if problem.place is None or not 1 <= _last(problem.place) <= sizes.get(problem.place.file, 0)
    )


def _line(
    number: int,
    text: str,
    by_line: dict[int, list[Columns]],
    comments: Sequence[Comment],
    problems: Sequence[Problem],
    signs: tuple[str, ...],
) -> Line:
    return Line(
        number,
        text,
        tuple(by_line.get(number, ())),
        tuple(comment for comment in comments if comment.place.line == number),
        tuple(problem for problem in problems if problem.place is not None and _last(problem.place) == number),
        signs,
        any(problem.place is not None and problem.place.line == number for problem in problems),
    )


def _last(place: Place) -> int:
    return place.end_line or place.line


def columns_of(trace: Trace) -> list[tuple[str, int, Columns]]:
    """The chains of each line, as (file, line number, columns)."""
    by_call: dict[Key, list[Step]] = {}
    for step in _shown_steps(trace):
        by_call.setdefault(_calls(step), []).append(step)
    lines: dict[tuple[str, int], dict[Key, list[Chain]]] = {}
    for key, call_steps in by_call.items():
        for chain in chains(call_steps):
            lines.setdefault((chain.place.file, _last(chain.place)), {}).setdefault(key, []).append(chain)
    together: dict[tuple[Key, ...], list[tuple[str, int]]] = {}
    for at, calls in lines.items():
        together.setdefault(tuple(calls), []).append(at)
    out = []
    for group, (keys, places) in enumerate(together.items()):
        texts = {key: tuple(tuple(each.text() for each in lines[at][key]) for at in places) for key in keys}
        alike: dict[tuple[tuple[str, ...], ...], list[Key]] = {}
        for key in keys:
            alike.setdefault(texts[key], []).append(key)
        labels = tuple(_label(alike_keys, keys) for alike_keys in alike.values()) if len(alike) > 1 else ()
        is_first = True
        for at in places:
            columns = tuple(tuple(lines[at][alike_keys[0]]) for alike_keys in alike.values())
            if len({tuple(each.text() for each in column) for column in columns}) == 1:
                out.append((*at, Columns(columns[:1], (), group)))
            else:
                out.append((*at, Columns(columns, labels, group, is_first)))
                is_first = False
    return out


def _shown_steps(trace: Trace) -> Iterator[Step]:
    """The steps, each at the innermost place with a readable source."""
    for step in trace.steps:
        inward = (*step.chain, step.place)
        readable = [at for at, place in enumerate(inward) if place.file in trace.sources]
        if readable:
            yield (
                step
                if readable[-1] == len(step.chain)
                else replace(step, place=inward[readable[-1]], chain=inward[: readable[-1]])
            )


def _calls(step: Step) -> Key:
    """The calls that lead to a step, without the frames of comprehensions around it."""
    inward = (*step.chain, step.place)
    return tuple(outer for outer, inner in pairwise(inward) if not holds(outer, inner))


def _label(column_keys: Sequence[Key], keys: Sequence[Key]) -> str:
    """The label of a column: the lines of its calls with their first arguments."""
    deepest = max(map(len, keys))
    for depth in range(1, deepest + 1):
        sites = [key[-depth] if len(key) >= depth else None for key in keys]
        if len(set(sites)) > 1:
            break
    else:
        depth = 1
    call_sites = [key[-depth] for key in column_keys if len(key) >= depth]
    return ", ".join(dict.fromkeys(f"{site.line} {_first_argument(site.source)}".strip() for site in call_sites))


def _first_argument(source: str) -> str:
    """The first argument of a call in one word: "keys" in "self.split(self.W_k(keys), self.heads)"."""
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(call, ast.Call) or not (call.args or call.keywords):
        return ""
    first = call.args[0] if call.args else call.keywords[0].value
    called = {id(part) for node in ast.walk(first) if isinstance(node, ast.Call) for part in ast.walk(node.func)}
    names = [node.id for node in ast.walk(first) if isinstance(node, ast.Name) and id(node) not in called]
    plain = [name for name in names if name != "self"]
    text = plain[0] if plain else ast.unparse(first)
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"


def signs_of(trace: Trace, step: Step) -> tuple[str, ...]:
    """The warnings about a step; (): its shapes show no mixing."""
    batch = next((symbol.name for symbol in trace.symbols if symbol.meaning == "batch"), None)
    if step.op != "MultiheadAttention" or batch is None:
        return ()
    return tuple(
        say("trace.among_batch", lang=trace.lang, shape=str(shape), batch=batch)
        for shape in step.outputs
        if [axis.text for axis in shape.axes[-2:]] == [batch, batch]
    )
