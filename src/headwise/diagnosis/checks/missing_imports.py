"""Missing imports: names that a file reads and nothing binds, for which headwise supplied the likely meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from headwise.dataflow import Manner, run
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, characters, file_tree
from headwise.targets import Loaded, meant

__all__ = ["supplied_suspects"]


def supplied_suspects(loaded: Loaded, exams: Sequence[Examination]) -> list[Suspect]:
    """The names that a target's code misses. exams: its examinations, if there are any.

    In a file that Python runs as it stands they are faults, each where Python first raises; in what is only shown, as
    in a note, they are one note. What imports everything of a module that is not at hand may bind them: nothing.
    """
    if not loaded.supplied or loaded.form == "open":
        return []
    if loaded.form == "fragment":
        places = [place for name in loaded.supplied if (place := _first_read(loaded, name)) is not None]
        place = min(places, key=lambda span: span.line, default=None)
        values = {"name": ", ".join(loaded.supplied)}
        return [Suspect("imports-omitted", place, values=values)]
    out = []
    for name in loaded.supplied:
        span = _span(*loaded.early[name]) if name in loaded.early else _raised_at(loaded, exams, name)
        if span is not None:
            out.append(_fault(name, span))
    return out


def _fault(name: str, span: Span) -> Suspect:
    return Suspect(
        "name-not-imported", span, values={"name": name, "near": meant(name), "how": "supplied"}, proved=True,
        evidence=f"NameError: name '{name}' is not defined",
    )  # fmt: skip


def _raised_at(loaded: Loaded, exams: Sequence[Examination], name: str) -> Span | None:
    """Where Python raises for a name that is not there, in any of the calls that were examined; None: nowhere."""
    if name not in loaded.namespace:
        return None
    supplied = loaded.namespace.pop(name)
    try:
        for exam in exams:
            if exam.checks.budget.is_over:
                exam.checks.failures.setdefault("names", Missed("doctor.missed.no_budget"))
                return None
            # made anew: a run that was kept was made with the name
            manner = Manner(dtype=exam.dtype)
            again = run(
                exam.plan, manner, sizes=exam.sizes, own=exam.user_files, stand_ins=exam.stand_ins, change=exam.change
            )
            failure = again.failure
            if failure is not None and isinstance(failure.error, NameError) and failure.error.name == name:
                return failure.span and _narrowed(failure.span, name)
    finally:
        loaded.namespace[name] = supplied
    return None


def _first_read(loaded: Loaded, name: str) -> Span | None:
    """The first place in a target's own code that reads a name."""
    return next((_span(file, node) for file in loaded.files for node in _reads(file, name)), None)


def _narrowed(span: Span, name: str) -> Span:
    """A span that a name is read in: the name itself."""
    nodes = [node for node in _reads(span.file, name) if span.line <= node.lineno <= (span.end_line or span.line)]
    return _span(span.file, nodes[0]) if nodes else span


def _reads(file: str, name: str) -> Iterator[ast.Name]:
    """Where a file reads a name, from its first line on."""
    names = (
        node
        for node in ast.walk(file_tree(file) or ast.Pass())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    yield from sorted((each for each in names if each.id == name), key=lambda word: (word.lineno, word.col_offset))


def _span(file: str, node: ast.Name) -> Span:
    """The span of a name, whose columns Python counts in bytes."""
    start = characters(file, node.lineno, node.col_offset)
    return Span(file, "", node.lineno, start, node.lineno, start + len(node.id))
