"""Unknown options: options that code gives to torch's own functions by names that these do not take."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from torch import Tensor, nn

from headwise.calls.argument_axes import last
from headwise.calls.error_repairs import own_frames

__all__ = ["calls_at", "is_unknown_option", "is_written_out", "value_in"]

UNEXPECTED = re.compile(r"(?:\w+\.)?\w+\(\) got an unexpected keyword argument '(\w+)'")
# only what torch wrote in another language says so
MISSING = re.compile(r'(\w+)\(\) missing \d+ required positional arguments?: "')
INVALID = re.compile(r"\w+\(\) received an invalid combination of arguments - got \((.*?)\), but expected(.*)", re.S)


def is_unknown_option(error: TypeError) -> bool:
    """Whether the code itself names an option that a function or a layer of torch's does not have, or leaves out what a
    function must be given.
    """
    frames, text = own_frames(error), str(error)
    if not frames:
        return False
    frame, line = frames[-1]
    if (found := UNEXPECTED.search(text)) is not None:
        return any(_is_of_torch(call.func, frame) for call in calls_at(frame, line) if _names(call, found[1]))
    if (found := MISSING.search(text)) is not None:
        # what is handed on as it came may hold anything
        called = [call for call in calls_at(frame, line) if last(call.func) == found[1]]
        return bool(called) and all(is_written_out(call) for call in called)
    if (found := INVALID.search(text)) is not None:
        given, wanted = re.findall(r"(\w+)=", found[1]), found[2]
        unknown = [name for name in given if not re.search(rf"\b{name}\b", wanted)]
        return any(_names(call, name) for call in calls_at(frame, line) for name in unknown)
    return False


def calls_at(frame: FrameType, line: int) -> Iterator[ast.Call]:
    """The calls that reach over a line of a frame's file."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def _names(call: ast.Call, name: str) -> bool:
    """Whether an option of this name is written in a call."""
    return any(each.arg == name for each in call.keywords)


def is_written_out(call: ast.Call) -> bool:
    """Whether all that is given stands in a call."""
    return all(each.arg is not None for each in call.keywords) and not any(
        isinstance(each, ast.Starred) for each in call.args
    )


def _is_of_torch(node: ast.expr, frame: FrameType) -> bool:
    """Whether a name or an attribute, as a frame has it, is a function, a class or a layer of torch's."""
    value = value_in(node, frame)
    if isinstance(node, ast.Attribute) and not last(node).startswith("_"):
        owner = value_in(node.value, frame)
        if isinstance(owner, ModuleType):
            return owner.__name__.partition(".")[0] == "torch" and value is not None
        if isinstance(owner, Tensor):
            return True
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, nn.Module) and kind.__module__.partition(".")[0] == "torch"


def value_in(node: ast.expr, frame: FrameType) -> Any:
    """What a name or an attribute holds in a frame; None: that is not known."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = value_in(node.value, frame)
        return None if owner is None else getattr(owner, node.attr, None)
    return None
