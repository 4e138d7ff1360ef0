"""Argument errors: whether an error comes of an argument of the wrong kind, or of an option that nothing takes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

from torch import Tensor, nn

from headwise.calls.argument_axes import last
from headwise.calls.failed_statement import own_frames
from headwise.calls.plan import Plan
from headwise.source import file_tree

__all__ = ["is_unknown_option", "is_unpacked", "is_wrong_call", "is_wrong_kind"]

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
UNEXPECTED = re.compile(r"(?:\w+\.)?\w+\(\) got an unexpected keyword argument '(\w+)'")
# only what torch wrote in another language says so
MISSING = re.compile(r'(\w+)\(\) missing \d+ required positional arguments?: "')
INVALID = re.compile(r"\w+\(\) received an invalid combination of arguments - got \((.*?)\), but expected(.*)", re.S)


def is_wrong_call(error: Exception, plan: Plan) -> bool:
    """Whether code calls a function, a class or a layer of torch or of its own file with other arguments than that
    takes, by their count and names alone.
    """
    frames = own_frames(error)
    if not isinstance(error, TypeError) or COUNT.search(str(error)) is None or not frames or _is_furnished(plan):
        return False
    frame, line = frames[-1]
    return any(_misses(call, frame, str(error)) for call in _calls_at(frame, line) if _is_written_out(call))


def is_wrong_kind(error: Exception, plan: Plan) -> bool:
    """Whether code takes a method, a size, a layer or the pair that a layer returns for a tensor, or calls a list of
    layers: a kind of value that none of the arguments has that a plan gives.
    """
    if not own_frames(error) or _is_furnished(plan):
        return False
    if isinstance(error, NotImplementedError):
        return CONTAINER.search(str(error)) is not None
    match = KINDS.search(str(error)) if isinstance(error, TypeError | AttributeError) else None
    if match is None:
        return False
    kinds = {kind for kind in match.groups() if kind}
    if "tuple" in kinds and any(isinstance(value, bool) for value in _values(plan)):
        # a flag may be what asks for more than one result
        return False
    return bool(kinds & MADE) and "NoneType" not in kinds


def _values(plan: Plan) -> list[Any]:
    return [*plan.init.values(), *plan.call.values()]


def _is_furnished(plan: Plan) -> bool:
    """Whether a plan gives more than tensors, sizes and flags: objects that the search made, or several values."""
    return any(isinstance(value, Mapping) and ({"_expr", "_tuple"} & value.keys()) for value in _values(plan))


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
        signature.bind(*call.args, **{str(keyword.arg): keyword.value for keyword in call.keywords})
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
    value = _value_in(node, frame)
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
    tree = file_tree(frame.f_code.co_filename)
    if tree is None:
        return False
    assigned = [
        (node, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == name
    ]
    choices = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and assigned and assigned[0][0] in ast.walk(node)
    ]
    return len(assigned) == 1 and isinstance(assigned[0][1], ast.Call) and not choices


def is_unknown_option(error: TypeError) -> bool:
    """Whether the code itself names an option that a function or a layer of torch's does not have, or leaves out what a
    function must be given.
    """
    frames, text = own_frames(error), str(error)
    if not frames:
        return False
    frame, line = frames[-1]
    if (match := UNEXPECTED.search(text)) is not None:
        return any(_is_of_torch(call.func, frame) for call in _calls_at(frame, line) if _names(call, match[1]))
    if (match := MISSING.search(text)) is not None:
        # what is handed on as it came may hold anything
        called = [call for call in _calls_at(frame, line) if last(call.func) == match[1]]
        return bool(called) and all(_is_written_out(call) for call in called)
    if (match := INVALID.search(text)) is not None:
        options, wanted = re.findall(r"(\w+)=", match[1]), match[2]
        unknown = [name for name in options if not re.search(rf"\b{name}\b", wanted)]
        return any(_names(call, name) for call in _calls_at(frame, line) for name in unknown)
    return False


def _calls_at(frame: FrameType, line: int) -> Iterator[ast.Call]:
    """The calls that reach over a line of a frame's file."""
    tree = file_tree(frame.f_code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def is_unpacked(frame: FrameType, line: int, name: str) -> bool:
    """Whether a call of this name on a line of a frame's file hands several values on as they came: `f(q, *angles)`."""
    return any(last(call.func) == name and not _is_written_out(call) for call in _calls_at(frame, line))


def _names(call: ast.Call, name: str) -> bool:
    """Whether an option of this name is written in a call."""
    return any(keyword.arg == name for keyword in call.keywords)


def _is_written_out(call: ast.Call) -> bool:
    """Whether all that is given stands in a call."""
    return all(keyword.arg is not None for keyword in call.keywords) and not any(
        isinstance(argument, ast.Starred) for argument in call.args
    )


def _is_of_torch(node: ast.expr, frame: FrameType) -> bool:
    """Whether a name or an attribute, as a frame has it, is a function, a class or a layer of torch's."""
    value = _value_in(node, frame)
    if isinstance(node, ast.Attribute) and not last(node).startswith("_"):
        owner = _value_in(node.value, frame)
        if isinstance(owner, ModuleType):
            return owner.__name__.partition(".")[0] == "torch" and value is not None
        if isinstance(owner, Tensor):
            return True
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, nn.Module) and kind.__module__.partition(".")[0] == "torch"


def _value_in(node: ast.expr, frame: FrameType) -> Any:
    """What a name or an attribute holds in a frame; None: that is not known."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value_in(node.value, frame)
        return None if owner is None else getattr(owner, node.attr, None)
    return None
