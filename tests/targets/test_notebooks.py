"""The code cells of a notebook, numbered as a fresh run numbers them."""

import json

import pytest

from headwise.targets.reader import read
from headwise.targets.target import parse
from headwise.wording import Refusal
from tests.targets.loaded import loaded

CELLS = [
    ("markdown", ["# Attention\n", "class Attention:"]),
    ("code", ["%matplotlib inline\n", "!pip install torch\n", "import torch\n", "from torch import nn"]),
    ("code", "%%bash\nclass Attention"),
    ("code", ["WIDTH = 3\n", "nn?\n", "files = !ls"]),
    ("code", ""),
    (
        "code",
        "class Attention(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = WIDTH\n",
    ),
    ("raw", "x"),
    ("code", "%%time\nout = Attention()(1 / 0)\nout"),
    ("code", "this is no Python"),
    ("code", "def forward(self, x):\n    return x + self.n\nAttention.forward = forward"),
    ("code", "%%bash\nWIDTH = 99"),
]


def notebook(home, version=4):
    key = "source" if version == 4 else "input"
    cells = [{"cell_type": kind, key if kind == "code" else "source": text, "outputs": []} for kind, text in CELLS]
    book = {"cells": cells, "nbformat": 4} if version == 4 else {"worksheets": [{"cells": cells}], "nbformat": 3}
    (home / "BOOK.ipynb").write_text(json.dumps(book), encoding="utf-8")


@pytest.mark.parametrize("version", [3, 4])
def test_cells_run_in_order_as_far_as_the_target_needs_them(home, version):
    notebook(home, version)
    found = loaded("BOOK.ipynb:Attention")
    assert found.object()(2) == 5
    assert found.object.__init__.__code__.co_firstlineno == 2
    assert found.spoken[found.object.__init__.__code__.co_filename] == "BOOK.ipynb[4]"
    assert found.spoken[found.object.forward.__code__.co_filename] == "BOOK.ipynb[7]"
    assert found.source.texts["BOOK.ipynb[1]"].startswith("%matplotlib inline\n!pip")


def test_a_bare_notebook_lists_what_its_cells_define(home):
    notebook(home)
    found = read(parse("BOOK.ipynb"))
    assert [(each.name, each.file, each.line) for each in found.definitions] == [("Attention", "BOOK.ipynb[4]", 1)]
    assert [cell.file for cell in found.cells if "torch" in cell.code] == ["BOOK.ipynb[1]"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cells": 3}', "[" * 100000, "null"])
def test_what_is_no_notebook_is_told(home, text):
    (home / "BOOK.ipynb").write_text(text)
    with pytest.raises(Refusal, match="must be a notebook in JSON, but it is not"):
        loaded("BOOK.ipynb:A")


def test_a_cell_that_is_no_python_is_told_with_its_line(home):
    cells = [{"cell_type": "code", "source": "x = 1"}, {"cell_type": "code", "source": "!ls\nclass A\n    pass"}]
    (home / "BOOK.ipynb").write_text(json.dumps({"cells": cells}))
    with pytest.raises(Refusal, match=r"BOOK.ipynb\[2\] must be valid Python, but line 2, column 8 is not"):
        loaded("BOOK.ipynb:A")
