"""A patch that would leave a statement without effect takes the statement away, as a person would."""

import ast
import linecache

import pytest

from headwise.diagnosis.patches.no_ops import without_idle
from headwise.source import Code, applied

FRAME = "def f(a, c, mask):\n    b = 0\n{}    return a\n"


def called(node):
    return isinstance(node, ast.BinOp | ast.Call | ast.AugAssign)


def mended(body, text, wanted=called):
    """The source in which the first product, call or change in place became a text."""
    source = FRAME.format(body)
    linecache.cache["<idle>"] = (len(source), None, source.splitlines(keepends=True), "<idle>")
    code = Code(ast.parse(source), "<idle>", ast.parse(source))
    node = next(code.nodes(wanted))
    return applied(source, without_idle(code, (code.edit(node, text),)))


@pytest.mark.parametrize(
    ("body", "text", "left"),
    [
        ("    a = a / c  # scaled\n", "a", ""),
        ("    a = g(\n        a,\n    )\n", "a", ""),
        ("    a /= c\n", "pass", ""),
        ("    if mask is not None:\n        a = a * mask\n", "a", ""),
        # what is left has an effect
        ("    a = a / c\n", "c", "    a = c\n"),
        ("    b = a / c\n", "a", "    b = a\n"),
        # a block must hold something
        ("    for _ in c:\n        a = a * mask\n", "a", "    for _ in c:\n        pass\n"),
        ("    if g():\n        a = a\n    else:\n        a = a * c\n", "a", None),
        ("    b = 1; a = a / c\n", "a", "    b = 1; pass\n"),
    ],
)
def test_a_statement_without_effect_goes(body, text, left):
    if left is None:
        assert mended(body, text, lambda node: isinstance(node, ast.BinOp)).count("pass") == 1
    else:
        assert mended(body, text) == FRAME.format(left)
