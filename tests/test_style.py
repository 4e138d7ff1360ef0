"""The limits of the style guide that a machine can see."""

import ast
import statistics
from pathlib import Path

import pytest

from tests.arrow import SRC

FILES = sorted(SRC.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
VAGUE = {"utils", "util", "common", "helpers", "helper", "base", "types", "misc"}


def faults(source: str, *, kernels: bool = False) -> list[str]:
    """One sentence for each line of the source that breaks a limit; kernels may be long."""
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else ["line 1: a file begins with a docstring that says what it gives"]
    if (lines := source.count("\n")) > 300:
        found.append(f"line 301: a file has at most 300 lines, and this one {lines}")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > 60 and not kernels:
                found.append(f"line {node.lineno}: a function has at most 60 lines, and {node.name} {lines}")
        elif isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: raise an error with a sentence instead of assert")
        elif isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "BaseException"):
            found.append(f"line {node.lineno}: name the exception that is expected")
    return found


def test_every_source_file_keeps_the_limits():
    broken = {
        str(file.relative_to(SRC)): faults(file.read_text(encoding="utf-8"), kernels="triton_kernels" in file.parts)
        for file in FILES
    }
    assert {name: sentences for name, sentences in broken.items() if sentences} == {}


def test_the_median_file_has_at_most_130_lines():
    assert statistics.median(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES) <= 130


def test_no_file_has_a_vague_name():
    assert [file for file in FILES if VAGUE & set(file.relative_to(SRC).with_suffix("").parts)] == []


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\n", "line 1: a file begins with a docstring"),
        ("'''Long.'''\n" + "x = 1\n" * 300, "line 301: a file has at most 300 lines, and this one 301"),
        ("'''Long.'''\ndef f():\n" + "    x = 1\n" * 60, "line 2: a function has at most 60 lines, and f 61"),
        ("'''Checks.'''\ndef f(x):\n    assert x\n", "line 3: raise an error"),
        ("'''Hides.'''\ntry:\n    x = 1\nexcept:\n    pass\n", "line 4: name the exception"),
        ("'''Hides.'''\ntry:\n    x = 1\nexcept BaseException:\n    pass\n", "line 4: name the exception"),
    ],
    ids=["docstring", "file", "function", "assert", "bare except", "base exception"],
)
def test_a_broken_limit_is_found(source, sentence):
    (found,) = faults(source)
    assert found.startswith(sentence)


def test_a_kernel_may_be_a_long_function():
    assert faults("'''A kernel.'''\ndef f():\n" + "    x = 1\n" * 60, kernels=True) == []


def hidden(source: str) -> list[str]:
    """One sentence for each line of a test file by which a failure could go unseen."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "importorskip"):
            found.append(f"line {node.lineno}: skip by tests/optional.py, so that HEADWISE_REQUIRE=all can fail")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            if {ast.unparse(error) for error in node.args[:1]} & {"Exception", "BaseException", "AttentionError"}:
                found.append(f"line {node.lineno}: expect the error that is meant, not any")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not _claims(node):
            found.append(f"line {node.lineno}: {node.name} asserts nothing")
    return found


def _claims(test: ast.FunctionDef) -> bool:
    calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = [call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls]
    is_asserted = any(isinstance(node, ast.Assert) for node in ast.walk(test))
    return is_asserted or any(name.startswith(("assert_", "raises", "warns")) for name in names)


def test_no_test_file_hides_a_failure():
    # these are where skipping itself is written and tested
    files = [file for file in TESTS if file.name not in ("optional.py", "quick.py", "test_optional.py")]
    hiding = {str(file.relative_to(SRC.parents[1])): hidden(file.read_text(encoding="utf-8")) for file in files}
    assert {name: sentences for name, sentences in hiding.items() if sentences} == {}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import pytest\npytest.importorskip('onnx')", "line 2: skip by tests/optional.py"),
        ("@pytest.mark.skipif(True)\ndef test_x():\n    assert x", "line 1: skip by tests/optional.py"),
        ("with pytest.raises(Exception, match='3'):\n    x()", "line 1: expect the error that is meant"),
        ("def test_x():\n    print(1)", "line 1: test_x asserts nothing"),
    ],
    ids=["importorskip", "skipif", "any exception", "no assertion"],
)
def test_what_hides_a_failure_is_found(source, sentence):
    (found,) = hidden(source)
    assert found.startswith(sentence)


@pytest.mark.parametrize("claim", ["assert x", "assert_within_budget(x)", "with pytest.raises(ValueError): x()"])
def test_a_test_that_claims_something_is_not_complained_of(claim):
    assert hidden(f"def test_x():\n    {claim}") == []
