"""A trace for the terminal or a text file: the source, with the shapes under each line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from headwise.dataflow import Shape
from headwise.tracing.chains import Chain
from headwise.tracing.function_lines import indent_of
from headwise.tracing.legend import called, condition, legend, notices
from headwise.tracing.listing import Columns, File, Line, listing, unplaced
from headwise.tracing.steps import Problem, Trace
from headwise.wording import say
from headwise.wording.screen import columns, fit, visible

__all__ = ["as_text", "show"]

WIDTH, NARROWEST = 100, 14
BETWEEN, UNDER, CUT, UNBROKEN = "  ┊  ", "↳ ", "…", "\u00a0"
SHAPE, OPERATION, BAD, WRONG, NOTE, DIM = "cyan", "bold", "bold red", "red", "yellow", "dim"


@dataclass(frozen=True)
class _Look:
    """The layout of a trace. gutter: columns of the line numbers. is_cut: wide lines of source are cut."""

    width: int
    gutter: int
    real: bool
    lang: str
    is_cut: bool

    def room(self, indent: int) -> int:
        """The number of columns after the gutter and an indent."""
        return max(NARROWEST, self.width - self.gutter - 3 - indent)


def show(trace: Trace, console: Console, *, real: bool = False) -> None:
    """Print a trace in the width and the colours of the console. real: sizes in place of names.

    Lines of source are not wrapped: a terminal cuts them, elsewhere they stay whole.
    """
    for line in _drawn(trace, console.width, real=real, is_cut=console.is_terminal):
        console.print(line, soft_wrap=True)


def as_text(trace: Trace, *, width: int = WIDTH, real: bool = False) -> str:
    """A trace as plain text, with whole lines of source and all else wrapped to the width."""
    title, *lines = (line.plain for line in _drawn(trace, width, real=real, is_cut=False))
    return "\n".join([title, *(line.rstrip(" ") for line in lines)])


def _drawn(trace: Trace, width: int, *, real: bool, is_cut: bool) -> Iterator[Text]:
    files = listing(trace)
    numbers = [line.number for file in files for run in file.runs for line in run]
    look = _Look(width, len(str(max(numbers, default=1))) + 2, real, trace.lang, is_cut)
    yield Text(visible(trace.target), style="bold")
    entries = [visible(line).replace(" ", UNBROKEN) for line in legend(trace, real=real)]
    yield from (Text(each.replace(UNBROKEN, " ")) for each in _folded(" · ".join(entries), width))
    for text, style in ((called(trace), DIM), *((line, "") for line in notices(trace))):
        yield from _sentence(text, style, width)
    for file in files:
        yield Text()
        if len(files) > 1:
            yield Text(visible(file.name), style="bold underline")
        yield from _file(file, look)
    for problem in unplaced(trace):
        yield from _problem(problem, "", look)


def _file(file: File, look: _Look) -> Iterator[Text]:
    widths = _widths(file, look)
    for at, run in enumerate(file.runs):
        if at:
            yield Text(f"{'⋮':>{look.gutter}}", style=DIM)
        for line, source in zip(run, _coloured(run), strict=True):
            yield from _line(line, source, widths, look)


def _line(line: Line, source: Text, widths: dict[int, tuple[int, ...]], look: _Look) -> Iterator[Text]:
    number = f"{line.number:>{look.gutter - 1}}"
    mark = "✗" if line.is_failing else " "
    yield Text.assemble((mark, BAD), (number, DIM), (" │ ", DIM), _shortened(source, look))
    indent = " " * min(indent_of(line.text), look.width // 4)
    room = look.room(len(indent))
    for comment in line.comments:
        text = say("trace.comment", lang=look.lang, said=comment.said, true=comment.true)
        yield from _under(_sentence(f"≠ {text}", NOTE, room), indent, look)
    for per_call in line.columns:
        yield from _columns(per_call, widths.get(per_call.group, ()), indent, look)
    for sign in line.signs:
        yield from _under(_sentence(f"⚠ {sign}", BAD, room), indent, look)
    for problem in line.problems:
        yield from _problem(problem, indent, look)


def _shortened(source: Text, look: _Look) -> Text:
    """A line of source, cut to the width with an ellipsis where lines are cut."""
    room = look.room(0)
    if not look.is_cut or columns(source.plain) <= room:
        return source
    return Text.assemble(source.divide(_cuts(source.plain, room - 1)[:1])[0], (CUT, DIM))


def _coloured(run: Sequence[Line]) -> list[Text]:
    """The source of a run of lines, highlighted where the run is code."""
    lines = [visible(line.text.expandtabs(4)) if line.text.strip() else "" for line in run]
    if not any(line.columns for line in run):
        return [Text(line) for line in lines]
    code = "\n".join(lines)
    highlighted = Syntax(code, "python", theme="ansi_dark").highlight(code)
    highlighted.rstrip()
    out = list(highlighted.split("\n", allow_blank=True))
    out += [Text() for _ in range(len(lines) - len(out))]
    # use the highlighting only if the lexer kept the text
    return out if [each.plain for each in out] == lines else [Text(line) for line in lines]


def _columns(per_call: Columns, widths: tuple[int, ...], indent: str, look: _Look) -> Iterator[Text]:
    if not per_call.labels:
        for chain in per_call.chains[0]:
            yield from _chain(chain, indent, look)
    elif sum(widths) + len(BETWEEN) * (len(widths) - 1) <= look.room(len(indent)):
        if per_call.is_first:
            yield from _beside([[Text(label, style=DIM)] for label in per_call.labels], widths, indent, look)
        cells = [
            [line for chain in column for line in _chain_lines(chain, width, look)]
            for column, width in zip(per_call.chains, widths, strict=True)
        ]
        yield from _beside(cells, widths, indent, look)
    else:
        wide = max(map(columns, per_call.labels)) + 2
        for label, column in zip(per_call.labels, per_call.chains, strict=True):
            text = fit(f"{visible(label)}: ", wide)
            for at, chain in enumerate(column):
                lines = _chain_lines(chain, look.room(len(indent) + wide), look)
                heads = [text if at == 0 else " " * wide, *[" " * wide] * (len(lines) - 1)]
                yield from _under([Text.assemble((a, DIM), b) for a, b in zip(heads, lines, strict=True)], indent, look)
    for chain in (each for column in per_call.chains for each in column):
        if chain.scrambled:
            text = say("trace.scrambled", lang=look.lang, axes=", ".join(chain.scrambled))
            yield from _under(_sentence(f"⚠ {text}", BAD, look.room(len(indent))), indent, look)


def _chain(chain: Chain, indent: str, look: _Look) -> Iterator[Text]:
    first, *rest = _chain_lines(chain, look.room(len(indent) + len(UNDER)), look)
    yield from _under([Text.assemble((UNDER, DIM), first)], indent, look)
    yield from _under(rest, indent + " " * len(UNDER), look)
    indent += " " * len(UNDER)
    for step in chain.steps:
        if len(step.kernels) == 1 and step.kernels[0].startswith(f"{step.op} "):
            continue
        for at, kernel in enumerate(step.kernels):
            text = say("trace.kernel", lang=look.lang, op=step.op, kernel=kernel) if at == 0 else f"  {kernel}"
            yield from _under(_sentence(text, DIM, look.room(len(indent) + 2)), f"{indent}  ", look)


def _chain_lines(chain: Chain, width: int, look: _Look) -> list[Text]:
    """The lines of a chain, wrapped before arrows."""
    pieces = [Text.assemble(*_styled(part, look)) for part in chain.parts]
    pieces = [piece if at == 0 else Text.assemble(("→ ", DIM), piece) for at, piece in enumerate(pieces)]
    if chain.times:
        pieces.append(Text(visible(chain.times), style="magenta"))
    out = [pieces[0]]
    for piece in pieces[1:]:
        if columns(out[-1].plain) + 1 + columns(piece.plain) <= width:
            out[-1] = Text.assemble(out[-1], " ", piece)
        else:
            out.append(Text.assemble("  ", piece))
    return [part for line in out for part in line.divide(_cuts(line.plain, width))]


def _styled(part: Sequence[Shape | str], look: _Look) -> Iterator[tuple[str, str]]:
    for piece in part:
        if isinstance(piece, str):
            yield visible(piece), OPERATION
            continue
        yield "[", SHAPE
        for at, axis in enumerate(piece.axes):
            yield (", " if at else ""), SHAPE
            yield visible(axis.said(real=look.real)), BAD if axis.scrambled else SHAPE
        yield "]", SHAPE


def _widths(file: File, look: _Look) -> dict[int, tuple[int, ...]]:
    """The column widths of each group that fit all chains without wrapping."""
    out: dict[int, tuple[int, ...]] = {}
    for per_call in (column for run in file.runs for line in run for column in line.columns if column.labels):
        wide = [
            max(
                [
                    columns(label),
                    *(columns(line.plain) for chain in column for line in _chain_lines(chain, 10**6, look)),
                ]
            )
            for label, column in zip(per_call.labels, per_call.chains, strict=True)
        ]
        out[per_call.group] = tuple(map(max, zip(wide, out.get(per_call.group, wide), strict=True)))
    return out


def _beside(cells: Sequence[list[Text]], widths: Sequence[int], indent: str, look: _Look) -> Iterator[Text]:
    """Cells side by side, each padded to the width of its column."""
    for at in range(max(map(len, cells))):
        row = Text()
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            text = cell[at] if at < len(cell) else Text()
            row = Text.assemble(row, (BETWEEN if place else "", DIM), text, " " * (width - columns(text.plain)))
        yield from _under([row], indent, look)


def _problem(problem: Problem, indent: str, look: _Look) -> Iterator[Text]:
    room = look.room(len(indent))
    yield from _under(_sentence(condition(problem, look.lang), NOTE, room), indent, look)
    yield from _under(_sentence(problem.reason, BAD, room), indent, look)
    yield from _under(_sentence(problem.error, WRONG, room), indent, look)


def _under(lines: Iterable[Text], indent: str, look: _Look) -> Iterator[Text]:
    for line in lines:
        yield Text.assemble((f"{'':{look.gutter}} │ ", DIM), indent, line)


def _cuts(text: str, width: int) -> list[int]:
    """The positions at which to cut a text into pieces of at most some columns."""
    out, here = [], 0
    for at, character in enumerate(text):
        wide = columns(character)
        if here + wide > width:
            out.append(at)
            here = 0
        here += wide
    return out


def _sentence(text: str, style: str, width: int) -> list[Text]:
    """A text wrapped to a width; [] for an empty text."""
    lines = [each for line in text.split("\n") for each in _folded(visible(line), width)] if text else []
    return [Text(line, style=style) for line in lines]


def _folded(text: str, width: int) -> list[str]:
    """One line wrapped to a width, at spaces where possible."""
    lines: list[str] = []
    for word in text.split(" "):
        wanted = f"{lines[-1]} {word}" if lines else word
        if columns(wanted) <= width and lines:
            lines[-1] = wanted
        else:
            edges = [0, *_cuts(word, width), len(word)]
            lines += [word[a:b] for a, b in pairwise(edges)]
    return lines
