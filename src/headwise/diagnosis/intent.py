"""Intent: what a mask means to the people who wrote a file, from its comments and from the masks that it makes."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence

__all__ = ["meaning_of"]

IS = r"\s*(?:=|==|:|means|marks|for|where|is|are|->|→)\s*"
SEEN = r"(?:keep|kept|attend|valid|visible|real|may|can|allow|unmask|not\s+(?:mask|pad)|look)"
HIDDEN = r"(?:mask|pad|ignore|block|hid|exclude|not\s+(?:attend|allow)|cannot|forbid|future)"
YES, NO = r"(?:\b1s?\b|\bones?\b|\btrue\b)", r"(?:\b0s?\b|\bzeros?\b|\bfalse\b)"
ATTEND = re.compile(f"{YES}{IS}(?:\\w+\\s+){{0,2}}?{SEEN}|{NO}{IS}(?:\\w+\\s+){{0,2}}?{HIDDEN}", re.IGNORECASE)
BLOCKED = re.compile(f"{YES}{IS}(?:\\w+\\s+){{0,2}}?{HIDDEN}|{NO}{IS}(?:\\w+\\s+){{0,2}}?{SEEN}", re.IGNORECASE)
# these hand a mask on as it is
PASSING = frozenset({
    "unsqueeze", "bool", "to", "int", "float", "byte", "expand", "repeat", "view", "reshape", "type", "long", "cuda",
})  # fmt: skip


def meaning_of(files: Sequence[str], name: str, kind: str) -> str:
    """ "attend" or "blocked", as a person says of a class's mask; "": nothing says it, or not all agree.

    files: their names, as linecache knows them. name: of the argument. kind: of the class, whose own code does not
    count as saying what it is given.
    """
    said: set[str] = set()
    for file in files:
        lines = linecache.getlines(file)
        for line in lines:
            words = _words(line)
            if words and ("mask" in words.lower() or name in words):
                said |= {meaning for meaning, form in (("attend", ATTEND), ("blocked", BLOCKED)) if form.search(words)}
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            continue
        said |= set(_made(tree, kind))
    return next(iter(said)) if len(said) == 1 else ""


def _words(line: str) -> str:
    """What a line says in a comment or a docstring."""
    if "#" in line:
        return line.partition("#")[2]
    text = line.strip()
    is_code = re.search(r"[=(\[]", text) is not None and not text.startswith(('"', "'")) and ":" not in text
    return "" if is_code or re.match(r"(def|class|return|if|for|import|from|self\.|\w+ = )", text) else text


def _made(tree: ast.AST, kind: str) -> Iterator[str]:
    """The meaning of each mask that is made outside of the class."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.ClassDef) and node.name == kind:
            continue
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and any("mask" in name.lower() for name in _targets(each)):
                sign = _sign(each.value)
                if sign:
                    yield "attend" if sign > 0 else "blocked"


def _targets(node: ast.Assign) -> list[str]:
    return [each.id for each in node.targets if isinstance(each, ast.Name)]


def _sign(node: ast.AST) -> int:
    """1: true where a key may be seen; -1: where it is hidden; 0: that is not known."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return -_sign(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.comparators[0], ast.Constant):
        sign = _sign(node.left)
        return -sign if isinstance(node.ops[0], ast.Eq) and not node.comparators[0].value else sign
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
        return -_sign(node.right)
    if isinstance(node, ast.Subscript):
        return _sign(node.value)
    if not isinstance(node, ast.Call):
        return 0
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in PASSING and isinstance(node.func, ast.Attribute):
        return _sign(node.func.value)
    text = ast.unparse(node)
    if called == "tril" and "inf" not in text:
        return 1
    return -1 if called == "triu" and "inf" not in text and re.search(r"\b1\)|=1", text) else 0
