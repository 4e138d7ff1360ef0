"""Opened targets: code that takes a dictionary, an object or a tuple, as code that takes its parts."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from headwise.calls.function_trees import written_tree
from headwise.calls.records import RecordArgument, records_of

__all__ = ["opened"]


def opened(target: Any, call: Mapping[str, Any] | None = None) -> Any:
    """A target whose call takes the parts of each record by their own names; the target itself where it takes none, or
    where `call` says what one of them is.

    A class becomes a class of the same name that inherits from it, a module one of that class with the same weights.

    >>> def attend(batch):
    ...     return batch["q"] @ batch["k"].mT
    >>> inspect.signature(opened(attend))
    <Signature (q, k)>
    """
    kind = type(target) if isinstance(target, nn.Module) else target
    is_module = isinstance(kind, type) and issubclass(kind, nn.Module)
    function = kind.forward if is_module else kind
    is_watched = is_module and (
        type(kind) is not type or any("__init_subclass__" in vars(base) for base in kind.__mro__[:-1])
    )
    if not inspect.isfunction(function) or is_watched or (kind is not target and "forward" in vars(target)):
        return target
    records = _records(function, kind if is_module else None)
    if not records or any(record.name in (call or {}) for record in records) or _clash(function, records):
        return target
    opening = _opening(function, records)
    if not is_module:
        return opening
    shown = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    new: Any = type(kind.__name__, (kind,), {**shown, "forward": opening})
    if isinstance(target, type):
        return new
    shared = copy.copy(target)
    shared.__class__ = new
    return shared


def _clash(function: Callable[..., Any], records: Sequence[RecordArgument]) -> bool:
    """Whether a part is called as another one, or as an argument."""
    opened_names = {record.name for record in records}
    names = [name for name in inspect.signature(function).parameters if name not in opened_names]
    names += [part for record in records for part in record.parts]
    return len(set(names)) < len(names)


def _records(function: Callable[..., Any], kind: type | None) -> tuple[RecordArgument, ...]:
    """The records that a function takes, or that the methods of its class read of what it hands them."""
    tree = written_tree(function)
    members = [member for parent in reversed(kind.__mro__[:-1]) for member in vars(parent).items()] if kind else []
    trees = {name: written_tree(member) for name, member in members if inspect.isfunction(member)}
    if tree is None:
        return ()
    records = records_of(tree, {name: each for name, each in trees.items() if each is not None})
    return tuple(_of_class(record, function) for record in records)


def _of_class(record: RecordArgument, function: Callable[..., Any]) -> RecordArgument:
    """A record with the parts that its class is built of, where it is annotated with one."""
    kind = _kind(record, function)
    if kind is None:
        return record
    fields = inspect.signature(kind).parameters
    needed = frozenset(name for name, field in fields.items() if field.default is field.empty)
    return RecordArgument(record.name, "class", tuple(fields), needed)


def _kind(record: RecordArgument, function: Callable[..., Any]) -> type | None:
    """The class of a record whose parts are attributes; None: it is not known, or takes what has no name."""
    kind = inspect.signature(function).parameters[record.name].annotation
    kind = function.__globals__.get(kind) if isinstance(kind, str) else kind
    if record.way not in ("attribute", "class") or not isinstance(kind, type) or kind is inspect.Parameter.empty:
        return None
    try:
        fields = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return None
    return kind if all(field.kind in (field.POSITIONAL_OR_KEYWORD, field.KEYWORD_ONLY) for field in fields) else None


def _opening(function: Callable[..., Any], records: Sequence[RecordArgument]) -> Callable[..., Any]:
    """A function that takes the parts of records and calls another with these."""
    signature = inspect.signature(function)
    by_name = {record.name: record for record in records}

    @functools.wraps(function)
    def call_with_records(*args: Any, **options: Any) -> Any:
        if _is_as_written(signature, by_name, args, options):
            # as the code calls itself
            return function(*args, **options)
        given = opened_signature.bind(*args, **options).arguments
        values = {
            name: _packed(by_name[name], given, function) if name in by_name else given[name]
            for name in signature.parameters
            if name in by_name or name in given
        }
        bound = inspect.BoundArguments(signature, OrderedDict(values))
        return function(*bound.args, **bound.kwargs)

    opened_signature = signature.replace(parameters=_apart(signature, by_name))
    call_with_records.__signature__ = opened_signature  # type: ignore[attr-defined]
    return call_with_records


def _is_as_written(
    signature: inspect.Signature, records: Mapping[str, RecordArgument], args: tuple[Any, ...], options: dict[str, Any]
) -> bool:
    """Whether a call hands over the records themselves."""
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError:
        return False
    return not any(isinstance(given.get(name), Tensor) for name in records)


def _apart(signature: inspect.Signature, records: Mapping[str, RecordArgument]) -> list[inspect.Parameter]:
    """The parameters of a signature, with the parts of records in place of these; those that must be there first."""
    out: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        record = records.get(parameter.name)
        for part in () if record is None else record.parts:
            default = inspect.Parameter.empty if part in record.needed else None  # type: ignore[union-attr]
            out.append(inspect.Parameter(part, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
        out += [parameter] if record is None else []
    return sorted(out, key=_order)


def _order(parameter: inspect.Parameter) -> tuple[int, bool]:
    """By which parameters stand in a signature: by kind, and of those given by place or name what has no default."""
    is_placed = parameter.kind <= parameter.POSITIONAL_OR_KEYWORD
    return parameter.kind, is_placed and parameter.default is not parameter.empty


def _packed(record: RecordArgument, values: Mapping[str, Any], function: Callable[..., Any]) -> Any:
    """The record of some values, as its function reads it."""
    parts = {name: values[name] for name in record.parts if name in record.needed or values.get(name) is not None}
    if record.way == "place":
        return tuple(parts.values())
    if record.way == "key":
        return parts
    kind = _kind(record, function)
    return SimpleNamespace(**{**dict.fromkeys(record.parts), **parts}) if kind is None else kind(**parts)
