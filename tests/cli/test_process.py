"""A command's own process: what it imports, what it warns of, and what it leaves alone in a process of others."""

import gc
import json
import warnings

import pytest
from click.testing import CliRunner

from headwise.cli import main
from tests.fresh import run_fresh

SOURCE = """
import math
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.d).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), dim=-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, c))
"""
# the status, what came on stderr, which of the modules that take long to import were imported, and any child
COMMAND = """
import contextlib, io, json, sys
from headwise.cli import main
sys.argv = ["headwise", *{args!r}]
started = []
sys.addaudithook(lambda event, _: started.append("a child") if event == "subprocess.Popen" else None)
out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
        main()
    except SystemExit as end:
        status = end.code
loaded = [name for name in ("torch", "numpy", "transformers") if name in sys.modules]
print(json.dumps([status, err.getvalue(), loaded + started[:1]]))
"""


def called(*args, without=()):
    """Status, stderr, slow modules and "a child" of a command in a fresh process."""
    return json.loads(run_fresh(COMMAND.format(args=[str(arg) for arg in args]), without=without))


@pytest.fixture
def file(tmp_path):
    (tmp_path / "attention.py").write_text(SOURCE)
    return tmp_path / "attention.py"


@pytest.mark.parametrize("command", [("trace",), ("doctor",), ("doctor", "--fix"), ("steps", "-o", "{folder}/s.html")])
def test_what_runs_code_in_a_child_imports_torch_there_alone(file, command):
    name, *options = command
    status, said, loaded = called(name, f"{file}:Attention", *(each.format(folder=file.parent) for each in options))
    assert (status, said, loaded) == (0, "", ["a child"])


REFUSED = [
    (("trace", "{file}:Attentio"), "did you mean Attention?"),
    (("doctor", "{file}:Attentio"), "did you mean Attention?"),
    (("steps", "{file}:Attentio", "-o", "{folder}/s.html"), "did you mean Attention?"),
    (("look", "{file}:Attentio"), "did you mean Attention?"),
    (("look", "{folder}/none.py:Attention"), "there is no {folder}/none.py"),
    (("look", "{file}:Attention", "-o", "{folder}/l.doc"), "must end in one of .html"),
    (("trace", "{folder}/none.py:Attention"), "there is no {folder}/none.py"),
    (("steps", "{file}:Attention", "-o", "{file}"), "must end in .html"),
    (
        ("look", "the cat", "--layer", "99", "-o", "{folder}/l.html"),
        "from 0 to 5, since all-MiniLM-L6-v2 has 6, but 99",
    ),
    (("look", "the cat", "--head", "12", "-o", "{folder}/l.html"), "from 0 to 11, since layer 0 has 12, but 12 came"),
    (("look", "the cat", "--query", "dog", "-o", "{folder}/l.html"), "“dog” is none: choose one of the, cat."),
    (("look", "the cat", "--model", "{folder}/none", "-o", "{folder}/l.html"), "there is no folder {folder}/none"),
    (
        ("look", "the cat", "--model", "{folder}", "-o", "{folder}/l.html"),
        "must hold config.json, the weights as *.safetensors and a tokenizer (tokenizer.json), but {folder} holds "
        "attention.py: give a folder",
    ),
    (("look", "the cat", "-o", "{folder}/l.doc"), "must end in one of .html, .png"),
    (("look", "the cat", "-o", "{folder}/none/l.html"), "a folder that exists, but {folder}/none does not"),
    (("look", "--maps", "{folder}/none", "-o", "{folder}/l.html"), "there is no file {folder}/none"),
    (("plot", "{folder}/none", "-o", "{folder}/l.png"), "there is no file {folder}/none"),
    (("convert", "{folder}/none.pt"), "there is no file {folder}/none.pt"),
    (("convert", "{file}"), "must end in one of .safetensors, .pt"),
    (("convert", "{file}", "--to", "torsh"), "got 'torsh': choose one of them, such as torch"),
]


@pytest.mark.parametrize(("args", "sentence"), REFUSED, ids=[" ".join(args) for args, _ in REFUSED])
def test_what_names_files_and_numbers_tell_is_refused_in_one_line_without_torch(file, args, sentence):
    places = {"file": file, "folder": file.parent}
    status, said, loaded = called(*(each.format(**places) for each in args))
    assert (status, said.count("\n"), loaded) == (2, 1, [])
    assert sentence.format(**places) in said


def test_maps_that_a_file_does_not_hold_are_refused_without_torch(tmp_path):
    header = json.dumps({"__metadata__": {"headwise": json.dumps({"maps": {"a": {}, "b": {}, "c": {}}})}}).encode()
    (tmp_path / "maps.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    status, said, loaded = called("plot", tmp_path / "maps.safetensors", "-o", tmp_path / "a.svg", "--layer", 3)
    assert (status, loaded) == (2, [])
    assert "from 0 to 2, since Attention maps has 3, but 3 came" in said


def test_no_command_warns_of_numpy_where_it_is_not_installed(file):
    status, said, loaded = called("convert", "--list", without=("numpy",))
    assert (status, said, loaded) == (0, "", ["torch"])
    assert called("steps", "--example", "-o", file.parent / "s.html", without=("numpy",)) == [0, "", ["torch"]]


def test_importing_headwise_leaves_the_filters_of_warnings_as_they_are():
    source = "import warnings\nbefore = list(warnings.filters)\nimport headwise.cli, headwise as hw\n"
    assert run_fresh(source + "print(before == warnings.filters)\n") == "True\n"


def test_a_command_that_is_called_in_a_process_of_others_leaves_its_settings_alone():
    before = gc.get_threshold(), list(warnings.filters)
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0
    assert (gc.get_threshold(), list(warnings.filters)) == before


def test_the_process_of_a_command_collects_garbage_seldom():
    source = COMMAND.format(args=["--help"]) + "import gc\nprint(gc.get_threshold()[0] > 10_000)\n"
    assert run_fresh(source).endswith("True\n")
