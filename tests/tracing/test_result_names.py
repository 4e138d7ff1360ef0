"""What the person's lines call a result."""

import pytest

from headwise.tracing.result_names import ResultNames
from headwise.tracing.steps import Place

SOURCE = """\
words before, as in a note

    def split(self, x):
        return x.view(2).transpose(0, 1)

    def forward(self, 输入):
        q = self.split(输入)
        a, b = one(q), two(q)
        c, d = both(q).chunk(2)
        e, f = (self.split(x) for x in (a, b))
        q += 1
        if (w := q @ q) is not None:
            print(w)
        return done(w)
"""
NAMES = ResultNames({"code.md": SOURCE})


def place(code):
    start = SOURCE.index(code)
    before = SOURCE[:start].split("\n")
    return Place("code.md", len(before), len(before[-1]), len(before), len(before[-1]) + len(code), code)


@pytest.mark.parametrize(("code", "part", "name"), [
    ("self.split(输入)", 0, "q"), ("one(q)", 0, "a"), ("two(q)", 0, "b"), ("both(q)", 0, "c, d · op"),
    ("both(q).chunk(2)", 1, "d"), ("q += 1", 0, "q"), ("q @ q", 0, "w"), ("print(w)", 0, ""), ("done(w)", 0, "output"),
])  # fmt: skip
def test_an_expression_is_called_what_it_is_assigned_to(code, part, name):
    assert NAMES.name("op", place(code), (), part=part) == name


def test_what_a_helper_gives_back_is_called_as_by_its_caller():
    returned = place("x.view(2).transpose(0, 1)")
    assert NAMES.name("transpose", returned, [place("self.split(输入)")]) == "q"
    assert NAMES.name("view", place("x.view(2)"), [place("self.split(输入)")]) == "q · view"
    assert NAMES.name("transpose", returned, [place("print(w)")]) == ""


def test_each_turn_has_its_own_name_where_there_are_as_many():
    inner = place("self.split(x)")
    returned = place("x.view(2).transpose(0, 1)")
    assert [NAMES.name("transpose", returned, [inner], turn=n, turns=2) for n in range(2)] == ["e", "f"]
    assert NAMES.name("transpose", returned, [inner], turn=2, turns=3) == "e, f"
