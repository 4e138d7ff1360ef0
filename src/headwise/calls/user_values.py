"""User values: the values of `--init` and `--call`, checked; numbers apart from symbols."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.calls.constructor_arguments import LEAST
from headwise.calls.plan import DTYPES, Named
from headwise.calls.roles import init_role
from headwise.calls.size_bindings import is_numeric
from headwise.calls.symbols import LEGEND, LETTERS, MORE, spoken
from headwise.wording import refusal

__all__ = ["Given", "bound_in", "checked_call", "checked_init", "pinned", "symbols_of"]

MEANS = ("attend", "blocked", "additive", "lengths")
# what is said of a call beside its arguments, and what it must be
OPTIONS: Mapping[str, tuple[type, str]] = {"_layout": (str, "text"), "_mask": (Mapping, "an object")}


@dataclass(frozen=True)
class Given:
    """What stands as the person said it, and what holds numbers, which are bound to sizes."""

    kept: Mapping[str, Any]
    freed: Mapping[str, Any]


def checked_init(init: Any, parameters: Sequence[inspect.Parameter]) -> Given:
    """What is given to a constructor, checked: what holds numbers is freed."""
    values = _checked(init, "--init", parameters)
    freed = {name: value for name, value in values.items() if is_numeric(value)}
    return Given({name: value for name, value in values.items() if name not in freed}, freed)


def checked_call(call: Any, parameters: Sequence[inspect.Parameter]) -> Given:
    """What is given to a call, checked: what holds numbers and no symbols is freed."""
    values = _checked(call, "--call", parameters)
    for name, (kind, words) in OPTIONS.items():
        if name in values and not isinstance(values[name], kind):
            raise refusal("refuse.calls.option", option=name, kinds=words, given=repr(values[name]))
    if "_mask" in values:
        _check_mask(values["_mask"], parameters)
    freed = {name: value for name, value in values.items() if is_numeric(value)}
    if "_mask" in values and is_numeric(values["_mask"]["shape"]):
        freed["_mask"] = values["_mask"]
    return Given({name: value for name, value in values.items() if name not in freed}, freed)


def _checked(arguments: Any, option: str, parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise refusal("refuse.calls.object", option=option, given=repr(arguments))
    names = [parameter.name for parameter in parameters]
    for name, value in arguments.items():
        is_known = name in names or (option == "--call" and name in OPTIONS)
        if not is_known and names:
            raise refusal("refuse.calls.unknown", option=option, name=name, names=", ".join(names))
        _check_value(option, str(name), value)
    return dict(arguments)


def _is_axis(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and value > 0)


def _check_value(option: str, name: str, value: Any) -> None:
    if isinstance(value, Mapping) and not name.startswith("_"):
        for key, kind in (("_expr", str), ("_tuple", list | tuple), ("_ids", list)):
            if key in value and not isinstance(value[key], kind):
                raise refusal("refuse.calls.value", option=option, name=name, given=repr(value))
        if not {"_expr", "_tuple", "_ids"} & set(value):
            raise refusal("refuse.calls.value", option=option, name=name, given=repr(value))
    if option == "--call" and isinstance(value, list) and not all(map(_is_axis, value)):
        raise refusal("refuse.calls.shape", name=name, given=repr(value))


def _check_mask(mask: Mapping[str, Any], parameters: Sequence[inspect.Parameter]) -> None:
    names = [parameter.name for parameter in parameters]
    argument, means, shape = (mask.get(key) for key in ("argument", "means", "shape"))
    is_right = (
        (argument in names or not names)
        and means in MEANS
        and isinstance(shape, list)
        and all(isinstance(size, int | str) for size in shape)
        and mask.get("dtype", "bool") in DTYPES
    )
    if not is_right:
        raise refusal("refuse.calls.mask", means=", ".join(MEANS), names=", ".join(names), given=repr(dict(mask)))


def symbols_of(init: Mapping[str, Any]) -> dict[str, Named]:
    """What the symbols stand for that a person uses in `--init`; a width that is a product is D."""
    out: dict[str, Named] = {}
    for name, value in _sizes_in(init):
        role = init_role(name)
        if not isinstance(value, str) or not (_is_expression(value) or value == name):
            for symbol in spoken(value):
                if symbol in LEGEND:
                    out.setdefault(symbol, LEGEND[symbol])
        elif value.isidentifier():
            named = LEGEND.get(value, Named(value, "parameter", least=LEAST if role in ("length", "batch") else 0))
            out[value] = replace(named, said=name, is_small=role in ("window", "image", "patch"))
        else:
            for symbol in spoken(value):
                out.setdefault(symbol, {**MORE, **LEGEND}.get(symbol, Named(symbol, "parameter")))
            if role == "width" and "D" not in out and "D" not in spoken(value):
                out["D"] = replace(LEGEND["D"], said=name, equals=value)
            elif role == "image":
                out[name] = Named(name, "parameter", name, equals=value)
    if {"H", "Hkv"} <= set(out) and not out["H"].equals:
        out["H"] = replace(out["H"], equals="g*Hkv")
    return out


def bound_in(call: Mapping[str, Any], init_symbols: Mapping[str, Named]) -> dict[str, Named]:
    """What the symbols stand for that a person uses in `--call` alone; one that no axis has is refused."""
    inputs = [value for name, value in call.items() if not name.startswith("_")]
    alone = {str(axis) for value in inputs for shape in _shapes(value) for axis in shape}
    mask = call.get("_mask", {})
    used = [each for value in inputs for shape in _shapes(value) for each in spoken(shape)]
    for name in [*used, *spoken(mask.get("shape", []))]:
        if name not in LEGEND and name not in MORE and name not in init_symbols and name not in alone:
            raise refusal("refuse.calls.unbound", symbol=name)
    new = [name for name in alone if name.isidentifier() and name not in LEGEND and name not in init_symbols]
    return {name: MORE.get(name, Named(name, "parameter")) for name in new}


def _shapes(value: Any) -> Iterator[list[Any]]:
    """The shapes in what one argument is given."""
    if isinstance(value, list):
        yield value
    elif isinstance(value, Mapping):
        for part in value.get("_tuple", []):
            yield from _shapes(part)
        yield from _shapes(value.get("_ids"))


def _sizes_in(init: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parameters with their values, and those of a config that is written as a call."""
    for name, value in init.items():
        if isinstance(value, Mapping) and "_expr" in value:
            try:
                tree = ast.parse(str(value["_expr"]), mode="eval")
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.keyword) and node.arg:
                    yield node.arg, ast.unparse(node.value).replace(" ", "")
        else:
            yield name, value


def _is_expression(text: str) -> bool:
    return bool(re.fullmatch(r"[\w\s+*/()-]+", text)) and (not text.isidentifier() or text in LEGEND or len(text) < 3)


def pinned(freed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Named]]:
    """Numbers that could not be freed, as symbols that are always that number."""
    init: dict[str, Any] = {}
    symbols: dict[str, Named] = {}
    for name, value in freed.items():
        letter = LETTERS[init_role(name)]
        symbol = letter if letter not in symbols else name
        same = next((key for key, each in symbols.items() if each.fixed == value and each.meaning == "width"), None)
        if letter == "D" and same is not None:
            init[name] = same
            continue
        meaning = LEGEND[letter].meaning if symbol == letter else "parameter"
        symbols[symbol] = Named(symbol, meaning, name, fixed=value)
        init[name] = symbol
    return init, symbols
