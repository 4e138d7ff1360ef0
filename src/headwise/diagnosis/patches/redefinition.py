"""Redefinition: a class or function in memory as its source with edits defines it; the person's own stays as it is."""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import linecache
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from torch import nn

from headwise.diagnosis.modules import apart
from headwise.source import Edit, applied

__all__ = ["redefined", "source_file"]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef
# decorators that only wrap what they are given, and register nothing
PLAIN = frozenset({
    "abstractmethod", "classmethod", "dataclass", "dataclasses.dataclass", "no_grad", "property", "staticmethod",
    "torch.no_grad", "torch.no_grad()", "torch.inference_mode()",
})  # fmt: skip


def source_file(target: Any) -> str:
    """The file that defines a class, a function, or the class of a module; "": it is not known."""
    kind = type(target) if isinstance(target, nn.Module) else target
    values = vars(kind).values() if isinstance(kind, type) else [kind]
    return next((value.__code__.co_filename for value in values if inspect.isfunction(value)), "")


@contextlib.contextmanager
def redefined(
    target: Any, namespace: Mapping[str, Any], text: str, edits: Sequence[Edit]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """A target and its namespace as they are with edits in the file that defines it, while the block runs.

    text: of that file. Only the definitions that an edit changes, and those that name them, are run, in a copy of the
    namespace. A LookupError where that is not enough, or might do more: a decorator, a metaclass or an
    `__init_subclass__`, a class inside a function, names that are used outside of all definitions.
    """
    kind, file = type(target) if isinstance(target, nn.Module) else target, source_file(target)
    if not (inspect.isclass(kind) or inspect.isfunction(kind)) or "." in kind.__qualname__ or not file:
        raise LookupError(f"{kind!r} is not defined at the top of a file")
    lines, scope = linecache.cache.get(file), dict(namespace)
    try:
        changed = _changed(text, edits, is_built=isinstance(target, nn.Module)) | {kind.__qualname__}
        edited = applied(text, edits)
        linecache.cache[file] = (len(edited), None, edited.splitlines(keepends=True), file)
        _run(file, edited, changed, scope)
        yield (
            (_in_new_classes(target, changed, scope) if isinstance(target, nn.Module) else scope[kind.__name__]),
            scope,
        )
    finally:
        linecache.cache.pop(file, None)
        if lines is not None:
            linecache.cache[file] = lines


def _changed(text: str, edits: Sequence[Edit], *, is_built: bool) -> set[str]:
    """The names of the definitions that edits change, and of those that name them. is_built: the target is a module,
    whose constructor runs no more.
    """
    tree = ast.parse(text)
    definitions = [node for node in tree.body if isinstance(node, Definition)]
    left = {line for edit in edits for line in _lines(edit)}
    changed: set[str] = set()
    for node in definitions:
        inside = left & _lines_of(node)
        changed |= {node.name} if inside else set()
        left -= inside
        constructors = [part for part in ast.walk(node) if isinstance(part, Function) and part.name == "__init__"]
        if is_built and any(inside & _lines_of(part) for part in constructors):
            raise LookupError(f"the constructor of {node.name} has run")
    if left:
        raise LookupError(f"lines {sorted(left)} are in no definition")
    named = {node.name: _names(node) for node in definitions}
    while more := {name for name, names in named.items() if name not in changed and names & changed}:
        changed |= more
    outside = [node for node in tree.body if not isinstance(node, Definition) and not _is_guard(node)]
    if kept := {name for node in outside for name in _names(node)} & changed:
        raise LookupError(f"{sorted(kept)} are used outside of all definitions")
    return changed


def _lines(edit: Edit) -> range:
    return range(edit.line, max(edit.line, edit.end_line - (edit.end_column == 0)) + 1)


def _lines_of(node: Definition) -> set[int]:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return set(range(first, (node.end_lineno or first) + 1))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_guard(node: ast.stmt) -> bool:
    """Whether a statement runs only where its file is a program."""
    return isinstance(node, ast.If) and "__name__" in _names(node.test)


def _run(file: str, text: str, changed: Set[str], scope: dict[str, Any]) -> None:
    """Run the definitions of a file that are changed."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, Definition) and node.name in changed]
    for node in nodes:
        kind = scope.get(node.name)
        if getattr(kind, "__module__", None) != scope.get("__name__"):
            raise LookupError(f"{node.name} is not of the module of the target")
        if reason := _more_than_defines(node, kind):
            raise LookupError(f"{node.name} has {reason}")
    exec(compile(ast.Module([*nodes], []), file, "exec", flags=_flags(scope), dont_inherit=True), scope)


def _more_than_defines(node: Definition, kind: Any) -> str:
    """What a definition does besides defining, when it is run once more; "": nothing."""
    functions = [part for part in ast.walk(node) if isinstance(part, Definition)]
    if any(ast.unparse(each) not in PLAIN for part in functions for each in part.decorator_list):
        return "a decorator"
    if isinstance(node, ast.ClassDef):
        bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in ("builtins", "torch")]
        if type(kind) is not type or any("__init_subclass__" in vars(base) for base in bases):
            return "a base that hears of its classes"
        if not all(_is_plain(part) for part in node.body):
            return "statements of its own"
    return ""


def _is_plain(node: ast.stmt) -> bool:
    """Whether a statement of a class body defines a function, or a constant, or says something."""
    value = getattr(node, "value", None)
    return isinstance(node, Function | ast.Pass) or (
        isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr)
        and (value is None or not any(isinstance(part, ast.Call) for part in ast.walk(value)))
    )


def _flags(scope: Mapping[str, Any]) -> int:
    """The flags of the `from __future__` imports of a namespace."""
    features = [vars(__future__)[name] for name in __future__.all_feature_names]
    ids = set(map(id, scope.values()))
    return sum(feature.compiler_flag for feature in features if id(feature) in ids)


def _in_new_classes(target: nn.Module, changed: Set[str], scope: Mapping[str, Any]) -> nn.Module:
    """A copy of a module, each part of which is of its class as it is defined now."""
    copied = apart(target)
    for module in copied.modules():
        kind = type(module)
        if kind.__qualname__ in changed and kind.__module__ == scope.get("__name__"):
            module.__class__ = scope[kind.__qualname__]
    return copied
