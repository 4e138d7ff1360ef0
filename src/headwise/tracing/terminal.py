"""A trace as a person reads it in a terminal or a text file: the source, and under each line its shapes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from headwise.tracing.chains import Chain
from headwise.tracing.legend import called, legend, notices
from headwise.tracing.listing import Columns, File, Line, listing
from headwise.tracing.regions import indent_of
from headwise.tracing.trace import Problem, Shape, Trace
from headwise.wording import say
from headwise.wording.screen import columns, visible

__all__ = ["as_text", "show"]

WIDTH = 100
NARROWEST = 24
BETWEEN = "  ┊  "
SHAPE, OPERATION, BAD, TRUE, DIM = "cyan", "bold", "bold red", "green", "dim"


@dataclass(frozen=True)
class _Look:
    """How a trace is drawn. gutter: columns of the line numbers."""

    width: int
    gutter: int
    real: bool
    lang: str

    def room(self, indent: int) -> int:
        """How many columns are left behind the gutter and an indent."""
        return max(NARROWEST, self.width - self.gutter - 3 - indent)


def show(trace: Trace, console: Console, *, real: bool = False) -> None:
    """Print a trace to the width and with the colours that the console has. real: sizes in place of names."""
    for line in _drawn(trace, console.width, real=real):
        console.print(line, soft_wrap=True)


def as_text(trace: Trace, *, width: int = WIDTH, real: bool = False) -> str:
    """A trace as plain text."""
    return "\n".join(line.plain.rstrip() for line in _drawn(trace, width, real=real))


def _drawn(trace: Trace, width: int, *, real: bool) -> Iterator[Text]:
    files = listing(trace)
    numbers = [line.number for file in files for run in file.runs for line in run]
    look = _Look(width, len(str(max(numbers, default=1))) + 2, real, trace.lang)
    yield Text(visible(trace.target), style="bold")
    for text, style in ((legend(trace, real=real), ""), (called(trace), DIM), *((each, "") for each in notices(trace))):
        yield from (Text(each, style=style) for each in _folded_words(visible(text), width) if text)
    for file in files:
        yield Text()
        if len(files) > 1:
            yield Text(visible(file.name), style="bold underline")
        yield from _file(file, look)
    for problem in trace.problems:
        if problem.place is None:
            yield from _problem(problem, "", look)


def _file(file: File, look: _Look) -> Iterator[Text]:
    widths = _widths(file, look)
    for at, run in enumerate(file.runs):
        if at:
            yield Text(f"{'⋮':>{look.gutter}}", style=DIM)
        for line in run:
            yield from _line(line, widths, look)


def _line(line: Line, widths: dict[int, tuple[int, ...]], look: _Look) -> Iterator[Text]:
    source = visible(line.text.expandtabs(4)) if line.text.strip() else ""
    mark = "✗" if line.is_failing else " "
    for at, piece in enumerate(_cut(source, look.room(0))):
        number = f"{line.number:>{look.gutter - 1}}" if at == 0 else " " * (look.gutter - 1)
        yield Text.assemble((mark if at == 0 else " ", BAD), (number, DIM), (" │ ", DIM), piece)
    indent = " " * min(indent_of(line.text), look.width // 4)
    for comment in line.comments:
        said = say("trace.comment", lang=look.lang, said=comment.said, true=comment.true)
        yield from _under(
            [Text(each, style="yellow") for each in _folded_words(visible(f"≠ {said}"), look.room(len(indent)))],
            indent,
            look,
        )
    for each in line.columns:
        yield from _columns(each, widths.get(each.group, ()), indent, look)
    for problem in line.problems:
        yield from _problem(problem, indent, look)


def _columns(own: Columns, widths: tuple[int, ...], indent: str, look: _Look) -> Iterator[Text]:
    if not own.labels:
        for chain in own.chains[0]:
            yield from _chain(chain, indent, look)
    elif sum(widths) + len(BETWEEN) * (len(widths) - 1) <= look.room(len(indent)):
        if own.is_first:
            yield from _beside([[Text(label, style=DIM)] for label in own.labels], widths, indent, look)
        cells = [
            [line for chain in column for line in _chain_lines(chain, width, look)]
            for column, width in zip(own.chains, widths, strict=True)
        ]
        yield from _beside(cells, widths, indent, look)
    else:
        for label, column in zip(own.labels, own.chains, strict=True):
            yield from _under([Text(f"{visible(label)}:", style=DIM)], indent, look)
            for chain in column:
                yield from _chain(chain, f"{indent}  ", look)
    for chain in {id(each): each for column in own.chains for each in column}.values():
        if chain.scrambled:
            said = say("trace.scrambled", lang=look.lang, axes=", ".join(chain.scrambled))
            yield from _under(
                [Text(each, style=BAD) for each in _folded_words(f"⚠ {said}", look.room(len(indent)))], indent, look
            )


def _chain(chain: Chain, indent: str, look: _Look) -> Iterator[Text]:
    yield from _under(_chain_lines(chain, look.room(len(indent)), look), indent, look)
    for step in chain.steps:
        for kernel in step.kernels:
            said = visible(say("trace.kernel", lang=look.lang, op=step.op, kernel=kernel))
            yield from _under(
                [Text(each, style=DIM) for each in _folded_words(said, look.room(len(indent) + 2))], f"{indent}  ", look
            )


def _chain_lines(chain: Chain, width: int, look: _Look) -> list[Text]:
    """A chain, broken before arrows where it is wider than there is room."""
    pieces = [Text.assemble(*_styled(part, look)) for part in chain.parts]
    pieces = [piece if at == 0 else Text.assemble(("→ ", DIM), piece) for at, piece in enumerate(pieces)]
    if chain.times:
        pieces.append(Text(chain.times, style="magenta"))
    out = [pieces[0]]
    for piece in pieces[1:]:
        if columns(out[-1].plain) + 1 + columns(piece.plain) <= width:
            out[-1] = Text.assemble(out[-1], " ", piece)
        else:
            out.append(Text.assemble("  ", piece))
    return out


def _styled(part: Sequence[Shape | str], look: _Look) -> Iterator[tuple[str, str]]:
    for each in part:
        if isinstance(each, str):
            yield visible(each), OPERATION
            continue
        yield "[", SHAPE
        for at, axis in enumerate(each.axes):
            yield (", " if at else ""), SHAPE
            yield visible(axis.said(real=look.real)), BAD if axis.scrambled else SHAPE
        yield "]", SHAPE


def _widths(file: File, look: _Look) -> dict[int, tuple[int, ...]]:
    """How wide each column of each group has to be, so that no chain in it is broken."""
    out: dict[int, tuple[int, ...]] = {}
    for own in (each for run in file.runs for line in run for each in line.columns if each.labels):
        wide = [
            max(
                [
                    columns(label),
                    *(columns(line.plain) for chain in column for line in _chain_lines(chain, 10**6, look)),
                ]
            )
            for label, column in zip(own.labels, own.chains, strict=True)
        ]
        out[own.group] = tuple(map(max, zip(wide, out.get(own.group, wide), strict=True)))
    return out


def _beside(cells: Sequence[list[Text]], widths: Sequence[int], indent: str, look: _Look) -> Iterator[Text]:
    """Cells side by side, each filled up to the width of its column."""
    for at in range(max(map(len, cells))):
        row = Text()
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            text = cell[at] if at < len(cell) else Text()
            row = Text.assemble(row, (BETWEEN if place else "", DIM), text, " " * (width - columns(text.plain)))
        yield from _under([row], indent, look)


def _problem(problem: Problem, indent: str, look: _Look) -> Iterator[Text]:
    room = look.room(len(indent))
    if problem.setting == "cross":
        yield from _under(
            [Text(each, style="yellow") for each in _folded_words(say("trace.cross_only", lang=look.lang), room)],
            indent,
            look,
        )
    for text in (problem.reason, problem.error):
        if text:
            lines = [each for line in text.split("\n") for each in _folded_words(visible(line), room)]
            yield from _under(
                [Text(each, style=BAD if text is problem.reason else "red") for each in lines], indent, look
            )


def _under(lines: Iterable[Text], indent: str, look: _Look) -> Iterator[Text]:
    for line in lines:
        yield Text.assemble((f"{'':{look.gutter}} │ ", DIM), indent, line)


def _cut(text: str, width: int) -> list[str]:
    """A line of source in pieces of at most so many columns; nothing of it is left out."""
    out, here = [""], 0
    for character in text:
        wide = columns(character)
        if here + wide > width:
            out.append("")
            here = 0
        out[-1] += character
        here += wide
    return out


def _folded_words(text: str, width: int) -> list[str]:
    """A sentence in lines of at most so many columns, broken at spaces where there are any."""
    lines = [""]
    for word in text.split(" "):
        wanted = f"{lines[-1]} {word}" if lines[-1] else word
        if columns(wanted) <= width:
            lines[-1] = wanted
        else:
            pieces = _cut(word, width)
            lines += pieces if lines[-1] else []
            if not lines[0] and len(lines) == 1:
                lines = pieces
    return lines
