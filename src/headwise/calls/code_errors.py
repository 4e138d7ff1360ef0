"""Code errors: the errors that code raises however it is called."""

from __future__ import annotations

import io
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.calls.argument_errors import is_unknown_option, is_unpacked, is_wrong_call
from headwise.calls.error_repairs import SHAPE
from headwise.calls.failed_statement import own_frames
from headwise.calls.option_attributes import is_of_options
from headwise.calls.plan import Plan, evaluated
from headwise.recording import Guarded, seeded, tensors

__all__ = ["Silent", "is_of_code", "is_of_library"]

PROBES = 3
UNPACKED = re.compile(r"values to unpack \(expected (\d+)")
NUMBER = re.compile(r"must be Tensor, not (int|float)\b")
WHOLE = re.compile(r"but got float\b|'float' object cannot be interpreted as an integer")
# layers in a list of Python's, which torch's own list of layers does not take
NESTED = re.compile(r"^(?:list|tuple|set|dict|generator) is not a Module subclass")
# what every class has one of: an error names it without saying whose it is
SHARED = ("__init__", "__call__", "forward")
COUNT = re.compile(r"(\w+)\(\) (?:takes|missing|got an unexpected)\b")


class Latest(TorchFunctionMode):
    """A block in which the latest call of torch is known by its last name, with what it was given. linear: what the
    latest product with weights gave.
    """

    def __init__(self) -> None:
        super().__init__()
        self.name, self.args, self.options = "", tuple[Any, ...](), dict[str, Any]()
        self.linear: Any = None

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.name, self.args, self.options = getattr(func, "__name__", ""), tuple(args), dict(kwargs or {})
        result = func(*args, **self.options)
        self.linear = result if self.name == "linear" else self.linear
        return result


class Silent(TypeError):
    """A call that ran to its end and gave nothing back."""

    def __init__(self) -> None:
        super().__init__("the call gave None back")


def is_of_code(error: Exception, plan: Plan | None = None) -> bool:
    """Whether code that raised this would raise it however it is called: a name or an attribute that is nowhere, parts
    of what is no module yet, a list among layers, a number where torch takes tensors, a view of what it laid out
    otherwise, nothing that is returned, a function of its own with other arguments than it takes, an option that torch
    has not; by a plan also a fraction as a size, heads of the whole width each, and features split along another axis.
    """
    if isinstance(error, NameError | Silent) or "view size is not compatible" in str(error):
        return True
    if isinstance(error, AttributeError):
        if is_of_options(error) or (plan is not None and _is_furnished(error.obj, plan)):
            return False
        return (
            isinstance(error.obj, nn.Module | Tensor)
            or is_of_library(error.obj)
            or "before Module.__init__()" in str(error)
        )
    if isinstance(error, TypeError) and WHOLE.search(str(error)):
        return plan is not None and not any(
            isinstance(value, float) and value for value in (*plan.init.values(), *plan.call.values())
        )
    if isinstance(error, TypeError) and is_unknown_option(error):
        # a layer that the search made takes less than the one that was meant
        return plan is None or not _is_made_of(str(error).partition(".")[0], plan)
    if plan is not None and is_wrong_call(error, plan):
        return True
    if isinstance(error, ValueError) and UNPACKED.search(str(error)):
        return plan is not None and _is_split_elsewhere(plan)
    is_nested = NESTED.search(str(error)) is not None
    if isinstance(error, TypeError) and (is_nested or COUNT.search(str(error))):
        mappings = [] if plan is None else [each for each in plan.init.values() if isinstance(each, Mapping)]
        # what the constructor was given by us may take other arguments than what was meant
        is_own = not any("_expr" in mapping for mapping in mappings)
        return is_own and (is_nested or _calls_itself_wrong(error))
    if isinstance(error, RuntimeError) and SHAPE.search(str(error)):
        return plan is not None and _is_wide(error) and _is_widened(plan)
    # the number may be one that it was called with
    arguments = {} if plan is None else {name: each for name, each in plan.call.items() if not name.startswith("_")}
    is_given = any(isinstance(argument, str | int | float) for argument in arguments.values())
    return isinstance(error, TypeError) and NUMBER.search(str(error)) is not None and not is_given


def is_of_library(value: object) -> bool:
    """Whether a value is a module of torch or of Python itself, whose names are known."""
    if not isinstance(value, ModuleType):
        return False
    root, _, rest = value.__name__.partition(".")
    if root == "torch":
        # operations of an extension that is not loaded are not torch's own
        return not rest.startswith("ops")
    file = getattr(value, "__file__", None)
    return root in sys.stdlib_module_names and (file is None or file.startswith(sysconfig.get_path("stdlib")))


def _is_furnished(module: Any, plan: Plan) -> bool:
    """Whether something is a module that a constructor was given because it asked for some module."""
    return _is_made_of(type(module).__name__, plan)


def _is_made_of(kind: str, plan: Plan) -> bool:
    """Whether a constructor was given an object of a kind, by the kind's name, that the search made."""
    words = [str(value["_expr"]) for value in plan.init.values() if isinstance(value, Mapping) and "_expr" in value]
    return any(re.search(rf"\b{re.escape(kind)}\(", word) for word in words)


def _calls_itself_wrong(error: TypeError) -> bool:
    """Whether a function of the same file was called with what it does not take, by code of the file."""
    frames, match = own_frames(error), COUNT.search(str(error))
    every = list(traceback.walk_tb(error.__traceback__))
    # what a library raised says nothing of the file
    if not frames or frames[-1] != every[-1] or match is None or match[1] in SHARED:
        return False
    frame, line = frames[-1]
    if is_unpacked(frame, line, match[1]):
        # how many are handed on may be ours to say
        return False
    instance = frame.f_locals.get("self")
    function = getattr(type(instance), match[1], None) or frame.f_globals.get(match[1])
    return getattr(function, "__module__", None) == frame.f_globals.get("__name__")


def _is_wide(error: Exception) -> bool:
    """Whether more entries are asked for than what weights made has, by one of the sizes that are asked for."""
    match = SHAPE.search(str(error))
    if match is None or not own_frames(error):
        return False
    shape, count = [int(word) for word in match[1].split(",")], int(match[2])
    return -1 not in shape and count > 0 and prod(shape) % count == 0 and prod(shape) // count in shape


def _failed(plan: Plan, sizes: Mapping[str, int]) -> tuple[Exception | None, Latest]:
    """The error of a plan at some sizes, None: it runs; and the latest call of torch before it."""
    with (
        redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        torch.enable_grad(),
        seeded(),
        Guarded(),
        Latest() as latest,
    ):
        warnings.simplefilter("ignore")
        try:
            target = plan.build(sizes)
            args, options = plan.arguments(sizes)
            target(*args, **options)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the person's
            return error, latest
    return None, latest


def _is_tied(plan: Plan, sizes: Mapping[str, int]) -> bool:
    """Whether two widths that a class is built with are one, or one of them is no number."""
    try:
        widths = [evaluated(text, sizes) for text in plan.init.values() if isinstance(text, str)]
    except (ValueError, KeyError, TypeError, SyntaxError):
        return True
    return len(set(widths)) < len(widths)


def _is_widened(plan: Plan) -> bool:
    """Whether what its own weights made is seen as so many heads of the whole width each, whatever the sizes are; not
    where two widths are one that need not be.
    """
    heads = [symbol.name for symbol in plan.symbols if symbol.meaning == "heads"]
    places = set()
    for probe in range(PROBES):
        sizes = plan.sizes(probe)
        error, latest = _failed(plan, sizes)
        match, frames = SHAPE.search(str(error)), [] if error is None else own_frames(error)
        if match is None or not frames or _is_tied(plan, sizes):
            return False
        frame, _ = frames[-1]
        shape, count = [int(word) for word in match[1].split(",")], int(match[2])
        reshaped = [tensor for tensor in tensors(latest.args) if tensor.numel() == count]
        if not reshaped or not all(tensor.grad_fn is not None for tensor in reshaped) or -1 in shape:
            return False
        if not any(prod(shape) == count * sizes[head] and sizes[head] in shape for head in heads):
            return False
        places.add((frame.f_code.co_filename, frame.f_code.co_name))
    return len(places) == 1


def _is_split_elsewhere(plan: Plan) -> bool:
    """Whether what weights made, with its features last, is split into the parts that its features have, along another
    axis: as many parts are never there, however long that is.
    """
    for probe in range(PROBES):
        error, latest = _failed(plan, plan.sizes(probe))
        parts = UNPACKED.search(str(error))
        if parts is None or latest.name != "split":
            return False
        arguments = [*latest.args, *latest.options.values(), 0][:3]
        whole, size, axis = arguments if len(arguments) == len(("whole", "size", "axis")) else (None, None, None)
        if not (isinstance(whole, Tensor) and isinstance(size, int) and isinstance(axis, int)):
            return False
        # a layer of weights leaves its features last
        if whole is not latest.linear or whole.shape[-1] != size * int(parts[1]) or axis % whole.ndim == whole.ndim - 1:
            return False
    return True
