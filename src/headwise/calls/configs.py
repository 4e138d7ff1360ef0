"""Configs: what is given to a constructor that takes its sizes in one object."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls.config_reads import MAPPING
from headwise.calls.constructor_arguments import Draft, drafts
from headwise.calls.plan import Named
from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY, parameters
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import spoken

__all__ = ["config_drafts", "config_parameter", "written_as"]

DEEP = ("heads", "key_heads", "layers")
# ways of writing the same config
MOST, FEW = 8, 2
# what has no defaults of its own
PLAIN = ("dict", "SimpleNamespace")


def config_parameter(params: Sequence[inspect.Parameter], reading: Reading) -> inspect.Parameter | None:
    """The parameter of a constructor that takes a config; None: there is none."""
    configs = [
        parameter
        for parameter in params
        if init_role(parameter.name) == "config" and reading.attributes.get(parameter.name)
    ]
    if configs:
        return configs[0]
    needed = [parameter for parameter in params if parameter.default is EMPTY]
    if len(needed) == 1 and len(reading.attributes.get(needed[0].name, ())) > 1:
        return needed[0]
    return None


def config_drafts(
    parameter: inspect.Parameter,
    others: Sequence[inspect.Parameter],
    target: Any,
    reading: Reading,
    namespace: Mapping[str, Any],
    user_init: Mapping[str, Any],
) -> list[Draft]:
    """The drafts of a constructor whose sizes are in a config."""
    kept = [name for name in reading.attributes if name == parameter.name or init_role(name) == "config"]
    read = dict.fromkeys(each for name in kept for each in reading.attributes[name] if each not in MAPPING)
    is_mapping = all(each.startswith("[") for each in read)
    read_paths = [tuple(path.split(".")) for path in read if path.startswith("[") == is_mapping]
    # a part that holds others is no size itself
    inner = {path[:depth] for path in read_paths for depth in range(1, len(path))}
    paths = [path for path in read_paths if path not in inner]
    names = list(dict.fromkeys(path[0].strip("[]") for path in paths))
    kind = None if is_mapping else _kind(parameter, names, target, namespace)
    if kind is None:
        names = list(dict.fromkeys(path[-1].strip("[]") for path in paths))
    fields, extra, opening = _fields(kind, names, is_mapping=is_mapping)
    beside, out = _beside(others, fields, reading, {k: v for k, v in user_init.items() if k != parameter.name}), []
    for draft, rest in ((filled, alone) for alone in beside for filled in _ways(fields, names, kind, reading)):
        symbols = rest.symbols
        words = {name: written_as(value, draft.symbols) for name, value in draft.init.items()}
        if opening in PLAIN:
            # what keeps its default is read all the same
            kept_as_is = [field for field in fields if field.name not in draft.init and field.default is not EMPTY]
            words |= {each.name: repr(each.default) for each in kept_as_is}
        fields_as_code = [*(f"{name}={text}" for name, text in words.items()), *extra]
        as_code = f"{opening}({', '.join(fields_as_code)})" if kind is not None else _nested(paths, words)
        expression = {"_expr": as_code}
        init = {parameter.name: expression, **rest.init}
        evens = {
            name: replace(symbol, even=True)
            for name, symbol in symbols.items()
            if name in draft.symbols and draft.symbols[name].even and not symbol.equals
        }
        out.append(Draft({**init, **user_init}, {**draft.symbols, **symbols, **evens}))
    return out


def _nested(paths: Sequence[tuple[str, ...]], words: Mapping[str, str]) -> str:
    """A config without a class as Python, from the paths that are read of it, and the code of each field."""
    fields = []
    for part in dict.fromkeys(path[0] for path in paths):
        name, inner = part.strip("[]"), [path[1:] for path in paths if path[0] == part and len(path) > 1]
        if inner or name in words:
            fields.append(f"{name}={_nested(inner, words) if inner else words[name]}")
    opening = "dict" if all(path[0].startswith("[") for path in paths) else "SimpleNamespace"
    return f"{opening}({', '.join(fields)})"


def _ways(
    fields: Sequence[inspect.Parameter], names: Sequence[str], kind: tuple[str, type] | None, reading: Reading
) -> Iterator[Draft]:
    """The ways to fill in a config: the heads that are not read here are as many as those that are."""
    mapped = {} if kind is None else getattr(kind[1], "attribute_map", {})
    is_read = {
        name: name in {*names, *(mapped.get(each) for each in names)} for name in (field.name for field in fields)
    }
    roles = {
        field.name: init_role(field.name) for field in fields if field.default is EMPTY or type(field.default) is int
    }
    heads = sorted((name for name in roles if roles[name] == "heads"), key=lambda name: not is_read[name])
    unread = [name for name in heads[1:] if not is_read[name]]
    yield from _tied(fields, unread, reading)[: MOST * 3]
    # a config may check that the layers are as many as another of its lists is long
    fewer = [field for field in fields if init_role(field.name) != "layers" or field.default is EMPTY]
    yield from _tied(fewer, unread, reading)[:FEW] if len(fewer) < len(fields) else []
    yield from _tied(fields, heads[1:], reading)[:FEW] if heads[1:] != unread else []
    # a width of heads that is nothing by default, and is read all the same
    unset = [field.name for field in fields if field.default is None and init_role(field.name) == "head_width"]
    asked = [field.replace(default=EMPTY) if field.name in unset and is_read[field.name] else field for field in fields]
    yield from _tied(asked, heads[1:], reading)[:FEW] if asked != [*fields] else []


def _tied(fields: Sequence[inspect.Parameter], tied: Sequence[str], reading: Reading) -> list[Draft]:
    """The drafts of a config some of whose numbers of heads are one."""
    untied = drafts([field for field in fields if field.name not in tied], reading)
    same = dict.fromkeys(tied, "H")
    return [replace(each, init={**each.init, **(same if "H" in each.symbols else {})}) for each in untied]


def _beside(
    others: Sequence[inspect.Parameter],
    fields: Sequence[inspect.Parameter],
    reading: Reading,
    user_init: Mapping[str, Any],
) -> list[Draft]:
    """What is given beside a config: its heads may divide a width that is handed over by itself."""
    plain = drafts(others, reading, user_init)[:1] or [Draft({})]
    heads = next((field for field in fields if init_role(field.name) == "heads"), None)
    if heads is None or "D" not in plain[0].symbols or plain[0].symbols["D"].equals:
        return plain
    shared = (draft for draft in drafts([*others, heads], reading, user_init) if "D" in draft.symbols)
    more = next((each for each in shared if each.symbols["D"].equals), None)
    if more is None:
        return plain
    return [*plain, replace(more, init={name: each for name, each in more.init.items() if name != heads.name})]


def _kind(
    parameter: inspect.Parameter, names: Sequence[str], target: Any, namespace: Mapping[str, Any]
) -> tuple[str, type] | None:
    """The class of a config and how it is said; None: it is nowhere to be seen."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = namespace.get(annotation)
    library = _library_kind(target, names)
    if isinstance(annotation, type) and _covers(annotation, ()):
        # what is said stands, but where a config beside it has what is read and that one has not
        is_short = library is not None and _count(library, names) > _count(annotation, names)
        if not is_short:
            return _class_expression(annotation, namespace), annotation
    if library is not None:
        return _class_expression(library, namespace), library
    fitting = [
        (name, kind)
        for name, kind in namespace.items()
        if isinstance(kind, type) and not kind.__module__.startswith("torch") and _covers(kind, names)
    ]
    return min(fitting, key=lambda kind: len(_defaults(kind[1])), default=None)


def _library_kind(target: Any, names: Sequence[str]) -> type | None:
    """The config class that a library of models has beside a class of layers."""
    module = str(getattr(target, "__module__", ""))
    if not module.startswith("transformers.models."):
        return None
    beside = sys.modules.get(module.replace(".modeling_", ".configuration_"))
    configs = [
        kind
        for name, kind in vars(beside).items()
        if isinstance(kind, type) and name.endswith("Config") and kind.__module__ == beside.__name__
    ] if beside is not None else []  # fmt: skip
    named = getattr(target, "__name__", "")
    return max(configs, key=lambda kind: (_count(kind, names), *_common(kind.__name__, named)), default=None)


def _count(kind: type, names: Sequence[str]) -> int:
    defaults, mapped = _defaults(kind), getattr(kind, "attribute_map", {})
    return sum(name in defaults or name in mapped for name in names)


def _common(a: str, b: str) -> tuple[int, int]:
    """How long a start two names share; of those with the same, the shorter is better."""
    count = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return count, -len(a)


def _class_expression(kind: type, namespace: Mapping[str, Any]) -> str:
    if namespace.get(kind.__name__) is kind:
        return str(kind.__name__)
    return f"__import__({kind.__module__!r}, fromlist=['{kind.__name__}']).{kind.__name__}"


def _defaults(kind: type) -> dict[str, Any]:
    """What a config class can be given or has, with the defaults."""
    out = {name: value for parent in reversed(kind.__mro__[:-1]) for name, value in vars(parent).items()}
    out = {name: value for name, value in out.items() if not name.startswith("_") and not callable(value)}
    return {**out, **{parameter.name: parameter.default for parameter in parameters(kind)}}


def _covers(kind: type, names: Sequence[str]) -> bool:
    """Whether a class can be made with keywords, and has what is read."""
    defaults = _defaults(kind)
    mapped = getattr(kind, "attribute_map", {})
    has = [name for name in names if name in defaults or name in mapped or hasattr(kind, name)]
    return len(has) == len(names) and (bool(parameters(kind)) or bool(defaults))


def _fields(
    kind: tuple[str, type] | None, names: Sequence[str], *, is_mapping: bool
) -> tuple[list[inspect.Parameter], list[str], str]:
    """The parameters of a config that matter, what else is written into it, and what comes before the bracket."""
    if kind is None or not parameters(kind[1]):
        defaults = {} if kind is None else _defaults(kind[1])
        fields = [_parameter(name, defaults.get(name, EMPTY)) for name in dict.fromkeys(names) if name not in MAPPING]
        plain = [field for field in fields if field.default is not EMPTY and init_role(field.name) == ""]
        extra = [f"{parameter.name}={parameter.default!r}" for parameter in plain]
        return [field for field in fields if field not in plain], extra, "dict" if is_mapping else "SimpleNamespace"
    expression, config = kind
    mapped = getattr(config, "attribute_map", {})
    wanted = {mapped.get(name, name) for name in names} | set(names)
    if config.__module__.startswith("transformers."):
        # what is read deep inside, or by the config itself
        deep = [parameter for parameter in parameters(config) if init_role(parameter.name) in DEEP]
        # a list holds one for each of several stages
        listed = {parameter.name for parameter in deep if isinstance(parameter.default, list | tuple)}
        wanted = (wanted | {each.name for each in deep}) - listed
    fields = [
        param
        for param in parameters(config)
        if (param.name in wanted or param.default is EMPTY) and param.default is not dataclasses.MISSING
    ]
    extra = ["attn_implementation='eager'"] if config.__module__.startswith("transformers.") else []
    return fields, extra, expression


def _parameter(name: str, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


def written_as(value: Any, symbols: Mapping[str, Named]) -> str:
    """A value as Python, sizes as expressions in symbols."""
    if isinstance(value, Mapping) and "_expr" in value:
        return str(value["_expr"])
    if isinstance(value, Mapping) and "_tuple" in value:
        return f"({', '.join(written_as(each, symbols) for each in value['_tuple'])},)"
    names = {*symbols, "B", "L", "S", "H", "d", "D", "g", "n", "dv", "Hkv"}
    if isinstance(value, str) and value and set(spoken(value)) <= names:
        return value
    return repr(value)
