"""The Python of a note is found however it stands there, and each line and column is that of the note."""

import html
import inspect
import linecache
import time

import pytest

from headwise.targets.reader import read
from headwise.targets.target import parse
from headwise.wording import Refusal
from tests.targets.loaded import loaded, names_of, written

BODY = '''class Attention(nn.Module):
    """Attention.

Text at the left, inside of a string.
    """

    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x):
        return self.project(x)
'''
IMPORTS = "import torch\nfrom torch import nn\n"


def indented(text, front):
    return "".join(f"{front}{line}\n" if line else "\n" for line in text.splitlines())


FORMS = {
    "a fence": f"# Title\n\n```python\n{IMPORTS}\n{BODY}```\n",
    "a fence without a word": f"Text.\n\n```\n{IMPORTS}{BODY}```\n",
    "waves": f"Text.\n~~~~ py\n{IMPORTS}{BODY}~~~~\n",
    "words after the word": f"```python title='x.py' {{1,2}}\n{IMPORTS}{BODY}```\n",
    "braces": f"```{{python}}\n{IMPORTS}{BODY}```\n",
    "a fence that does not end": f"Text\n```python\n{IMPORTS}{BODY}",
    "a list": "1. First\n    - then\n      ```python\n" + indented(IMPORTS + BODY, "      ") + "      ```\n2. Next\n",
    "a quote": "> Said:\n>\n> ```python\n" + indented(IMPORTS + BODY, "> ").replace("\n\n", "\n>\n") + "> ```\n",
    "a fragment before": f"```python\ndef forward(self, x):\n    return 0\n```\n\n```python\n{IMPORTS}{BODY}```\n",
    "imports apart": f"```python\n{IMPORTS}```\nand\n\n```python\n{BODY}```\n",
    "no imports": f"Text\n\n```python\n{BODY}```\n",
    "a run after it": f"```python\n{IMPORTS}{BODY}\nx = Attention(1 / 0)\nprint(x)\n```\n",
    "a comment of html with a fence": f"<!-- ```\nclass Attention:\n    ``` -->\n\n```python\n{BODY}```\n",
    "another language": f"```bash\nclass Attention\n```\n```python\n{BODY}```\n```text\nclass Attention\n```\n",
    "a shape as code": (
        f"```python\noutput: (batch, length)\n```\n```python\nself.w = clones(x, 4)\n```\n```python\n"
        f"{BODY}```\n"
    ),
    "a command in the fence": f"```python\n!pip install torch\n%matplotlib inline\n{IMPORTS}{BODY}```\n",
    "prose in the fence": (
        f"```python\n{IMPORTS}... and so on, with more of it\n\n{BODY}\nAttention(\n  (project): Linear()\n)\n"
        f"```\n"
    ),
    "a session": "```\n" + IMPORTS.replace("import t", ">>> import t").replace("from", ">>> from")
    + ">>> " + BODY.rstrip("\n").replace("\n", "\n... ") + "\n>>> 1 + 1\n2\n```\n",
    "examples in a docstring": f"```python\n{IMPORTS}def f():\n    \"\"\"\n    >>> f()\n    \"\"\"\n\n{BODY}```\n",
    "blanks of a web page": f"```python\n{IMPORTS}{BODY.replace('    ', chr(160) * 4)}```\n",
    "restructured text": "Said\n====\n\n.. code-block:: python\n\n" + indented(IMPORTS + BODY, "   ") + "\nEnd.\n",
    "prompts": (
        f"# Note\nIn [1]:\n{IMPORTS}\nIn [12]:\n{BODY}\n\nIn [ ]:\nAttention(3)\n\nAttention(\n"
        f"  (project): Linear()\n)\n"
    ),
    "prompts and outputs": f"In [1]: {IMPORTS.split(chr(10))[0]}\n\nIn [2]:\n{BODY}\nOut[2]:\nclass of things\n",
    "nothing around": IMPORTS + BODY,
    "prose around": (
        f"Attention, said plainly (see below:\n\n$$ \\frac{{a}}{{b}} $$\n\n{IMPORTS}\n{BODY}\nThat is all.\n"
    ),
    "a decorator": f"Said:\n\n{IMPORTS}\n@torch.no_grad\n@property\n{BODY}",
    "prose around, indented": "Said:\n\n" + indented(IMPORTS + BODY, "    ") + "\nThat is all.\n",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_line_and_column_is_that_of_the_note(home, form):
    text = FORMS[form]
    written(home, "note.md", "").write_text(text, encoding="utf-8")
    lines = text.split("\n")
    line = max(at for at, each in enumerate(lines, 1) if "class Attention(nn" in each)
    assert ("Attention", "class", line) in names_of("note.md:Attention")
    (cell,) = [cell for cell in read(parse("note.md:Attention")).cells if "class Attention(nn" in cell.code]
    own = [
        (said, code) for said, code in zip(lines, cell.code.split("\n"), strict=True) if code not in ("", "if True:")
    ]
    assert all(len(said) == len(code) and code.strip() in said.replace(chr(160), " ") for said, code in own)
    if form == "a decorator":
        assert cell.code.lstrip().startswith("@torch.no_grad\n@property\nclass")
    else:
        forward = loaded("note.md:Attention").object.forward
        assert lines[forward.__code__.co_firstlineno - 1].endswith("def forward(self, x):")
        column = min(
            each[2] for each in forward.__code__.co_positions() if each[0] == forward.__code__.co_firstlineno + 1
        )
        assert lines[forward.__code__.co_firstlineno][column:].startswith("return")


def test_spans_and_inspect_find_the_source(home):
    text = FORMS["a list"]
    written(home, "note.md", "").write_text(text, encoding="utf-8")
    found = loaded("note.md:Attention")
    (file,) = found.files
    assert found.spoken == {file: "note.md"}
    assert found.source.texts == {"note.md": text}
    assert linecache.getline(file, 6) == "      class Attention(nn.Module):\n"
    linecache.checkcache(file)
    assert inspect.getsource(found.object.forward).strip().startswith("def forward(self, x):")
    assert inspect.getsource(found.object).strip().startswith("class Attention(nn.Module):")


def test_what_a_note_leaves_out_is_supplied_and_told(home):
    written(
        home,
        "note.md",
        """
        ```python
        class Attention(nn.Module):
            def __init__(self, h, d_model):
                super().__init__()
                self.linears = clones(nn.Linear(d_model, d_model), 4)

            def forward(self, q, k, v):
                return attention(q, k, v)[0] * math.sqrt(4) + unknown(q)
        ```
        """,
    )
    found = loaded("note.md:Attention")
    assert found.supplied == ("attention", "clones", "math", "nn")
    assert len(found.object(2, 8).linears) == 4


PARTS = """
    First the parts:

    ```python
    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.project = nn.Linear(width, width)
    ```

    Then how it runs:

    ```python
    {front}def forward(self, x):
    {front}    return self.split(self.project(x))
    ```

    ```python
    {front}def split(self, x):
    {front}    return x[..., :2]
    ```
    """


@pytest.mark.parametrize("front", ["", "    "], ids=["at the left", "indented"])
def test_a_class_in_parts_is_put_together(home, front):
    written(home, "note.md", PARTS.format(front=front))
    found = loaded("note.md:Attention").object
    assert {"__init__", "forward", "split"} <= set(vars(found))
    assert found.forward.__code__.co_firstlineno == 13
    assert found(3).project.in_features == 3


def test_of_several_definitions_the_last_that_is_whole_counts(home):
    built = "    def __init__(self):\n        super().__init__()\n"
    whole = f"class A(nn.Module):\n{built}    def forward(self, x):\n        return {{}}\n"
    part = "class A(nn.Module):\n    def forward(self, x):\n        return 3\n"
    text = "".join(f"```python\n{each}```\n\n" for each in (part, whole.format(1), whole.format(2), part))
    written(home, "note.md", text)
    assert loaded("note.md:A").object()(0) == 2


def test_a_whole_class_takes_nothing_of_the_fragments(home):
    fragments = "def forward(self, x, mask):\n    return 7\n\ndef extra(self):\n    pass\n"
    text = f"```python\n{fragments}```\n```python\n{BODY}```\n"
    written(home, "note.md", text)
    found = loaded("note.md:Attention").object
    assert not hasattr(found, "extra")
    assert names_of("note.md:Attention") == [("Attention", "class", 9)]


def test_a_note_that_is_no_python_is_told_with_its_line(home):
    written(home, "note.md", "Text\n\n```python\nclass Attention(nn.Module)\n    def f(self):\n        pass\n```\n")
    with pytest.raises(Refusal, match=r"note.md must be valid Python, but line 4, column 27 is not"):
        loaded("note.md:Attention")


def test_a_note_without_code_is_told(home):
    written(home, "note.md", "# Attention\n\nIs all you need (see [1].\n")
    with pytest.raises(Refusal, match="no class and no function could be found"):
        loaded("note.md:Attention")


def test_a_line_that_explains_a_part_is_no_part_of_the_file(home):
    lines = "attention = scores @ v\nd_k = x.size(-1)\n"
    written(home, "note.md", f"```python\n{lines}```\n```python\ndef f():\n    return attention, d_k\n```\n")
    with pytest.raises(NameError, match="'attention' is not defined"):
        loaded("note.md:f").object()


def test_words_between_brackets_that_never_close_cost_little_time(home):
    written(home, "note.md", "so (and [so {on\n" * 3000 + "\n" + IMPORTS + BODY)
    begun = time.monotonic()
    assert ("Attention", "class", 3004) in names_of("note.md:Attention")
    assert time.monotonic() - begun < 20


def test_a_page_is_read_as_it_is_shown(home):
    shown = IMPORTS + BODY + "\n\ndef f(a):\n    return a > 3 and 'x < \"y\"'\n"
    text = f'<html>\n<p>Said &mdash; so:</p>\n<pre><code class="language-python">{html.escape(shown)}</code></pre>\n'
    written(home, "note.html", "").write_text(text)
    assert loaded("note.html:f").object(4) == 'x < "y"'
    assert loaded("note.html:Attention").object(3).project.in_features == 3


def test_a_definition_that_cannot_be_compiled_is_told_with_its_line(home):
    written(home, "note.md", "```python\ndef f(x, x):\n    pass\n```\n")
    with pytest.raises(Refusal, match=r"line 2, column 10 is not .duplicate argument 'x'"):
        loaded("note.md:f")


def test_code_in_a_comment_of_html_is_no_code(home):
    hidden = "class Attention(nn.Module):\n    def __init__(self): pass\n    def forward(self): pass\n"
    written(home, "note.md", f"```python\n{BODY}```\n<!-- so far:\n```python\n{hidden}```\n-->\n")
    assert loaded("note.md:Attention").object(3).project.in_features == 3
