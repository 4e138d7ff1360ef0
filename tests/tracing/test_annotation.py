"""--write: a copy with the shapes as comments, which is the same code."""

import ast
from dataclasses import replace

import pytest

from headwise.errors import InputError
from headwise.tracing.annotation import annotated
from headwise.tracing.steps import Comment, Problem
from tests.tracing.made import PLAIN, place, plain, step, trace


def test_comments_stand_above_their_statements_and_the_code_is_the_same():
    text = annotated([plain()])
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(PLAIN))
    assert [line for line in text.split("\n") if not line.strip().startswith("#")] == PLAIN.split("\n")
    rows = text.split("\n")
    at = rows.index("        x = x.view(*x.shape[:2], self.h, -1)")
    assert rows[at - 2 : at] == [
        "        # 7 q: [B, L, H*d] → view → [B, L, H, d]",
        "        # 8 k: [B, S, H*d] → view → [B, S, H, d]",
    ]
    assert rows[rows.index("        q = self.split(self.to_q(q))") - 1] == "        # [B, L, D] → linear → [B, L, H*d]"


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    y = g(\n        1,\n        x.relu(),\n    )\n",
        'def f(x):\n    y = f"""a\n{x.relu()}\nb"""\n',
        "def f(x):\n    y = 1 + \\\n        x.relu()\n",
        "def f(x): return x.relu()\n",
        "def f(x):\n\tif x is None:\n\t\tpass\n\telse: y = x.relu()\n",
        "@wraps\n@dataclass\n\n# why\ndef f(x):\n    return x.relu()\n",
        "def f(x):\r\n    return x.relu()\r\n",
        "def f(x):\n    '''text'''; y = x.relu()",
        "# -*- coding: utf-8 -*-\nx.relu()\n",
    ],
)
def test_a_comment_never_stands_inside_of_a_statement_it_would_break(source):
    text = annotated([trace(source, step(source, "x.relu()", "relu", "B L", "B L"))])
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(source))
    assert "# [B, L] → relu → [B, L]" in text
    assert ("\r\n" in source) == ("[B, L]\r\n" in text)


NOTE = """\
# A note

```python
import torch
```

Some code: `[B, L]`

  ```python
  def f(x):
      return x.relu()
  ```

```python
print(f(1))
```
"""
CELLS = """\
In [1]:
import torch
from torch import nn

In [2]:
def f(x):

    return x.relu()

In [3]:
f(1)
tensor([1, 2
"""


@pytest.mark.parametrize(("note", "imports"), [(NOTE, "import torch"), (CELLS, "import torch\nfrom torch import nn")])
def test_of_a_note_the_code_that_ran_is_copied_with_the_imports_before_it(note, imports):
    text = annotated([trace(note, step(note, "x.relu()", "relu", "B L", "B L"))])
    assert text.startswith(f"{imports}\n\ndef f(x):\n")
    assert "    # [B, L] → relu → [B, L]\n    return x.relu()" in text
    assert [word for word in ("print", "tensor") if word in text] == []


def test_several_traces_of_one_file_are_written_together():
    source = "def f(x):\n    return x.relu()\n\n\ndef g(x):\n    return x.tanh()\n"
    one = trace(source, step(source, "x.relu()", "relu", "B L", "B L"))
    two = trace(source, step(source, "x.tanh()", "tanh", "B L", "B L"))
    text = annotated([one, two, one])
    assert [text.count(f"# [B, L] → {op} → [B, L]") for op in ("relu", "tanh")] == [1, 1]


def test_failures_and_wrong_comments_are_written_too():
    source = "def f(x):\n    # [L, B]\n    return x.view(1)\n"
    made = trace(
        source,
        comments=(Comment(place(source, "[L, B]"), "[L, B]", "[B, L]"),),
        problems=(Problem(place(source, "x.view(1)"), "view", "why", "RuntimeError: a\nb"),),
    )
    rows = annotated([made]).split("\n")
    assert rows[1] == "    # ≠ the comment says [L, B]; it is [B, L]"
    assert rows[3:6] == ["    # ✗ why", "    # ✗ RuntimeError: a", "    # ✗ b"]


def test_what_a_source_holds_cannot_leave_its_comment():
    source = "def f(x):\n    return x.view(1)\n"
    made = trace(source, problems=(Problem(place(source, "x.view(1)"), "view", "", "E: \r import os\x0b"),))
    text = annotated([made])
    assert "\\r import os\\x0b" in text
    assert "\r" not in text


def test_code_that_cannot_be_read_is_refused():
    with pytest.raises(InputError, match=r"the code of code.py cannot be"):
        annotated([trace("this is no python\n")])


def test_of_a_notebook_the_cells_are_written_one_after_another():
    cells = {"book.ipynb[1]": "import torch", "book.ipynb[2]": "%matplotlib inline\ndef f(x):\n    return x.relu()"}
    one = trace(cells["book.ipynb[2]"], step(cells["book.ipynb[2]"], "x.relu()", "relu", "B L", "B L"))
    where = replace(one.steps[0].place, file="book.ipynb[2]")
    made = replace(one, target="dir/book.ipynb:f", sources=cells, steps=(replace(one.steps[0], place=where),))
    assert annotated([made]) == ("import torch\n\ndef f(x):\n    # [B, L] → relu → [B, L]\n    return x.relu()\n")
