"""Every operation is found where it was written, to the column, however it was written."""

import linecache
import math
import sys
import textwrap

import pytest
import torch

from headwise.recording import record

WRITTEN = {
    "a chain": ("y = x.view(2, 6).transpose(0, 1)", ["x.view(2, 6)", "x.view(2, 6).transpose(0, 1)"]),
    "operators": ("y = (x @ x.mT / math.sqrt(3)) * 2", ["x.mT", "x @ x.mT", "x @ x.mT / math.sqrt(3)", None]),
    "a call of many lines": ("y = torch.softmax(\n    x,\n    dim=-1,\n)", ["torch.softmax(\n    x,\n    dim=-1,\n)"]),
    "two statements in a line": ("y = x + 1; y -= 2", ["x + 1", "y -= 2"]),
    "a comprehension": ("y = [t.sum() for t in (x, x)]", ["t.sum()", "t.sum()"]),
    "letters of more bytes": ("größe = x; y = größe.exp()", ["größe.exp()"]),
    "signs": ("y = -x > ~(x != 2)", ["-x", "x != 2", "~(x != 2)", "-x > ~(x != 2)"]),
    "a write": ("y = x.clone()\ny[..., 0] = 1", ["x.clone()", "y[..., 0]"]),
}


def written(text, name):
    """A function of x that runs the text, whose lines can be read as those of a cell can."""
    body = textwrap.indent(text, "    ")
    source = f"def run(x):\n{body}\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space = {"torch": torch, "math": math}
    exec(compile(source, name, "exec"), space)
    return space["run"]


@pytest.mark.parametrize("way", WRITTEN)
def test_the_span_of_an_operation_is_what_was_written(way):
    text, sources = WRITTEN[way]
    run = written(text, f"<cell {way}>")
    done = record(lambda: run(torch.arange(12.0).view(3, 4)))
    found = [
        each.span.source for each in done.operations if each.span.function == "run" or "comp>" in each.span.function
    ]
    wanted = [each if each is None else each.replace("\n", "\n    ") for each in sources]
    assert [got for got, want in zip(found, wanted, strict=True) if want is not None] == [w for w in wanted if w]


def test_lines_and_columns_are_those_of_the_file():
    done = record(lambda: torch.ones(3) + torch.zeros(3))
    here = sys._getframe().f_lineno - 1
    text = linecache.getline(__file__, here)
    spans = [each.span for each in done.operations]
    assert [(s.line, text[s.column : s.end_column]) for s in spans] == [
        (here, "torch.ones(3)"), (here, "torch.zeros(3)"), (here, "torch.ones(3) + torch.zeros(3)"),
    ]  # fmt: skip


def test_helpers_are_the_chain_that_led_to_an_operation():
    def split(t):
        return t.unflatten(-1, (2, 3))

    def both(t):
        return split(t), split(t * 2)

    done = record(lambda: both(torch.ones(4, 6)))
    *_, last = done.operations
    assert last.span.source == "t.unflatten(-1, (2, 3))"
    assert [each.source for each in last.chain[-2:]] == ["both(torch.ones(4, 6))", "split(t * 2)"]


def test_code_without_source_still_has_its_line():
    space = {"torch": torch}
    exec(compile("def run(x):\n    return x.exp()\n", "<nowhere>", "exec"), space)
    (done,) = record(lambda: space["run"](torch.ones(2))).operations[1:]
    assert (done.name, done.span.file, done.span.line, done.span.source) == ("exp", "<nowhere>", 2, "")


def test_a_library_is_its_callers_line_unless_its_file_is_the_persons_own():
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    outside = record(lambda: layer(x)).operations
    assert [each.span.source for each in outside] == ["layer(x)"]
    inside = record(lambda: layer(x), user_files=[sys.modules["torch.nn.modules.linear"].__file__]).operations
    assert [each.span.source for each in inside] == ["F.linear(input, self.weight, self.bias)"]
