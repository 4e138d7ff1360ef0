"""Undefined names: what an undefined name or a missing attribute was meant to be; the code runs with that."""

from __future__ import annotations

import ast
import builtins
import copy
import difflib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import is_of_library
from headwise.diagnosis.checks.refusals import name_of
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.repair import Change, Repair, both
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, file_tree

__all__ = ["attribute_suspect", "meanings", "name_suspect"]

# so alike is a name of the code itself to what was meant, and so alike one of torch's
OWN, TORCH = 0.6, 0.8
# under which attribute a function keeps what was put in place of its names
RENAMED = "_headwise_renamed"
# what a file calls torch's functions by
TORCHES = {"torch": torch, "F": torch.nn.functional}


def attribute_suspect(error: AttributeError, failure: Any, values: dict[str, object]) -> Suspect:
    """An attribute that is not there; in a module, it is put right where another is called nearly so."""
    module, name = error.obj, str(error.name)
    if isinstance(module, Tensor):
        names = [each for each in dir(Tensor) if not each.startswith("_")]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        kind = "wrong-attribute" if near else "attribute-undefined"
        return Suspect(kind, failure.span, values={**values, "name": name, "near": near[0] if near else ""})
    if is_of_library(module):
        near = difflib.get_close_matches(name, [each for each in dir(module) if each[0] != "_"], n=1, cutoff=TORCH)
        kind = "wrong-attribute" if near else "attribute-undefined"
        return Suspect(kind, failure.span, values={**values, "name": name, "near": near[0] if near else ""})
    undefined = Suspect("attribute-undefined", failure.span, values={**values, "name": name})
    if not isinstance(module, nn.Module):
        return undefined
    attributes = [*module._modules, *module._parameters, *module._buffers]
    attributes += [attribute for attribute in vars(module) if not attribute.startswith("_") and attribute != "training"]
    near = difflib.get_close_matches(name, attributes, n=len(attributes) or 1, cutoff=0.5)
    # what is read elsewhere already is less likely what is meant here
    near = [
        candidate
        for candidate in near
        if difflib.SequenceMatcher(None, name, candidate).ratio() > OWN or not _is_read(failure, candidate)
    ]
    if not near:
        return undefined
    owner, right = type(module), near[0]

    def change(target: Any, _: dict[str, Any]) -> None:
        for module in target.modules() if isinstance(target, nn.Module) else ():
            if type(module).__qualname__ == owner.__qualname__ and hasattr(module, right):
                module.__dict__[name] = getattr(module, right)

    return Suspect(
        "wrong-attribute", failure.span, Repair(change=change), values={**values, "name": name, "near": right}
    )


def _is_read(failure: Any, name: str) -> bool:
    """Whether the file of a failure reads an attribute of this name of itself."""
    tree = None if failure.span is None else file_tree(failure.span.file)
    nodes = () if tree is None else ast.walk(tree)
    read = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return any(node.attr == name and _is_self(node.value) for node in read)


def name_suspect(error: NameError, span: Span | None, exam: Examination, values: dict[str, object]) -> Suspect:
    """A name that is not defined; in a method, it is put right where one that was meant lets the run go on."""
    name = name_of(error)
    suspect = Suspect("undefined-name", span, values={**values, "name": name})
    tree = None if span is None else file_tree(span.file)
    if span is None or tree is None or isinstance(error, UnboundLocalError):
        return suspect
    function = _around(tree, span.line)
    for meant in meanings(tree, function, name):
        change = _renamed(span, name, meant)
        failure = exam.run(change=both(exam.change, change)).failure
        if failure is None or failure.span != span:
            return Suspect("name-misspelt", span, Repair(change=change), values={**suspect.values, "near": meant})
    return suspect


def meanings(tree: ast.AST, function: ast.AST, name: str) -> Iterator[str]:
    """How a name in a function may have been meant, as it would be written, the likeliest first."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    if name in attributes:
        yield f"self.{name}"
    bound = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} | set(_top(tree))
    names = sorted((bound | set(dir(builtins))) - {name})
    yield from difflib.get_close_matches(name, names, n=2, cutoff=OWN)
    imported = set(_imported(tree))
    for near in difflib.get_close_matches(name, dir(torch.nn.functional), n=1, cutoff=TORCH):
        if "F" in imported:
            yield f"F.{near}"
        elif hasattr(torch, near) and "torch" in imported:
            yield f"torch.{near}"


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.asname or name.name for name in node.names)


def _top(tree: ast.AST) -> Iterator[str]:
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        for part in ast.walk(node) if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) else ():
            if isinstance(part, ast.alias):
                yield part.asname or part.name
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _around(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function about a line; the file where there is none."""
    nodes = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    return max(nodes, key=lambda node: node.lineno, default=tree)


def _renamed(span: Span, name: str, meant: str) -> Change:
    """A change of a target: the method about a span says what was meant, at the same places."""

    def change(target: Any, _: dict[str, Any]) -> None:
        for module in target.modules() if isinstance(target, nn.Module) else ():
            for kind in reversed(type(module).__mro__):
                for key, value in vars(kind).items():
                    if isinstance(value, FunctionType) and _holds(value.__code__, span):
                        earlier = getattr(module.__dict__.get(key), RENAMED, {})
                        function = _with_names(value, {**earlier, name: meant})
                        if function is not None:
                            module.__dict__[key] = MethodType(function, module)

    return change


def _holds(code: CodeType, span: Span) -> bool:
    """Whether a function is the one about a span."""
    place = f"{span.function}."
    return code.co_filename == span.file and place.startswith(f"{code.co_qualname}.")


def _with_names(function: FunctionType, names: Mapping[str, str]) -> FunctionType | None:
    """A function with other names in place of some; None: its source is not that of its file."""
    tree = file_tree(function.__code__.co_filename)
    if tree is None:
        return None
    code = compile(
        _Renaming(names).visit(copy.deepcopy(tree)), function.__code__.co_filename, "exec", dont_inherit=True
    )
    new = _alike(code, function.__code__)
    if new is None:
        return None
    for root in TORCHES.keys() & set(new.co_names) - function.__globals__.keys():
        # the file imports it, and what did not need it was not run
        function.__globals__[root] = TORCHES[root]
    renamed = FunctionType(new, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    setattr(renamed, RENAMED, dict(names))
    return renamed


class _Renaming(ast.NodeTransformer):
    """Puts what was meant in place of names, wherever they are read."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        new = ast.parse(self._names[node.id], mode="eval").body
        for part in ast.walk(new):
            ast.copy_location(part, node)
        return new


def _alike(code: CodeType, function_code: CodeType) -> CodeType | None:
    """The code of a function in that of its file."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno, constant.co_freevars) == (
                function_code.co_qualname, function_code.co_firstlineno, function_code.co_freevars,
            ):  # fmt: skip
                return constant
            inner = _alike(constant, function_code)
            if inner is not None:
                return inner
    return None
