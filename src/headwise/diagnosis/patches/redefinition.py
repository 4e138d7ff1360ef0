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

__all__ = ["redefined"]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# decorators that only return what they are given, and register nothing
PLAIN = ("dataclass", "dataclasses.dataclass", "no_grad", "torch.no_grad", "torch.no_grad()")


@contextlib.contextmanager
def redefined(
    target: Any, namespace: Mapping[str, Any], texts: Mapping[str, str], edits: Mapping[str, Sequence[Edit]]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """A target and its namespace as they are with edits in their source, while the block runs.

    texts, edits: by path, the texts of all files that the target is defined in. Only the definitions that an edit
    changes, and those that name them, are run, in a copy of the namespace. A LookupError where that is not enough: a
    decorator, a class inside a function, an edit outside of all definitions.
    """
    kind = type(target) if isinstance(target, nn.Module) else target
    if not (inspect.isclass(kind) or inspect.isfunction(kind)) or "." in kind.__qualname__:
        raise LookupError(f"{kind!r} is not defined at the top of a file")
    scope = dict(namespace)
    kept = {file: linecache.cache.get(file) for file in texts}
    try:
        changed = _changed(texts, edits) | {kind.__qualname__}
        for file, text in texts.items():
            edited = applied(text, edits.get(file, ()))
            linecache.cache[file] = (len(edited), None, edited.splitlines(keepends=True), file)
            _run(file, edited, changed, scope)
        yield (
            (_in_new_classes(target, changed, scope) if isinstance(target, nn.Module) else scope[kind.__name__]),
            scope,
        )
    finally:
        for file, lines in kept.items():
            linecache.cache.pop(file, None)
            if lines is not None:
                linecache.cache[file] = lines


def _definitions(text: str) -> list[Definition]:
    return [node for node in ast.parse(text).body if isinstance(node, Definition)]


def _changed(texts: Mapping[str, str], edits: Mapping[str, Sequence[Edit]]) -> set[str]:
    """The names of the definitions that edits change, and of those that name them."""
    changed, named = set[str](), dict[str, set[str]]()
    for file, text in texts.items():
        left = {line for edit in edits.get(file, ()) for line in _lines(edit)}
        for node in _definitions(text):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            inside = left & set(range(first, (node.end_lineno or first) + 1))
            changed |= {node.name} if inside else set()
            left -= inside
            named[node.name] = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if left:
            raise LookupError(f"lines {sorted(left)} of {file} are in no definition")
    while more := {name for name, names in named.items() if name not in changed and names & changed}:
        changed |= more
    return changed


def _lines(edit: Edit) -> range:
    return range(edit.line, max(edit.line, edit.end_line - (edit.end_column == 0)) + 1)


def _run(file: str, text: str, changed: Set[str], scope: dict[str, Any]) -> None:
    """Run the definitions of a file that are changed."""
    nodes = [node for node in _definitions(text) if node.name in changed]
    for node in nodes:
        if getattr(scope.get(node.name), "__module__", None) != scope.get("__name__"):
            raise LookupError(f"{node.name} is not of the module of the target")
        if any(ast.unparse(each) not in PLAIN for each in node.decorator_list):
            raise LookupError(f"{node.name} has a decorator")
    exec(compile(ast.Module([*nodes], []), file, "exec", flags=_flags(scope), dont_inherit=True), scope)


def _flags(scope: Mapping[str, Any]) -> int:
    """The flags of the `from __future__` imports of a namespace."""
    features = [vars(__future__)[name] for name in __future__.all_feature_names]
    ids = set(map(id, scope.values()))
    return sum(each.compiler_flag for each in features if id(each) in ids)


def _in_new_classes(target: nn.Module, changed: Set[str], scope: Mapping[str, Any]) -> nn.Module:
    """A copy of a module, each part of which is of its class as it is defined now."""
    copied = apart(target)
    for module in copied.modules():
        kind = type(module)
        if kind.__qualname__ in changed and kind.__module__ == scope.get("__name__"):
            module.__class__ = scope[kind.__qualname__]
    return copied
