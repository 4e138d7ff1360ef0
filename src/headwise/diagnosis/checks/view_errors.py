"""View errors: why a view raised: the tensor is not contiguous, or it takes the queries' length for the keys'."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from torch import Tensor

from headwise.dataflow import MarkedOp, Run, source_of
from headwise.diagnosis.patches.movements import sized_otherwise
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation, site_of
from headwise.source import Span, code_at, function_of, last_given, loads_of, span_like

__all__ = ["asked_sizes", "view_suspect"]


def view_suspect(run: Run, operation: Operation, error: str, values: dict[str, object]) -> Suspect | None:
    """What is wrong with a view that raised. values: what is known of the error."""
    asked = asked_sizes(operation)
    shape = operation.inputs[0].shape
    count = prod(shape)
    if "view size is not compatible" in error or "Use .reshape" in error:

        def reshaped(*args: Any, **_: Any) -> Any:
            sizes = args[1:]
            is_like = len(sizes) == 1 and isinstance(sizes[0], Tensor)
            return args[0].reshape(sizes[0].shape) if is_like else args[0].reshape(*sizes)

        return Suspect("view-noncontiguous", operation.span, Repair({site_of(operation): reshaped}), values=values)
    queries, keys = run.sizes.get("L"), run.sizes.get("S")
    if queries is None or keys is None or not asked:
        return None
    for place, size in enumerate(asked):
        if size != queries:
            continue
        changed = [keys if at == place else each for at, each in enumerate(asked)]
        if prod(changed) == count or (-1 in changed and count % -prod(changed) == 0):
            return Suspect(
                "key-uses-query-length",
                operation.span,
                Repair({site_of(operation): _resized(place)}, rewriting=partial(sized_otherwise, place=place)),
                values=values,
                home=_own_size(run, operation, place),
            )
    return None


def _resized(place: int) -> Callable[..., Any]:
    """A view that leaves one of its sizes open."""

    def right(*args: Any, **options: Any) -> Any:
        sizes = list(args[1:]) if not (len(args) == 2 and isinstance(args[1], tuple | list)) else list(args[1])
        sizes = sizes or list(options.get("shape", options.get("size", ())))
        known_size = prod(each for at, each in enumerate(sizes) if at != place and each != -1)
        if -1 not in sizes:
            sizes[place] = -1
        else:
            # the other open size is that of the heads: the length stays where it was
            size = args[0].shape[place] if place < args[0].ndim else 0
            sizes[place] = (
                size if size and args[0].numel() % (known_size * size) == 0 else args[0].numel() // known_size
            )
        return args[0].reshape(sizes)

    return right


def asked_sizes(operation: Operation) -> list[int]:
    """The sizes that a view asks for."""
    inputs = [value for name, value in operation.arguments.items() if name.isdigit() and int(name) > 0]
    if len(inputs) == 1 and isinstance(inputs[0], tuple | list):
        inputs = list(inputs[0])
    return [each for each in inputs if isinstance(each, int)]


def _own_size(run: Run, operation: Operation, place: int) -> Span | None:
    """Where the length that a view takes by name was measured, where what is measured on queries has no use there.

    place: of the length among the sizes that it is asked for.
    """
    code = code_at(operation.span)
    function = None if code is None else function_of(code, code.node)
    if code is None or function is None or not isinstance(code.node, ast.Call):
        return None
    for size in _sizes(code.node, place):
        if operation.chain and any(argument.arg == size.id for argument in function.args.args):
            # a helper is handed the length
            return operation.chain[-1]
        before = last_given(function, size.id, operation.span.line)
        if before is None or not _is_measure(before.value):
            continue
        lines = {name.lineno for name in loads_of(function, size.id)}
        if _has_another(function, before):
            # the other length has a name too, and this one was taken
            continue
        if not any(entry.span.line in lines and _is_of(run, entry, 0) for entry in run.seen):
            return span_like(code, before, operation.span)
    return None


def _sizes(node: ast.Call, place: int) -> list[ast.Name]:
    """The name that a view takes for one of its sizes; where that cannot be told, all that it takes."""
    arguments = node.args
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = arguments[0].elts
    if place < len(arguments) and not any(isinstance(argument, ast.Starred) for argument in arguments):
        arguments = [arguments[place]]
        return [argument for argument in arguments if isinstance(argument, ast.Name)]
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def _has_another(function: ast.FunctionDef, measure: ast.Assign) -> bool:
    """Whether the same size of another tensor has a name in a function."""

    def parts(node: ast.expr) -> tuple[str, str]:
        if isinstance(node, ast.Subscript):
            return ast.dump(getattr(node.value, "value", node)), ast.dump(node.slice)
        of, arguments = getattr(getattr(node, "func", None), "value", node), getattr(node, "args", [])
        return ast.dump(of), ast.dump(arguments[0]) if arguments else ""

    of, which = parts(measure.value)
    others = [each for each in ast.walk(function) if isinstance(each, ast.Assign) and _is_measure(each.value)]
    return bool(which) and any(a != of and b == which for a, b in (parts(each.value) for each in others))


def _is_of(run: Run, entry: MarkedOp, source: int) -> bool:
    """Whether an operation takes tokens of an argument."""
    token_marks = [marks for marks in entry.given if marks is not None and marks.kind == "token"]
    return (
        any(source in source_of(marks.arrays["t"]).unique().tolist() for marks in token_marks)
        and len(run.argument_marks) > 1
    )


def _is_measure(node: ast.expr) -> bool:
    """Whether an expression asks a tensor for one of its sizes."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"
