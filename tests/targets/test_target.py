"""A text names a file, a module, and something in it, or is refused in one sentence."""

import pytest

from headwise.targets.reader import read
from headwise.targets.target import Target, parse
from headwise.wording import LANGUAGES, Refusal
from tests.fresh import run_fresh
from tests.targets.loaded import loaded, written

CODE = "class Attention:\n    pass\n\n\ndef scores(q, k):\n    return q\n"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("own.py:Attention", Target("own.py", "Attention", "python")),
        ("own.py", Target("own.py", "", "python")),
        ("own.py:", Target("own.py", "", "python")),
        (" ./own.py:Outer.Inner ", Target("./own.py", "Outer.Inner", "python")),
        ("own.py:Outer.forward", Target("own.py", "Outer", "python")),
        ("sub/a:b.py:f", Target("sub/a:b.py", "f", "python")),
        ("sub/a:b.py", Target("sub/a:b.py", "", "python")),
        ("note.md:注意力", Target("note.md", "注意力", "note")),
        ("note.txt:A", Target("note.txt", "A", "note")),
        ("BOOK.ipynb:A", Target("BOOK.ipynb", "A", "notebook")),
        ("torch.nn:MultiheadAttention", Target("torch.nn", "MultiheadAttention", "module")),
        ("torch.nn", Target("torch.nn", "", "module")),
    ],
)
def test_a_text_names_a_target(home, text, target):
    for name in ("own.py", "note.md", "note.txt", "BOOK.ipynb", "sub/a:b.py"):
        written(home, name, CODE)
    assert parse(text) == target


@pytest.mark.parametrize("text", ["", "  ", ":", ":Attention"])
def test_a_target_must_name_something(home, text):
    with pytest.raises(Refusal, match="must name a file or a module"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["own.py:A", "no/such.md", "note.md:A", "x" * 5000, "a\0b.py", "two words:A", "own:1a"]
)
def test_a_file_must_be_there(home, text):
    with pytest.raises(Refusal, match="there is no"):
        parse(text)


REFUSED = {
    "a folder": (lambda file: file.mkdir(), "must be a file, but own.py is a folder"),
    "an empty file": (lambda file: file.write_bytes(b" \n\n"), "must hold code, but own.py is empty"),
    "a binary": (lambda file: file.write_bytes(b"\x7fELF\x00\x01"), "holds the byte 0 at 5"),
    "50 MB": (lambda file: file.write_bytes(b"#" * (50 << 20)), "at most 10 MB, but own.py has 50 MB"),
    "another encoding": (
        lambda file: file.write_bytes("x = '多'".encode("gbk")),
        "must be UTF-8, but its byte 6 is not",
    ),
    "a syntax error": (lambda file: file.write_text("x = 1\ny = (2\nz = ]\n"), "line 3, column 5 is not"),
    "an indentation": (
        lambda file: file.write_text("def f():\nreturn 1\n"),
        "line 2, column 1 is not .expected an ind",
    ),
    "a stray return": (
        lambda file: file.write_text("x = 1\nreturn x\n"),
        "line 2, column 1 is not .'return' outside func",
    ),
    "one name twice": (lambda file: file.write_text("def A(x, x): pass\n"), "line 1, .*duplicate argument 'x'"),
    "deep nesting": (lambda file: file.write_text("x = " + "(" * 5000 + ")" * 5000), "nested"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_one_sentence(home, what):
    make, sentence = REFUSED[what]
    make(home / "own.py")
    with pytest.raises(Refusal, match=sentence) as caught:
        read(parse("own.py:A"))
    assert "\n" not in str(caught.value)
    assert {lang: caught.value.said(lang) for lang in LANGUAGES}["zh"] != str(caught.value)


def test_a_coding_line_counts(home):
    (home / "own.py").write_bytes("# -*- coding: gbk -*-\ndef 注意():\n    return '多头'\n".encode("gbk"))
    assert loaded("own.py:注意").object() == "多头"


def test_a_mark_of_byte_order_and_ends_of_lines_of_windows_are_read(home):
    (home / "own.py").write_bytes(b"\xef\xbb\xbfdef f():\r\n    return 1\r\n")
    assert read(parse("own.py")).definitions[0].line == 1
    assert loaded("own.py:f").object() == 1


def test_a_bare_file_lists_its_classes_and_functions(home):
    written(
        home, "own.py", CODE + "if True:\n    class Later: pass\nif __name__ == '__main__':\n    class Main: pass\n"
    )
    assert [(each.name, each.kind, each.file, each.line) for each in read(parse("own.py")).definitions] == [
        ("Attention", "class", "own.py", 1),
        ("scores", "function", "own.py", 5),
        ("Later", "class", "own.py", 8),
    ]
    with pytest.raises(Refusal, match=r"add one of Attention, scores, Later, as in own.py:Attention"):
        loaded("own.py")


def test_a_name_that_is_not_there_is_told_with_names_like_it(home):
    written(home, "own.py", CODE)
    with pytest.raises(Refusal, match="did you mean Attention\\? It defines Attention, scores"):
        loaded("own.py:Atention")
    with pytest.raises(Refusal, match="must define Zebra, but it does not: it defines Attention, scores"):
        loaded("own.py:Zebra")
    with pytest.raises(Refusal, match=r"must define Attention.backward, but it does not"):
        loaded("own.py:Attention.backward")


def test_a_module_offers_its_classes_and_functions_and_no_submodules(home):
    with pytest.raises(Refusal) as refused:
        loaded("torch.nn:MultiHeadAttention")
    assert refused.value.values["near"] == "MultiheadAttention"
    assert "AdaptiveAvgPool1d, " in str(refused.value.values["known"])


def test_a_file_without_definitions_is_told(home):
    written(home, "own.py", "x = 1\n")
    with pytest.raises(Refusal, match="must define a class or a function to be named"):
        loaded("own.py:A")
    with pytest.raises(Refusal, match="must define a class or a function to be named"):
        loaded("own.py")


def test_reading_takes_no_torch_and_runs_nothing(home):
    written(home, "own.py", "raise SystemExit('run')\n" + CODE)
    source = """
import sys
from headwise.targets import parse, read
print([each.name for each in read(parse("own.py")).definitions], "torch" in sys.modules)
print(len(read(parse("torch.nn.modules.activation")).definitions) > 10, "torch" in sys.modules)
"""
    assert run_fresh(source) == "['Attention', 'scores'] False\nTrue False\n"
