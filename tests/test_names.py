"""Names say what they name: few fillers in any file, and one meaning for the name of a class."""

import pytest

from tests.arrow import SRC
from tests.names import bindings, fillers, homes, share

# per 100 names of a file
MOST = 3.0
# classes of other libraries, which their drop-ins are named for
DROP_INS = {"AdditiveAttention", "MultiHeadAttention", "MultiHeadedAttention"}
FILES = sorted(SRC.rglob("*.py"))


def room(file):
    return file.relative_to(SRC).parts[0]


def test_few_names_of_any_file_are_fillers():
    sources = {str(file.relative_to(SRC)): file.read_text(encoding="utf-8") for file in FILES}
    many = {name: [*map(str, fillers(source))] for name, source in sources.items() if share([source]) > MOST}
    assert many == {}
    wide = {
        name: [binding.line for binding in fillers(source) if binding.name == "each"]
        for name, source in sources.items()
    }
    assert {name: lines for name, lines in wide.items() if lines} == {}


def test_the_name_of_a_class_has_one_meaning():
    several = {name: files for name, files in homes(FILES).items() if len(files) > 1 and name not in DROP_INS}
    assert several == {}


def test_the_drop_ins_are_the_only_classes_of_a_name():
    assert {room(file) for name in DROP_INS for file in homes(FILES)[name]} == {"compat", "layer"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("def f(given, *own, told=1, **held): return given", ["given", "own", "told", "held"]),
        ("def f():\n    _made = 1\n    _made = 2", ["_made"]),
        ("def f():\n    made = 1\ndef g():\n    made = 1", ["made", "made"]),
        ("class A:\n    def f(self):\n        self.known = 1\n    def said(self): pass", ["known", "said"]),
        ("from a import b as theirs\nwith a as seen: pass", ["theirs", "seen"]),
        ("try: pass\nexcept ValueError as what: pass", ["what"]),
        ("match x:\n    case [one, *other]: pass", ["one", "other"]),
        ("for each in x: pass", ["each"]),
        ("y = [\n    each for each in x\n]", ["each"]),
        ("y = [each for each in x]\nfor each in y: pass", ["each"]),
        ("y = sorted(x, key=lambda each: each.name)", ["each"]),
        ("if (then := x) and (done := y): pass", ["then", "done"]),
    ],
)
def test_a_filler_is_found_wherever_it_is_bound(source, names):
    assert [binding.name for binding in fillers(source)] == names


@pytest.mark.parametrize(
    "source",
    [
        "y = [each.name for each in x]",
        "class A:\n    def __eq__(self, other): return self is other",
        "print(found.known(given))",
        "import made, seen\nprint(told)",
        "finding, owner, others, given_rows = 1, 2, 3, 4",
    ],
)
def test_what_is_no_filler_is_not_complained_of(source):
    assert fillers(source) == []


def test_a_name_counts_once_in_each_scope():
    source = "x = 1\nx = 2\ndef f(x, found):\n    found = x\n    y = [x for x in found]\n"
    assert sorted((binding.scope, binding.name) for binding in bindings(source)) == [
        ("", "f"), ("", "x"), (".f", "found"), (".f", "x"), (".f", "y"),
    ]  # fmt: skip
    assert share([source]) == 20


def test_the_homes_of_a_class_are_the_files_that_define_it_at_their_top(tmp_path):
    files = [tmp_path / name for name in ("a.py", "b.py")]
    files[0].write_text("class A:\n    class C: pass\nclass B: pass\n")
    files[1].write_text("from a import B\nclass A: pass\ndef C(): pass\n")
    assert homes(files) == {"A": files, "B": files[:1]}
