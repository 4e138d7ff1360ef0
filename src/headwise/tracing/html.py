"""A trace as HTML: one self-contained page, or a block for a notebook."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import Template

from headwise.dataflow import Shape
from headwise.tracing.chains import ARROW, Chain
from headwise.tracing.function_lines import indent_of
from headwise.tracing.legend import called, condition, legend, notices
from headwise.tracing.listing import Columns, File, Line, listing, unplaced
from headwise.tracing.steps import Problem, Trace
from headwise.wording import LANGUAGES, say
from headwise.wording.screen import visible

__all__ = ["block", "page"]

LANGUAGE_NAMES = {"en": "English", "zh": "中文"}


def page(traces: Sequence[Trace]) -> str:
    """A page of one trace or several, in every language, without scripts and external resources.

    The reason of a problem is a text of the trace, in its language.
    """
    style = _asset("trace", "css") + _asset("page", "css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Template(_asset("page", "html")).substitute(
        lang=traces[0].lang,
        digest=digest,
        title=_text(", ".join(trace.target for trace in traces)),
        style=style,
        switches="".join(_switches(traces[0].lang)),
        body="\n".join("".join(_block(replace(trace, lang=lang))) for lang in LANGUAGES for trace in traces),
    )


def block(trace: Trace) -> str:
    """A trace for a notebook, with style rules for this block alone."""
    return f"<style>{_asset('trace', 'css')}</style>{''.join(_block(trace))}"


def _switches(lang: str) -> Iterator[str]:
    """The language and the colours to choose, by style alone: the page has no script."""
    for language, name in LANGUAGE_NAMES.items():
        checked = " checked" if language == lang else ""
        yield f'<input type="radio" name="language" id="language-{language}"{checked}>'
        yield f'<label for="language-{language}" lang="{language}">{name}</label>\n'
    yield '<input type="checkbox" id="theme"><label for="theme">'
    for language in LANGUAGES:
        for theme in ("dark", "light"):
            yield f'<span class="to-{theme}" lang="{language}">{_text(say(f"page.{theme}", lang=language))}</span>'
    yield "</label>\n"


def _asset(name: str, kind: str) -> str:
    return files("headwise.tracing").joinpath("assets", f"{name}.{kind}").read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(visible(text))


def _block(trace: Trace) -> Iterator[str]:
    yield f'<div class="headwise-trace" lang="{trace.lang}">\n<p class="target">{_text(trace.target)}</p>\n'
    yield f'<p class="legend">{_text(" · ".join(legend(trace)))}</p>\n'
    if text := called(trace):
        yield f'<p class="called">{_text(text)}</p>\n'
    for text in notices(trace):
        yield f"<p>{_text(text)}</p>\n"
    listed = listing(trace)
    for file in listed:
        if len(listed) > 1:
            yield f'<p class="file">{_text(file.name)}</p>\n'
        yield from _file(file, trace.lang)
    for problem in unplaced(trace):
        yield "".join(_problem(problem, trace.lang))
    yield "</div>"


def _file(file: File, lang: str) -> Iterator[str]:
    yield "<table>\n"
    for at, run in enumerate(file.runs):
        if at:
            yield '<tr><td class="number">⋮</td><td></td></tr>\n'
        for line in run:
            yield from _line(line, lang)
    yield "</table>\n"


def _line(line: Line, lang: str) -> Iterator[str]:
    source = _text(line.text.expandtabs(4)) if line.text.strip() else ""
    number = f'<td class="number failing">✗ {line.number}</td>' if line.is_failing else _number(line.number)
    yield f'<tr class="source">{number}<td>{source}</td></tr>\n'
    rows = [
        *(
            _note(f"≠ {say('trace.comment', lang=lang, said=comment.said, true=comment.true)}")
            for comment in line.comments
        ),
        *("".join(_columns(column, lang)) for column in line.columns),
        *(f'<div class="bad">⚠ {_text(sign)}</div>' for sign in line.signs),
        *("".join(_problem(problem, lang)) for problem in line.problems),
    ]
    indent = " " * indent_of(line.text)
    for row in rows:
        yield f'<tr class="said">{_number("")}<td>{indent}<div class="columns">{row}</div></td></tr>\n'


def _number(number: int | str) -> str:
    return f'<td class="number">{number}</td>'


def _note(text: str) -> str:
    return f'<span class="note">{_text(text)}</span>'


def _columns(columns: Columns, lang: str) -> Iterator[str]:
    labels = columns.labels or ("",) * len(columns.chains)
    for label, column in zip(labels, columns.chains, strict=True):
        yield "<div>"
        if label:
            yield f'<div class="quiet">{_text(label)}</div>'
        for chain in column:
            yield from _chain(chain, lang)
        yield "</div>"


def _chain(chain: Chain, lang: str) -> Iterator[str]:
    parts = ["".join(map(_piece, part)) for part in chain.parts]
    times = f' <span class="turn">{_text(chain.times)}</span>' if chain.times else ""
    yield f'<div class="chain">{ARROW.join(parts)}{times}</div>'
    if chain.scrambled:
        text = say("trace.scrambled", lang=lang, axes=", ".join(chain.scrambled))
        yield f'<div class="bad">⚠ {_text(text)}</div>'
    for step in chain.steps:
        for kernel in step.kernels:
            yield f'<div class="quiet">  {_text(say("trace.kernel", lang=lang, op=step.op, kernel=kernel))}</div>'


def _piece(piece: Shape | str) -> str:
    if isinstance(piece, str):
        return f'<span class="work">{_text(piece)}</span>'
    axes = [
        f'<span class="scrambled">{_text(axis.text)}</span>' if axis.scrambled else _text(axis.text)
        for axis in piece.axes
    ]
    return f'<span class="shape">[{", ".join(axes)}]</span>'


def _problem(problem: Problem, lang: str) -> Iterator[str]:
    yield "<div>"
    if problem.setting:
        yield f"<div>{_note(condition(problem, lang))}</div>"
    if problem.reason:
        yield f'<div class="bad">{_text(problem.reason)}</div>'
    for line in problem.error.split("\n"):
        yield f'<div class="error">{_text(line)}</div>'
    yield "</div>"
