"""Argument axes: what a source calls the axes of its arguments."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from headwise.source import assigned_pairs, nodes_of

__all__ = [
    "aliases",
    "asked",
    "entry_of",
    "last",
    "orders",
    "places",
    "repeated",
    "says_batch_first",
    "says_batch_second",
    "says_share",
    "says_transposed",
    "times_size",
    "widened",
]

# how documentation says a shape: its brackets, and the names of axes in them
BATCH = r"(?:b|bs|bsz|batch|batch_?size|n_?batch(?:es)?)"
AXIS = r"[\w*+/ ]+"
FIRST = re.compile(rf"[(\[<]\s*{BATCH}\s*[,x×]\s*{AXIS}[,x×]", re.IGNORECASE)
# numbers of tokens have no axis of features; what a mask is shaped like says nothing of them
LENGTH = (
    r"(?:seq\w*|sentence\w*|len\w*|time\w*|tokens?|src_?len|tgt_?len|max_?len|[lts]"
    r"|(?:n_?|num_?)?(?:columns?|fields?|words|items))"
)
FIRST_OF_TWO = re.compile(
    rf"^(?!.*(?:mask|pad|len(?:gth)?s)\b).*[(\[<]\s*{BATCH}\s*[,x×]\s*{LENGTH}\s*[\])>]", re.IGNORECASE | re.MULTILINE
)
# games or rooms, and what is in each, where no batch is spoken of
COUNTS = re.compile(
    r"[(\[<]\s*(?:n|num)_(?!heads|tokens|patches|frames|steps|layers|queries)\w+\s*,\s*(?:n|num)_(?!heads)\w+\s*,\s*\w+\s*[\])>]"
)
ANY_BATCH = re.compile(rf"\b{BATCH}\b", re.IGNORECASE)
SECOND = re.compile(rf"[(\[<]\s*{AXIS}[,x×]\s*{BATCH}\s*[,x×\])>]", re.IGNORECASE)
# lengths as shares of the longest
SHARE = re.compile(
    r"\brelative\b|\bfractions?\b|\bshares?\b|[(\[]\s*0(?:\.0?)?\s*,\s*1(?:\.0?)?\s*\]|相对|比例", re.IGNORECASE
)
# the methods that take inputs, or say what they will be
SPEAKING = ("__init__", "forward", "__call__")
# features, and after them tokens, as the last axes of a shape of three or more
TRANSPOSED = re.compile(
    rf"[(\[<](?:{AXIS}[,x×])+\s*(?:d|d_?k|dim|head_?dim|d_?head|hd|c|features?|channels?)\s*[,x×]"
    rf"\s*(?:keys?|n_?keys|k_?len|kv_?len|source|m|n|{LENGTH})\s*[\])>]", re.IGNORECASE
)  # fmt: skip
# what asks how many axes a tensor has
RANK = re.compile(r"\.ndim\b|\.dim\(\)|len\(\w+(?:\.shape|\.size\(\))\)")
DOCUMENT = ('"""', "'''", 'r"""')


def last(node: ast.AST) -> str:
    """The last word of `d_model`, `self.d_model` or `config.d_model`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that hold what a parameter or a config gave, `self.width = config.d_model`: those of attributes last."""
    nodes = [node for node in nodes_of(tree) if isinstance(node, ast.Assign)]
    # of what is unpacked no name holds the whole
    nodes = [node for node in nodes if isinstance(node.value, ast.Tuple) or not isinstance(node.targets[0], ast.Tuple)]
    pairs = [(name, value) for node in nodes for name, value in assigned_pairs(node)]
    for name, value in sorted(pairs, key=lambda pair: isinstance(pair[0], ast.Attribute)):
        if last(name) and last(value) and last(name) != last(value):
            yield last(name), last(value)


def asked(tree: ast.AST) -> Iterator[str]:
    """Names that stand alone as a question: `if shifted:`, `not self.shifted`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.If | ast.IfExp):
            yield last(node.test)
            yield from map(last, node.test.values if isinstance(node.test, ast.BoolOp) else ())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield last(node.operand)


def orders(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names that the axes of a tensor are unpacked into, and those of an einops pattern; not where the code asks first
    how many axes it has, and takes others too.
    """
    asked_first = set(_of_asked_rank(tree))
    for node in nodes_of(tree):
        if id(node) in asked_first:
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            of = _shape_of(node.value)
            names = tuple(last(element) for element in node.targets[0].elts)
            if of and not any(isinstance(element, ast.Starred) for element in node.targets[0].elts):
                yield of, names
        elif isinstance(node, ast.Call) and last(node.func) in ("rearrange", "reduce", "repeat") and len(node.args) > 1:
            pattern = node.args[1]
            if isinstance(pattern, ast.Constant) and "->" in str(pattern.value) and last(node.args[0]):
                left = re.sub(r"\([^)]*\)", "_", str(pattern.value).split("->")[0]).split()
                if "..." not in left:
                    yield last(node.args[0]), tuple(left)


def _of_asked_rank(tree: ast.AST) -> Iterator[int]:
    """The statements, by their numbers, that run where a tensor has as many axes as is asked: `if x.ndim == 4:`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and RANK.search(ast.unparse(node.test)):
            yield from (id(inner) for statement in node.body for inner in ast.walk(statement))


def places(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Single axes that are given a name: `bsz = x.size(1)`, `T, B = x.shape[0], x.shape[1]`."""
    for node in nodes_of(tree):
        for name, value in assigned_pairs(node) if isinstance(node, ast.Assign) else ():
            of, at = _axis_of(value)
            if of and at >= 0 and last(name):
                yield of, at, last(name)


def times_size(tree: ast.AST) -> Iterator[str]:
    """Names that are multiplied by what `arange` counts to, as `lengths * x.shape[1]`, which are shares of it."""
    calls = [node for node in nodes_of(tree) if isinstance(node, ast.Call) and last(node.func) == "arange"]
    counted = {ast.unparse(call.args[0]) for call in calls if len(call.args) == 1}
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if last(one) and ast.unparse(other) in counted:
                    yield last(one)


def widened(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Tensors that are given more axes among their own, and how many these are: 2 of `mask[:, None, None, :]`."""
    for node in nodes_of(tree):
        parts = getattr(node.slice, "elts", ()) if isinstance(node, ast.Subscript) else ()
        slices = sum(isinstance(part, ast.Slice) for part in parts)
        new = sum(isinstance(part, ast.Constant) and part.value is None for part in parts)
        if isinstance(node, ast.Subscript) and last(node.value) and new and slices > 1 and slices + new == len(parts):
            yield last(node.value), slices


def repeated(tree: ast.AST) -> Iterator[str]:
    """What says how many modules are made in turn: `[Block(d) for _ in range(n)]`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and isinstance(node.elt, ast.Call):
            for loop in node.generators:
                if isinstance(loop.iter, ast.Call) and last(loop.iter.func) == "range" and len(loop.iter.args) == 1:
                    yield last(loop.iter.args[0])


def _axis_of(node: ast.AST) -> tuple[str, int]:
    """The tensor and the number of the axis that `x.size(1)` or `x.shape[1]` asks for."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        of, at = node.value.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and node.args:
        of, at = node.func.value, node.args[0]
    else:
        return "", -1
    return last(of), at.value if isinstance(at, ast.Constant) and isinstance(at.value, int) else -1


def _shape_of(node: ast.AST) -> str:
    """The tensor whose `.shape` or `.size()` a value is, whole."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return last(node.value)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    ):
        return last(node.func.value)
    if isinstance(node, ast.Call) and last(node.func) in ("list", "tuple") and node.args:
        return _shape_of(node.args[0])
    return ""


def says_transposed(target: Any, name: str, order: Sequence[str]) -> bool:
    """Whether the words of a class or a function say of an argument that its features come before its tokens, or the
    code names its axes so. order: what the code calls them.
    """
    if len(order) > 2 and TRANSPOSED.search(f"({', '.join(order)})"):
        return True
    lines = _words_of(target).splitlines()
    return any(TRANSPOSED.search(line) and re.search(rf"\b{re.escape(name)}\b", line) for line in lines)


def says_share(target: Any, name: str) -> bool:
    """Whether the words of a class or a function say of lengths that they are shares of the longest: on a line with
    their name, or in their entry of a docstring.
    """
    lines = _words_of(target).splitlines()
    named = [line for line in lines if re.search(rf"\b{re.escape(name)}\b", line)]
    return any(SHARE.search(line) for line in (*named, *entry_of(lines, name)))


def entry_of(lines: Sequence[str], name: str) -> list[str]:
    """The lines of the entry of an argument in a docstring: the one that begins with its name, and those below it that
    are indented further.
    """
    out, depth = list[str](), -1
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if re.match(rf"\s*[`*]*{re.escape(name)}\b", line):
            out, depth = [*out, line], indent
        elif depth >= 0 and line.strip() and indent > depth:
            out.append(line)
        else:
            depth = -1
    return out


def says_batch_first(target: Any) -> bool:
    """Whether the words of a class say shapes with the batch first, and none with it second.

    Those of its other methods are of what was made of its inputs, which it may have transposed.
    """
    return _said_first_and_second(target) == (True, False)


def says_batch_second(target: Any) -> bool:
    """Whether the words of a class say shapes with the batch second, and none with it first."""
    return _said_first_and_second(target) == (False, True)


def _said_first_and_second(target: Any) -> tuple[bool, bool]:
    text = "" if inspect.isfunction(target) else _words_of(target)
    is_first = FIRST.search(text) is not None or FIRST_OF_TWO.search(text) is not None
    is_first = is_first or (COUNTS.search(text) is not None and ANY_BATCH.search(text) is None)
    return is_first, SECOND.search(text) is not None


def _words_of(target: Any) -> str:
    """The docstring of a class or a function, and the docstrings and comments of the methods that speak of inputs."""
    kind = target if isinstance(target, type) or inspect.isfunction(target) else type(target)
    # that of a builtin type may be a descriptor
    words = [kind.__doc__ if isinstance(kind.__doc__, str) else ""]
    spoken = [kind] if inspect.isfunction(kind) else [vars(kind).get(name) for name in SPEAKING]
    for function in spoken:
        if inspect.isfunction(function):
            with contextlib.suppress(OSError, tokenize.TokenError, SyntaxError):
                words += _comments(inspect.getsource(function))
    return "\n".join(words)


@lru_cache(maxsize=128)
def _comments(source: str) -> tuple[str, ...]:
    """The comments and the docstrings of a function."""
    tokens = tokenize.generate_tokens(io.StringIO(textwrap.dedent(source)).readline)
    return tuple(
        token.string for token in tokens if token.type == tokenize.COMMENT or token.string.startswith(DOCUMENT)
    )
