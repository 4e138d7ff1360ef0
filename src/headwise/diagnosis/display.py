"""Display: a diagnosis as a person reads it: faults first and in full, then a line for each warning and each note."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.diagnosis.coverage import is_tried
from headwise.wording import LANGUAGES, say
from headwise.wording.screen import columns, fit, visible

if TYPE_CHECKING:
    from headwise.diagnosis.result import Diagnosis, Finding

__all__ = ["as_html", "report"]

# columns of a line of words
WIDTH = 100
# columns that source has at least, however narrow a terminal is
NARROWEST = 20
# lines that are shown of an operation that goes over several
MOST = 5
# a line of Chinese, which has no spaces, may end anywhere but before some signs and after others
ENDS, OPENS = frozenset("，。；：、）！？…"), frozenset("（「“")
# between things that were tried, between those that go together, and about what is said of them
SIGNS = {"en": ("; ", ", ", " (", ")"), "zh": ("；", "、", "（", "）")}
TRIED = "doctor.tried."
BARS = {"fault": "#d64545", "warning": "#c77d0a", "note": "#5b8def", "": "transparent"}


def report(diagnosis: Diagnosis, *, widest: int | None = None) -> str:
    """The diagnosis in its own language: what was found, and what was examined. No line acts on a terminal.

    widest: columns after which a line of source is cut, with a sign; None: none is. Source is never broken.
    """
    return "\n\n".join(text for _, text in _blocks(diagnosis, widest))


def as_html(diagnosis: Diagnosis) -> str:
    """The report for a notebook: in the colours of the page, be it light or dark, with a bar beside what was found."""
    style = "margin:0 0 .7em;padding:0 0 0 .8em;overflow-x:auto;white-space:pre;line-height:1.35;"
    style += "color:inherit;background:transparent;border:0;border-left:3px solid "
    parts = [f'<pre style="{style}{BARS[kind]}">{html.escape(text)}</pre>' for kind, text in _blocks(diagnosis, None)]
    return f"<div>{''.join(parts)}</div>"


def _blocks(diagnosis: Diagnosis, widest: int | None) -> Iterator[tuple[str, str]]:
    """The parts of a report, each with its severity; "": it has none."""
    lang = diagnosis.lang
    verdict = say(f"doctor.verdict.{diagnosis.verdict.replace(' ', '_')}", lang=lang, target=diagnosis.target)
    yield "", "\n".join([_clean(verdict), *(_wrapped(diagnosis.reason, "") if diagnosis.reason else [])])
    for group in _groups([finding for finding in diagnosis.findings if finding.severity == "fault"], lang):
        yield "fault", "\n".join(_fault(group, lang, widest))
    for severity in ("warning", "note"):
        lines = [
            line for finding in diagnosis.findings if finding.severity == severity for line in _brief(finding, lang)
        ]
        if lines:
            yield severity, "\n".join(lines)
    lines = _examined(diagnosis.examined, lang)
    if lines:
        yield "", "\n".join(lines)


def _groups(findings: Sequence[Finding], lang: str) -> list[list[Finding]]:
    """The findings by what is said of them: what is wrong on several lines in one way is told once."""
    out: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.kind, finding.file, finding.proved, finding.what, finding.why, _advice(finding, lang))
        out.setdefault(key, []).append(finding)
    return list(out.values())


def _fault(group: Sequence[Finding], lang: str, widest: int | None) -> Iterator[str]:
    """The lines that tell a fault."""
    first = group[0]
    places = ", ".join(dict.fromkeys(str(each.line) for each in group if each.line is not None))
    where = f"{first.file}:{places}" if places else first.file or first.code
    state = say("doctor.proved" if first.proved else "doctor.suspected", lang=lang)
    yield _clean(say("doctor.head.fault", lang=lang, where=where, kind=first.kind, state=state))
    shown = list({(each.line, each.source): each for each in reversed(group)}.values())[::-1]
    is_one = len(shown) == 1
    wide = max(len(str(each.line)) for each in shown)
    for finding in shown:
        lead = "    " if is_one else f"    {finding.line or '':>{wide}}  "
        room = None if widest is None else max(NARROWEST, widest - len(lead))
        yield from (f"{lead if at == 0 else ' ' * len(lead)}{line}" for at, line in enumerate(_source(finding, room)))
    yield from _wrapped(first.what, "    ")
    yield from _labelled("why", first.why, lang)
    yield from _labelled("fix", _advice(first, lang), lang)
    for finding in group:
        # of what is mended by one change of several places all lines are said once
        if finding.patch and all(finding.patch != previous.patch for previous in group[: group.index(finding)]):
            yield from (_cut(f"        {_clean(line)}", widest) for line in finding.patch.split("\n"))
    measured = {
        finding.evidence: finding.line
        for finding in reversed(shown)
        if finding.evidence and finding.evidence not in finding.what
    }
    for text, line in reversed(measured.items()):
        yield from _labelled("measured", text if len(measured) == 1 else f"{line}: {text}", lang)


def _brief(finding: Finding, lang: str) -> list[str]:
    """A warning, which says what mends it, or a note: where, and what."""
    where = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    if finding.severity == "note":
        text = say("doctor.head.note", lang=lang, where=where, what=finding.what)
    else:
        text = say("doctor.head.warning", lang=lang, where=where, what=finding.what, fix=_advice(finding, lang))
    return _wrapped(text, "", "    ")


def _advice(finding: Finding, lang: str) -> str:
    """What mends a finding, without the lines of its patch."""
    for key in ("doctor.patch", "doctor.patch_gone") if finding.patch else ():
        written = say(key, lang=lang, fix="", patch=finding.patch)
        if finding.fix.endswith(written):
            return finding.fix.removesuffix(written).rstrip()
    return finding.fix


def _labelled(name: str, text: str, lang: str) -> Iterator[str]:
    if text:
        yield from _wrapped(say(f"doctor.label.{name}", lang=lang, text=text), "    ")


def _source(finding: Finding, room: int | None) -> Iterator[str]:
    """The lines of an operation, moved to the left, each with signs under what is the operation's."""
    first = finding.source.rstrip()
    if not first:
        return
    lead = len(first) - len(first.lstrip())
    if finding.column is None:
        yield from _marked(first, lead, lead, lead, room)
        return
    more = finding.code.split("\n")[1:] if (finding.end_line or finding.line) != finding.line else []
    stop = finding.end_column if not more and finding.end_column else len(first)
    yield from _marked(first, lead, finding.column, stop, room)
    for text in more[: MOST - 1]:
        start = len(text) - len(text.lstrip())
        yield from _marked(text.rstrip(), min(lead, start), start, len(text.rstrip()), room)
    if len(more) >= MOST:
        yield "…"


def _marked(text: str, lead: int, start: int, stop: int, room: int | None) -> Iterator[str]:
    """A line and the signs under it, as wide as what stands above them; in little room, what is about the signs."""
    before, under, after = (_clean(each) for each in (text[lead:start], text[start:stop], text[stop:]))
    if room is not None and columns(before + under + after) > room and columns(before) > room // 3:
        while columns(before) > room // 3:
            before = before[1:]
        before = f"…{before}"
    shown = before + under + after
    wide = columns(under) if room is None else max(1, min(columns(under), room - columns(before)))
    yield _cut(shown, room)
    if under.strip():
        yield " " * columns(before) + "^" * wide


def _cut(line: str, widest: int | None) -> str:
    return line if widest is None or columns(line) <= widest else fit(line, widest).rstrip()


def _examined(examined: Mapping[str, Any], lang: str) -> list[str]:
    """What was tried and what was not, in words; what was not for one reason is told together."""
    order = [key.rpartition(".")[2] for key in LANGUAGES[lang] if key.startswith(TRIED)]
    places = {name: order.index(key) if (key := _key(name)) in order else len(order) for name in examined}
    tried: list[str] = []
    missed: dict[str, list[str]] = {}
    for name, value in sorted(examined.items(), key=lambda item: places[item[0]]):
        words = say(TRIED + _key(name), lang=lang) if places[name] < len(order) else name
        if is_tried(value):
            tried.append(_aside(words, "" if value is True else _meaning(str(value), lang), lang))
        else:
            missed.setdefault(str(value).partition("no: ")[2], []).append(words)
    stop, comma, _, _ = SIGNS[lang]
    unseen = [_aside(comma.join(names), reason, lang) for reason, names in missed.items()]
    out = _wrapped(say("doctor.examined", lang=lang, tried=stop.join(tried)), "", "    ") if tried else []
    return [
        *out,
        *(_wrapped(say("doctor.examined_not", lang=lang, tried=stop.join(unseen)), "", "    ") if unseen else ()),
    ]


def _key(name: str) -> str:
    return name.replace(" ", "_")


def _meaning(text: str, lang: str) -> str:
    """How a thing was tried: in words that are known, and of a mask, which argument it is and what that means."""
    how = f"doctor.how.{_key(text)}"
    if how in LANGUAGES[lang]:
        return say(how, lang=lang)
    argument, _, means = text.partition(": ")
    key = f"doctor.means.{means}"
    return say(key, lang=lang, argument=argument) if key in LANGUAGES[lang] else text


def _aside(words: str, aside: str, lang: str) -> str:
    _, _, before, after = SIGNS[lang]
    return f"{words}{before}{aside}{after}" if aside else words


def _wrapped(text: str, lead: str, later: str = "") -> list[str]:
    """Lines of words, none wider than WIDTH, each after a lead; later: what stands before all but the first besides."""
    lines, line = [], lead
    for word in _words(_clean(" ".join(text.splitlines()))):
        if line.strip() and columns(line + word.rstrip()) > WIDTH:
            lines.append(line.rstrip())
            line = lead + later
        line += word
    return [*lines, line.rstrip()]


def _words(text: str) -> Iterator[str]:
    """The pieces of a text between which a line may end: after spaces, and between the signs of Chinese."""
    piece = ""
    for sign, after in zip(text, [*text[1:], ""], strict=True):
        piece += sign
        is_wide = columns(sign) == 2 or columns(after) == 2
        if sign == " " or (is_wide and after != " " and after not in ENDS and sign not in OPENS):
            yield piece
            piece = ""
    if piece:
        yield piece


def _clean(text: str) -> str:
    """A text in one line, with nothing in it that a terminal obeys; spaces stay what they are."""
    return visible(f"|{text.expandtabs(1)}")[1:]
