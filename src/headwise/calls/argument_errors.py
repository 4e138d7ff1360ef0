"""Argument errors: calls in code that fail whatever the inputs are, by how many arguments or which kind they get."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch import nn

from headwise.calls.error_repairs import own_frames
from headwise.calls.plan import Plan
from headwise.calls.unknown_options import calls_at, is_written_out, value_in

__all__ = ["is_wrong_call", "is_wrong_kind"]

COUNT = re.compile(r"\w+\(\) (?:takes|missing|got an unexpected|got multiple)\b")
KINDS = re.compile(
    r"'([\w.]+)' object is not (?:callable|subscriptable|iterable)|unsupported operand type\(s\) for .+: "
    r"'([\w.]+)' and '([\w.]+)'|must be Tensor, not ([\w.]+)|'(tuple)' object has no attribute"
)
CONTAINER = re.compile(r'Module \[(ModuleList|ModuleDict)\] is missing the required "forward" function')
# kinds of values that no argument of a plan has: methods, sizes, classes and layers themselves
MADE = frozenset({
    "tuple", "torch.Size", "Size", "method", "builtin_function_or_method", "method-wrapper", "type", "module",
    "generator", "ModuleList", "ModuleDict", "Parameter", "Linear", "Dropout", "LayerNorm", "Softmax",
    "MultiheadAttention",
})  # fmt: skip


def is_wrong_call(error: Exception, plan: Plan) -> bool:
    """Whether code calls a function, a class or a layer of torch or of its own file with other arguments than that
    takes, by their count and names alone.
    """
    frames = own_frames(error)
    if not isinstance(error, TypeError) or COUNT.search(str(error)) is None or not frames or _is_furnished(plan):
        return False
    frame, line = frames[-1]
    return any(_misses(call, frame, str(error)) for call in calls_at(frame, line) if is_written_out(call))


def is_wrong_kind(error: Exception, plan: Plan) -> bool:
    """Whether code takes a method, a size, a layer or the pair that a layer returns for a tensor, or calls a list of
    layers: a kind of value that none of the arguments has that a plan gives.
    """
    if not own_frames(error) or _is_furnished(plan):
        return False
    if isinstance(error, NotImplementedError):
        return CONTAINER.search(str(error)) is not None
    found = KINDS.search(str(error)) if isinstance(error, TypeError | AttributeError) else None
    if found is None:
        return False
    kinds = {kind for kind in found.groups() if kind}
    if "tuple" in kinds and any(isinstance(each, bool) for each in _values(plan)):
        # a flag may be what asks for more than one result
        return False
    return bool(kinds & MADE) and "NoneType" not in kinds


def _values(plan: Plan) -> list[Any]:
    return [*plan.init.values(), *plan.call.values()]


def _is_furnished(plan: Plan) -> bool:
    """Whether a plan gives more than tensors, sizes and flags: objects that the search made, or several values."""
    return any(isinstance(each, Mapping) and ({"_expr", "_tuple"} & each.keys()) for each in _values(plan))


def _misses(call: ast.Call, frame: FrameType, text: str) -> bool:
    """Whether what is called cannot take as many arguments, by these names."""
    function = _called(call.func, frame)
    name = "__init__" if isinstance(function, type) else getattr(function, "__name__", "")
    if function is None or name not in text.partition("()")[0].split("."):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(*call.args, **{str(each.arg): each.value for each in call.keywords})
    except TypeError:
        return True
    return False


def _called(node: ast.expr, frame: FrameType) -> Any:
    """The function that a call ends in, of torch or of the frame's file; None: it may be another each time."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or (root.id != "self" and root.id in frame.f_locals):
        return None
    value = value_in(node, frame)
    if isinstance(value, nn.Module):
        if root.id == "self" and (not isinstance(node, ast.Attribute) or not _is_set_once(node.attr, frame)):
            return None
        value = value.forward
    return value if _is_at_home(value, frame) else None


def _is_at_home(value: Any, frame: FrameType) -> bool:
    """Whether something is of torch, or of the file of a frame."""
    home = str(getattr(value, "__module__", ""))
    return home.partition(".")[0] == "torch" or home == frame.f_globals.get("__name__")


def _is_set_once(name: str, frame: FrameType) -> bool:
    """Whether a file sets an attribute of this name in one place, to the result of one call."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return False
    made = [
        (node, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == name
    ]
    choices = [node for node in ast.walk(tree) if isinstance(node, ast.If) and made and made[0][0] in ast.walk(node)]
    return len(made) == 1 and isinstance(made[0][1], ast.Call) and not choices
