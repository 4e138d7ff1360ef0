"""Untaken branches: what a run went past: arguments and flags that the code reads on another way."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

from torch import nn

from headwise.calls import call_role, callee
from headwise.dataflow import MarkedOp, Run
from headwise.source import file_tree

__all__ = [
    "has_root_option",
    "is_asked_elsewhere", "is_chosen", "is_elsewhere", "is_of_cache", "is_read_elsewhere", "is_shared_elsewhere",
    "is_used_elsewhere",
]  # fmt: skip

RANK = re.compile(r"\w+\.(?:ndim|dim\(\))|len\(\w+\.(?:shape|size\(\))\)")
KEPT = re.compile(r"cache|past|incremental")
ROOT = re.compile(r"sqrt\(|\*\* ?\(?-?(?:0?\.5\b|1 / 2)")
HIDING = re.compile(r"mask|tri[ul]|inf\b|fill|where")
Function = ast.FunctionDef | ast.AsyncFunctionDef
# whether the question of a branch is of a kind
Asks = Callable[[ast.expr], bool]


def is_elsewhere(run: Run, name: str) -> bool:
    """Whether the code reads an argument on a way that was not gone, in what is called or in what that hands it to."""
    try:
        lines, first = inspect.getsourcelines(callee(run.target))
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return False
    if not call_role(name) and name != next(iter(run.named), ""):
        # nothing says that it was to be an input
        return _is_read(tree, name)
    gone = {entry.span.line - first + 1 for entry in run.seen if entry.span is not None}
    if _is_read_past(tree, name, gone, but=_asks_rank):
        return True
    return any(_is_read_past(each, name, gone, but=_asks_rank) for each, gone in _gone(run) if _takes(each, name))


def is_read_elsewhere(run: Run, attribute: str) -> bool:
    """Whether an attribute is read in the files that ran, but in no class or function of these that did."""
    classes = {each.__name__ for each in type(run.target).__mro__}
    is_read = False
    for tree, gone in _files(run):
        for node in tree.body:
            if not isinstance(node, Function | ast.ClassDef) or not _reads(node, attribute):
                continue
            if node.name in classes or _is_gone(node, gone):
                return False
            is_read = True
    return is_read


def is_used_elsewhere(run: Run, owner: str) -> bool:
    """Whether a sub-module, by its full name, is read in a branch that was not gone of a function that was."""
    name = next((word for word in reversed(owner.split(".")) if not word.isdigit()), owner)
    return any(_is_read_past(function, name, gone) for function, gone in _gone(run))


def is_asked_elsewhere(run: Run, flag: str) -> bool:
    """Whether a flag is read in a branch that was not gone of a function that was, which is no branch for a mask."""
    return any(_is_read_past(function, flag, gone, but=_asks_whether_given) for function, gone in _gone(run))


def is_of_cache(run: Run, name: str) -> bool:
    """Whether the code asks for a flag only where it keeps keys and values, and hides nothing there."""
    asked = [node for function, _ in _gone(run) for node in ast.walk(function) if isinstance(node, ast.If)]
    texts = [ast.unparse(ast.Module([node], [])) for node in asked if _is_read(node.test, name)]
    return bool(texts) and all(KEPT.search(text) and not HIDING.search(text) for text in texts)


def is_chosen(run: Run, entry: MarkedOp) -> bool:
    """Whether an operation stands under the question of one option of its module, which is on: `if self.mix:`."""
    span, modules = entry.span, dict(run.target.named_modules()) if isinstance(run.target, nn.Module) else {}
    owner = modules.get(entry.operation.module)
    if span is None or owner is None:
        return False
    tree = file_tree(span.file)
    for node in (node for node in ast.walk(tree or ast.Pass()) if isinstance(node, ast.If)):
        is_under = node.body[0].lineno <= span.line <= (node.body[-1].end_lineno or 0)
        if is_under and isinstance(node.test, ast.Attribute) and node.test.attr != "training":
            return vars(owner).get(node.test.attr) is True
    return False


def has_root_option(run: Run, entry: MarkedOp) -> bool:
    """Whether the module of an operation has an option that is off, `if self.scale:`, under which something is divided
    or multiplied by a root.
    """
    modules = dict(run.target.named_modules()) if isinstance(run.target, nn.Module) else {}
    owner = modules.get(entry.operation.module)
    options = [name for name, value in vars(owner).items() if value is False and name != "training"] if owner else []
    branches = [node for function, _ in _gone(run) for node in ast.walk(function) if isinstance(node, ast.If)]
    return any(
        isinstance(node.test, ast.Attribute) and node.test.attr in options and any(map(_takes_root, node.body))
        for node in branches
    )


def is_shared_elsewhere(run: Run) -> bool:
    """Whether a softmax stands in a branch that was not gone of a function that was: an option does without. Whether
    there is a mask is no option.
    """
    names = ("softmax", "Softmax")
    return any(
        _is_read_past(function, name, gone, but=_asks_whether_given) for function, gone in _gone(run) for name in names
    )


def _files(run: Run) -> Iterator[tuple[ast.Module, set[int]]]:
    """The files that a run went through, each with the lines of its operations."""
    lines: dict[str, set[int]] = {}
    for entry in run.seen:
        for span in (entry.span, *entry.operation.chain):
            if span is not None:
                lines.setdefault(span.file, set()).add(span.line)
    for file, gone in lines.items():
        if (tree := file_tree(file)) is not None:
            yield tree, gone


def _gone(run: Run) -> Iterator[tuple[Function, set[int]]]:
    """The functions that a run went through, each with the lines of its file that it went through."""
    for tree, gone in _files(run):
        for node in ast.walk(tree):
            if isinstance(node, Function) and _is_gone(node, gone):
                yield node, gone


def _is_gone(function: Function | ast.ClassDef, gone: set[int]) -> bool:
    return any(function.lineno <= line <= (function.end_lineno or 0) for line in gone)


def _takes(function: Function, name: str) -> bool:
    arguments = function.args
    return any(argument.arg == name for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _is_read_past(tree: ast.AST, name: str, gone: set[int], *, but: Asks | None = None) -> bool:
    """Whether a name is read in a branch none of whose lines were gone, or in one of two on a line, of which it is not
    known which was. but: branches that ask this do not count, as what is read there is to be read in the others too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and not _is_read(node.test, name) and _is_read(node, name):
            return True
        if but is not None and isinstance(node, ast.If) and but(node.test):
            continue
        for block in (node.body, node.orelse) if isinstance(node, ast.If) else ():
            is_gone = any(block[0].lineno <= line <= (block[-1].end_lineno or 0) for line in gone if block)
            if block and not is_gone and any(_is_read(each, name) for each in block):
                return True
    return False


def _takes_root(tree: ast.AST) -> bool:
    """Whether something is multiplied or divided by a root."""
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign)
        and isinstance(node.op, ast.Mult | ast.Div)
        and ROOT.search(ast.unparse(node)) is not None
        for node in ast.walk(tree)
    )


def _asks_rank(test: ast.expr) -> bool:
    """Whether a question is for nothing but how many axes something has."""
    if not isinstance(test, ast.Compare) or not all(
        isinstance(comparator, ast.Constant) for comparator in test.comparators
    ):
        return False
    return RANK.fullmatch(ast.unparse(test.left)) is not None


def _asks_whether_given(test: ast.expr) -> bool:
    """Whether a question is for nothing but whether a variable is None."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and ast.unparse(test).endswith("None")


def _is_read(tree: ast.AST, name: str) -> bool:
    """Whether a variable or an attribute is read by its name."""
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return any(node.id == name for node in reads) or _reads(tree, name)


def _reads(tree: ast.AST, attribute: str) -> bool:
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return any(node.attr == attribute for node in reads)
