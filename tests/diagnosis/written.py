"""Written: sources of a class of attention with what is special to a case, and what the doctor says of them."""

import textwrap

import headwise as hw
from headwise.diagnosis.target_diagnosis import diagnosed
from tests.diagnosis.mutants import loaded
from tests.diagnosis.operators import Host

HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
"""

SELF = """
class Attend(nn.Module):
    def __init__(self, width, num_heads, {extra}):
        super().__init__()
        self.num_heads = num_heads
        self.part = width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))
{made}

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, x, {given}):
        n, long, width = x.shape
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
{body}
        return self.join(y.transpose(1, 2).reshape(n, long, width))
"""
PLAIN = """
w = (q @ k.mT * self.part ** -0.5).softmax(-1)
y = w @ v
"""


def block(text):
    """Lines as those of a method."""
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * 8)


def attend(made="", body=PLAIN, extra="", given=""):
    """A class of self-attention with what is special to it."""
    return SELF.format(made=block(made), body=block(body), extra=extra, given=given)


def loaded_from(source, name="Attend"):
    """A class of a source, the names beside it, and the name of its file."""
    return loaded(Host(name, "written.py", {}, None), source, "written")


def found_in(source, name="Attend", init=None):
    """The diagnosis of a class of a source. init: how it is declared to be built; None: nothing is declared."""
    target, namespace, file = loaded_from(source, name)
    return diagnosed(target, title=name, namespace=namespace, files={file: "written.py"}, init=init)


def blamed_in(source, name="Attend"):
    """The kind and the line of each fault that is found."""
    return [(each.kind, each.line) for each in found_in(source, name).faults]


def marked(source, kind):
    """One fault of a kind in the line that ends with the sign of a fault."""
    return [(kind, line_of(source, "# <-"))]


def line_of(source, part):
    """The first line with a text, from 1."""
    return next(at for at, line in enumerate(source.splitlines(), 1) if part in line)


def faults_in_file(folder, name, source):
    """The kinds and the lines of the faults of a class in a file of its own, which is sound where it has none."""
    file = folder / "written.py"
    file.write_text(source, encoding="utf-8")
    report = hw.doctor(f"{file}:{name}")
    assert report.faults or report.verdict == "sound"
    return [(fault.kind, fault.line) for fault in report.faults]
