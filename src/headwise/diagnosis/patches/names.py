"""Names: patches of what is named wrongly: attributes, names, projections, arguments, lists of weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from headwise.diagnosis.checks.undefined_names import meanings
from headwise.diagnosis.patches.expressions import called, receiver
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edit, Edits
from headwise.targets import import_of

__all__ = ["RENAMED", "called_instead"]


def _forward(code: Code, _: Suspect) -> Iterator[Edits]:
    if isinstance(code.node, ast.FunctionDef):
        line = code.lines[code.node.lineno - 1]
        start = line.index(code.node.name, line.index("def ") + len("def "))
        yield (Edit(code.node.lineno, start, code.node.lineno, start + len(code.node.name), "forward"),)


def _attribute(code: Code, suspect: Suspect) -> Iterator[Edits]:
    name, near = str(suspect.values.get("name", "")), str(suspect.values.get("near", ""))
    read = [node for node in ast.walk(code.tree) if isinstance(node, ast.Attribute) and node.attr == name]
    read = [node for node in read if isinstance(node.ctx, ast.Load)]
    is_own = [each for each in read if code.of(each.value) == "self"]
    # of a tensor or of a library: where it was met
    there = [each for each in read if each in list(ast.walk(code.node))]
    for nodes in (is_own, there):
        if name and near and nodes:
            yield tuple(code.edit(node, f"{code.of(node.value)}.{near}") for node in nodes)


def _undefined(code: Code, suspect: Suspect) -> Iterator[Edits]:
    name = str(suspect.values.get("name", ""))
    function = next((outer for outer in code.around(code.node) if isinstance(outer, ast.FunctionDef)), code.tree)
    used = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    if written := import_of(name):
        first = next((each for each in getattr(code.tree, "body", []) if not _is_opening(each)), None)
        line = min([node.lineno for node in getattr(first, "decorator_list", [])] + [getattr(first, "lineno", 1)])
        yield (Edit(line, 0, line, 0, f"{written}\n"),)
    for meant in meanings(code.tree, function, name):
        yield tuple(code.edit(each, meant) for each in used)


def _silent(code: Code, _: Suspect) -> Iterator[Edits]:
    """The last statement's value, returned."""
    node = code.node
    if isinstance(node, ast.Expr):
        yield (code.edit(node, f"return {code.of(node.value)}"),)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        indent = " " * node.col_offset
        yield (code.edit(node, f"{code.of(node)}\n{indent}return {code.of(target)}"),)


def _raising(code: Code, _: Suspect) -> Iterator[Edits]:
    """A constructor that makes its module ready first."""
    for function in code.around(code.node):
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            start = code.edit(function.body[0], "")
            text = "super().__init__()\n" + " " * function.body[0].col_offset
            yield (Edit(start.line, start.column, start.line, start.column, text),)


def _is_opening(node: ast.AST) -> bool:
    """Whether a statement must stand before all others: a docstring, or an import from the future."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _unregistered(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    prefix = "nn" if code.has("nn") else "torch.nn"
    text, is_mapping = code.of(node.value), isinstance(node.value, ast.Dict | ast.DictComp)
    kinds = ("ModuleDict", "ParameterDict") if is_mapping else ("ModuleList", "ParameterList")
    if "Parameter(" in text:
        kinds = (kinds[1], kinds[0])
    for kind in kinds:
        yield (code.edit(node.value, f"{prefix}.{kind}({text})"),)
    if isinstance(node.value, ast.Call):
        yield (code.edit(node.value, f"{prefix}.Parameter({text})"),)


def called_instead(code: Code, _: Suspect, *, name: str, other: str) -> Iterator[Edits]:
    """A call of a layer, of another one instead."""
    calls = [node for node in ast.walk(code.node) if isinstance(node, ast.Call)]
    yield from ((code.edit(call.func, f"self.{name}"),) for call in calls if code.of(call.func) == f"self.{other}")


def _unused(code: Code, suspect: Suspect) -> Iterator[Edits]:
    name = str(suspect.values.get("name", ""))
    if name.replace(".", "").isidentifier() and isinstance(code.node, ast.expr):
        yield (code.edit(code.node, f"self.{name}({code.of(code.node)})"),)


def _shared(code: Code, suspect: Suspect) -> Iterator[Edits]:
    node, near = code.node, str(suspect.values.get("near", ""))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and near.isidentifier():
        yield (code.edit(node.func, f"self.{near}"),)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
        wanted = node.value.attr
        for part in ast.walk(code.tree):
            if isinstance(part, ast.Assign) and any(getattr(goal, "attr", "") == wanted for goal in part.targets):
                yield (code.edit(node.value, code.of(part.value)),)
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        value = code.of(node.value)
        indent = " " * node.col_offset
        lines = f"\n{indent}".join(f"{code.of(goal)} = {value}" for goal in node.targets)
        yield (code.edit(node, lines),)


def _ignored(code: Code, suspect: Suspect) -> Iterator[Edits]:
    node, name = code.node, str(suspect.values.get("name", ""))
    if not isinstance(node, ast.Call) or not name.isidentifier():
        return
    was = str(suspect.values.get("was", ""))
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == was]
    yield from ((code.edit(each, name),) for each in names)
    if len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        yield (code.edit(node.args[0], name),)


def _causal(code: Code, suspect: Suspect) -> Iterator[Edits]:
    triangles = [each for each in ast.walk(code.node) if called(each) in ("tril", "triu")]
    triangles = triangles or [each for each in ast.walk(code.tree) if called(each) in ("tril", "triu")]
    for node in triangles[:2]:
        if not isinstance(node, ast.Call):
            continue
        is_low = called(node) == "tril"
        arguments = node.args[1:] if receiver(node) is None else node.args
        shifts = [keyword.value for keyword in node.keywords if keyword.arg == "diagonal"] + arguments
        if suspect.kind == "causal-offset":
            for shift in ("0", "1"):
                if shifts:
                    yield (code.edit(shifts[0], shift),)
                elif shift == "1" and node.args:
                    yield (code.edit(node.args[-1], f"{code.of(node.args[-1])}, diagonal=1"),)
        elif isinstance(node.func, ast.Attribute):
            text = code.of(node.func)
            yield (code.edit(node.func, f"{text.removesuffix(called(node))}{'triu' if is_low else 'tril'}"),)


RENAMED = {
    "wrong-attribute": _attribute, "forward-misnamed": _forward, "undefined-name": _undefined,
    "parameters-unregistered": _unregistered, "super-init-missing": _raising, "returns-none": _silent,
    "projection-unused": _unused, "projection-shared": _shared, "input-ignored": _ignored,
    "causal-offset": _causal, "causal-inverted": _causal,
}  # fmt: skip
