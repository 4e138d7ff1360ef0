"""Undefined names: what an undefined name or a missing attribute was meant to be; the code runs with that."""

from __future__ import annotations

import ast
import builtins
import difflib
import linecache
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import is_of_library
from headwise.diagnosis.checks.refusals import name_of
from headwise.diagnosis.suspects import Change, Suspect, both
from headwise.source import Span

__all__ = ["attribute_suspect", "meanings", "name_suspect"]

# so alike is a name of the code itself to what was meant, and so alike one of torch's
OWN, TORCH = 0.6, 0.8
# under which attribute a function keeps what was put in place of its names
RENAMED = "_headwise_renamed"
# what a file calls torch's functions by
TORCHES = {"torch": torch, "F": torch.nn.functional}


def attribute_suspect(error: AttributeError, failure: Any, said: dict[str, object]) -> Suspect:
    """An attribute that is not there; in a module, it is put right where another is called nearly so."""
    module, name = error.obj, str(error.name)
    if isinstance(module, Tensor):
        known = [each for each in dir(Tensor) if not each.startswith("_")]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        kind = "wrong-attribute" if near else "attribute-undefined"
        return Suspect(kind, failure.span, said={**said, "name": name, "near": near[0] if near else ""})
    if is_of_library(module):
        near = difflib.get_close_matches(name, [each for each in dir(module) if each[0] != "_"], n=1, cutoff=TORCH)
        kind = "wrong-attribute" if near else "attribute-undefined"
        return Suspect(kind, failure.span, said={**said, "name": name, "near": near[0] if near else ""})
    undefined = Suspect("attribute-undefined", failure.span, said={**said, "name": name})
    if not isinstance(module, nn.Module):
        return undefined
    own = [*module._modules, *module._parameters, *module._buffers]
    own += [each for each in vars(module) if not each.startswith("_") and each != "training"]
    near = difflib.get_close_matches(name, own, n=len(own) or 1, cutoff=0.5)
    # what is read elsewhere already is less likely what is meant here
    near = [
        each for each in near if difflib.SequenceMatcher(None, name, each).ratio() > OWN or not _is_read(failure, each)
    ]
    if not near:
        return undefined
    owner, right = type(module), near[0]

    def change(target: Any, _: dict[str, Any]) -> None:
        for each in target.modules() if isinstance(target, nn.Module) else ():
            if type(each).__qualname__ == owner.__qualname__ and hasattr(each, right):
                each.__dict__[name] = getattr(each, right)

    return Suspect("wrong-attribute", failure.span, said={**said, "name": name, "near": right}, change=change)


def _is_read(failure: Any, name: str) -> bool:
    """Whether the file of a failure reads an attribute of this name of itself."""
    tree = None if failure.span is None else _tree(failure.span.file)
    nodes = () if tree is None else ast.walk(tree)
    read = (each for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load))
    return any(each.attr == name and _is_self(each.value) for each in read)


def name_suspect(error: NameError, span: Span | None, exam: Any, said: dict[str, object]) -> Suspect:
    """A name that is not defined; in a method, it is put right where one that was meant lets the run go on."""
    name = name_of(error)
    found = Suspect("undefined-name", span, said={**said, "name": name})
    tree = None if span is None else _tree(span.file)
    if span is None or tree is None or isinstance(error, UnboundLocalError):
        return found
    function = _around(tree, span.line)
    for meant in meanings(tree, function, name):
        change = _renamed(span, name, meant)
        failure = exam.run(change=both(exam.change, change)).record.failure
        if failure is None or failure.span != span:
            return Suspect("name-misspelt", span, said={**found.said, "near": meant}, change=change)
    return found


def meanings(tree: ast.AST, function: ast.AST, name: str) -> Iterator[str]:
    """How a name in a function may have been meant, as it would be written, the likeliest first."""
    own = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute) and _is_self(each.value)}
    if name in own:
        yield f"self.{name}"
    bound = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    bound |= {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)} | set(_top(tree))
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
            yield from (each.asname or each.name for each in node.names)


def _top(tree: ast.AST) -> Iterator[str]:
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        for each in ast.walk(node) if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) else ():
            if isinstance(each, ast.alias):
                yield each.asname or each.name
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id


def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _around(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function about a line; the file where there is none."""
    found = [
        each for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.lineno <= line <= (each.end_lineno or each.lineno)
    ]  # fmt: skip
    return max(found, key=lambda each: each.lineno, default=tree)


def _renamed(span: Span, name: str, meant: str) -> Change:
    """A change of a target: the method about a span says what was meant, at the same places."""

    def change(target: Any, _: dict[str, Any]) -> None:
        for module in target.modules() if isinstance(target, nn.Module) else ():
            for kind in reversed(type(module).__mro__):
                for key, own in vars(kind).items():
                    if isinstance(own, FunctionType) and _holds(own.__code__, span):
                        known = getattr(module.__dict__.get(key), RENAMED, {})
                        made = _with_names(own, {**known, name: meant})
                        if made is not None:
                            module.__dict__[key] = MethodType(made, module)

    return change


def _holds(code: CodeType, span: Span) -> bool:
    """Whether a function is the one about a span."""
    place = f"{span.function}."
    return code.co_filename == span.file and place.startswith(f"{code.co_qualname}.")


def _with_names(own: FunctionType, names: Mapping[str, str]) -> FunctionType | None:
    """A function with other names in place of some; None: its source is not that of its file."""
    tree = _tree(own.__code__.co_filename)
    if tree is None:
        return None
    code = compile(_Renaming(names).visit(tree), own.__code__.co_filename, "exec", dont_inherit=True)
    new = _alike(code, own.__code__)
    if new is None:
        return None
    for root in TORCHES.keys() & set(new.co_names) - own.__globals__.keys():
        # the file imports it, and what did not need it was not run
        own.__globals__[root] = TORCHES[root]
    made = FunctionType(new, own.__globals__, own.__name__, own.__defaults__, own.__closure__)
    made.__kwdefaults__ = own.__kwdefaults__
    setattr(made, RENAMED, dict(names))
    return made


class _Renaming(ast.NodeTransformer):
    """Puts what was meant in place of names, wherever they are read."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        new = ast.parse(self._names[node.id], mode="eval").body
        for each in ast.walk(new):
            ast.copy_location(each, node)
        return new


def _alike(code: CodeType, own: CodeType) -> CodeType | None:
    """The code of a function in that of its file."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_qualname, each.co_firstlineno, each.co_freevars) == (
                own.co_qualname, own.co_firstlineno, own.co_freevars,
            ):  # fmt: skip
                return each
            found = _alike(each, own)
            if found is not None:
                return found
    return None
