"""Docstrings: what docstrings and comments say of shapes and results, against what a run shows; only ever a note."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from headwise.calls import Plan, call_role, callee
from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.errors import AttentionError
from headwise.recording import seeded, tensors
from headwise.source import Span, function_node
from headwise.tracing import SpokenShape, as_trace, probed, spoken
from headwise.wording import Sentence

__all__ = ["comment_notes", "docstring_notes"]

EMPTY = re.compile(r"(?:shape|size|形状)\s*[:=\-–→>]*\s*[(\[]\s*[)\]]", re.IGNORECASE)
RESULTS = re.compile(r"\s*:?(?:outputs?|returns?|输出|返回)\s*[:：]?\s*$", re.IGNORECASE)
WIDTHS = frozenset({"dim", "dims", "width", "hidden", "hiddens", "channel", "channels", "feature", "features", "embed"})
LENGTHS = frozenset({"len", "length", "lens", "seq", "seqlen", "tokens", "steps", "num", "number", "n", "count"})
# the arguments whose shapes are no matter of choice
# numbers in the inputs of a run whose shapes are compared with comments: more of them take too long to follow
MOST = 100_000
DATA = frozenset({"query", "key", "value", "x", ""})


def docstring_notes(run: Run) -> list[Suspect]:
    """Where the docstring of what was called names a size wrongly, leaves a shape empty, or tells another result."""
    docstring = _docstring(run.plan)
    if docstring is None:
        return []
    span, lines = docstring
    out: list[Suspect] = []
    arguments = {name: shape for name, shape in run.plan.call.items() if isinstance(shape, list)}
    every = [name for name in inspect.signature(callee(run.plan.target)).parameters if name != "self"]
    is_result, depth = False, 0
    for number, line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if RESULTS.match(line):
            is_result, depth = True, indent
            continue
        is_result = is_result and (not stripped or indent > depth)
        name = _named(stripped, every)
        if not name:
            continue
        there = Span(span.file, span.function, number, indent, number, len(line.rstrip()))
        if is_result:
            out += _result(run, name, there)
        elif name in arguments:
            out += _shape(run, name, [str(each) for each in arguments[name]], stripped, lines, there)
    return out


def _docstring(plan: Plan) -> tuple[Span, list[tuple[int, str]]] | None:
    """Where the docstring of what is called stands, and its lines with their numbers."""
    kind = plan.target if isinstance(plan.target, type) else type(plan.target)
    function = kind.forward if issubclass(kind, nn.Module) else callee(plan.target)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    node = function_node(code)
    if node is None or ast.get_docstring(node) is None:
        return None
    first, last = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
    lines = linecache.getlines(code.co_filename)[first - 1 : last]
    return Span(code.co_filename, code.co_qualname, first), [
        (number, line.rstrip("\n")) for number, line in enumerate(lines, start=first)
    ]


def _named(line: str, names: Sequence[str]) -> str:
    """The argument that a line of a docstring is about."""
    match = re.match(r"[-*\s]*(?::param\s+|@param\s+)?`{0,2}\*{0,2}(\w+)", line)
    return match[1] if match is not None and match[1] in names else ""


def _result(run: Run, name: str, span: Span) -> Iterator[Suspect]:
    """A mask or lengths that are listed as the result."""
    argument = run.named.get(name)
    is_given_back = argument is not None and run.output is not None and run.output.shape == argument.shape
    if call_role(name) in ("mask", "lengths") and not is_given_back and run.output is not None:
        wanted = ", ".join(map(str, run.output.shape)) if run.output.ndim else ""
        shape = _symbols_of(run, tuple(run.output.shape)) or wanted
        yield _note("docstring-returns-argument", span, {"name": name, "wanted": f"({shape})"})


def _shape(
    run: Run, name: str, real: list[str], line: str, lines: list[tuple[int, str]], span: Span
) -> Iterator[Suspect]:
    """What a line says of the shape of an argument, where it cannot be."""
    if call_role(name) not in DATA:
        return
    if real and EMPTY.search(line):
        yield _note("docstring-shape-empty", span, {"name": name, "was": "()", "wanted": f"({', '.join(real)})"})
        return
    shapes = [shape for chain in spoken(line) for shape in chain.shapes]
    if len(shapes) != 1 or len(shapes[0].elements) != len(real):
        # several shapes are a choice, and of another rank there may be another call
        return
    yield from _words(run, name, real, shapes[0], lines, span)


def _words(
    run: Run, name: str, real: list[str], spoken_shape: SpokenShape, lines: list[tuple[int, str]], span: Span
) -> Iterator[Suspect]:
    meanings = {symbol.name: symbol.meaning for symbol in run.plan.symbols}
    for word, axis in zip(spoken_shape.elements, real, strict=True):
        meaning = meanings.get(axis, "")
        parts = set(re.split(r"[_\s]+", word.lower()))
        is_length = meaning in ("queries", "keys")
        is_width = meaning in ("width", "head_width", "value_width")
        if not word.isidentifier() or not ((is_length and parts & WIDTHS) or (is_width and parts & LENGTHS)):
            continue
        if parts & WIDTHS and parts & LENGTHS:
            continue
        near = _defined(word, [text for _, text in lines]) or Sentence(
            f"doctor.axis.{'width' if is_length else 'keys'}"
        )
        values: dict[str, object] = {"name": name, "was": word, "near": near, "wanted": f"({', '.join(real)})"}
        yield _note("docstring-size-name", span, {**values, "axis": Sentence(f"doctor.axis.{meaning}")})


def _defined(word: str, lines: Sequence[str]) -> str:
    """What a docstring says that a word stands for; "": it does not."""
    for line in lines:
        match = re.search(rf"`{re.escape(word)}`\s*[:：=]\s*`?([^`.,，。]+)", line)
        if match is not None:
            return match[1].strip()
    return ""


def _symbols_of(run: Run, shape: tuple[int, ...]) -> str:
    """A shape in symbols, where each of its sizes is that of one; "": it is not."""
    names = {size: name for name, size in reversed(list(run.sizes.items()))}
    return ", ".join(names[size] for size in shape) if all(size in names for size in shape) else ""


def comment_notes(plan: Plan, user_files: tuple[str, ...], files: Mapping[str, str]) -> list[Suspect]:
    """The comments beside the code that tell a shape which is surely another."""
    texts = {title: "".join(linecache.getlines(file)) for file, title in files.items()}
    if not any(spoken(line.partition("#")[2]) for text in texts.values() for line in text.split("\n") if "#" in line):
        return []
    try:
        with seeded():
            if sum(tensor.numel() for tensor in tensors(plan.arguments(plan.sizes(0)))) > MOST:
                return []
            probe = probed(plan, user_files=user_files, spoken=files)
    except (AttentionError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        # what cannot be traced is not compared
        return []
    if probe.problems:
        return []
    back = {title: file for file, title in files.items()}
    out = []
    for comment in as_trace(plan, probe, title="", texts=texts).comments:
        if comment.true and comment.place.file in back:
            place = comment.place
            span = Span(back[place.file], "", place.line, place.column, place.end_line, place.end_column)
            out.append(_note("comment-shape-wrong", span, {"was": comment.said, "wanted": comment.true}))
    return out


def _note(kind: str, span: Span, values: dict[str, object]) -> Suspect:
    return Suspect(kind, span, values=values, proved=True)
