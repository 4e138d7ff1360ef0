"""A name that a file reads and nowhere defines is a fault of the file, although headwise knows what it means."""

import pytest

from headwise.diagnosis.child import answer
from headwise.diagnosis.patches.fixed_source import fixed
from headwise.diagnosis.result import Diagnosis

OPENING = '"""Own."""\nimport torch\nfrom torch import nn\n\n\n'
CLASS = """class Own(nn.Module):
    def __init__(self, dim, heads, p: Optional[float] = None):
        super().__init__()
        assert dim % heads == 0
        self.h, self.qkv, self.o = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d // self.h), dim=-1)
        if n < 0:
            w = rearrange(w)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, d))
"""
CRASH = "import torch\n\n\nclass Own(nn.Module):\n    def forward(self, x):\n        raise KeyError\n"


def examined(folder, text, name="own.py"):
    (folder / name).write_text(text, encoding="utf-8")
    return Diagnosis.from_dict(answer({"target": f"{folder / name}:Own", "fix": True})["diagnosis"])


def named(found):
    return [(each.kind, each.severity, each.source[each.column : each.end_column]) for each in found.findings]


def test_names_that_a_file_misses_are_faults_where_python_first_raises(tmp_path):
    found = examined(tmp_path, OPENING + CLASS)
    # what no call reaches raises nothing
    assert named(found) == [("name-not-imported", "fault", "Optional"), ("name-not-imported", "fault", "math")]
    assert [each.source.strip().split()[0] for each in found.findings] == ["def", "w"]
    assert all(each.proved for each in found.findings)
    after = fixed(OPENING + CLASS, found.findings)
    assert set(after.splitlines()) - set((OPENING + CLASS).splitlines()) == {
        "from typing import Optional", "import math"
    }  # fmt: skip
    assert examined(tmp_path, after).verdict == "sound"


@pytest.mark.parametrize(
    ("opening", "name", "count"),
    [
        # a fragment, which imports nothing, is shown and not run
        ("", "own.py", 1),
        ("# A note\n\n```python\n", "own.md", 1),
        # what is not at hand may bind them
        (f"from mine import *\n{OPENING}", "own.py", 0),
        (f"from __future__ import annotations\n{OPENING}import math\n", "own.py", 0),
    ],
)
def test_what_is_only_shown_or_bound_elsewhere_is_no_fault(tmp_path, opening, name, count):
    found = examined(tmp_path, opening + CLASS, name)
    assert found.verdict == "sound"
    notes = [each for each in found.findings if each.kind == "imports-omitted"]
    assert [each.severity for each in notes] == ["note"] * count
    assert all("Optional" in each.what and "math" in each.what for each in notes)


def test_a_file_that_cannot_be_loaded_is_faulty_whatever_its_call_does(tmp_path):
    found = examined(tmp_path, CRASH)
    assert (found.verdict, named(found)) == ("faulty", [("name-not-imported", "fault", "nn")])
