"""Configs: what is given to a constructor that takes its sizes in one object."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

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


def config_parameter(own: Sequence[inspect.Parameter], reading: Reading) -> inspect.Parameter | None:
    """The parameter of a constructor that takes a config; None: there is none."""
    found = [each for each in own if init_role(each.name) == "config" and reading.attributes.get(each.name)]
    if found:
        return found[0]
    needed = [each for each in own if each.default is EMPTY]
    if len(needed) == 1 and len(reading.attributes.get(needed[0].name, ())) > 1:
        return needed[0]
    return None


def config_drafts(
    parameter: inspect.Parameter,
    others: Sequence[inspect.Parameter],
    target: Any,
    reading: Reading,
    namespace: Mapping[str, Any],
    given: Mapping[str, Any],
) -> list[Draft]:
    """The drafts of a constructor whose sizes are in a config."""
    kept = [name for name in reading.attributes if name == parameter.name or init_role(name) == "config"]
    read = tuple(dict.fromkeys(each for name in kept for each in reading.attributes[name]))
    is_mapping = all(each.startswith("[") for each in read)
    names = [each.strip("[]") for each in read if each.startswith("[") == is_mapping]
    kind = None if is_mapping else _kind(parameter, names, target, namespace)
    own, extra, opening = _fields(kind, names, is_mapping=is_mapping)
    beside, out = _beside(others, own, reading, {k: v for k, v in given.items() if k != parameter.name}), []
    for draft, rest in ((one, other) for other in beside for one in _ways(own, names, kind, reading)):
        known = rest.known
        words = [f"{name}={written_as(value, draft.known)}" for name, value in draft.init.items()]
        if opening in PLAIN:
            # what keeps its default is read all the same
            kept_as_is = [each for each in own if each.name not in draft.init and each.default is not EMPTY]
            words += [f"{each.name}={each.default!r}" for each in kept_as_is]
        expression = {"_expr": f"{opening}({', '.join([*words, *extra])})"}
        init = {parameter.name: expression, **rest.init}
        evens = {
            name: replace(each, even=True)
            for name, each in known.items()
            if name in draft.known and draft.known[name].even and not each.equals
        }
        out.append(Draft({**init, **given}, {**draft.known, **known, **evens}))
    return out


def _ways(
    own: Sequence[inspect.Parameter], names: Sequence[str], kind: tuple[str, type] | None, reading: Reading
) -> Iterator[Draft]:
    """The ways to fill in a config: the heads that are not read here are as many as those that are."""
    mapped = {} if kind is None else getattr(kind[1], "attribute_map", {})
    is_read = {name: name in {*names, *(mapped.get(each) for each in names)} for name in (each.name for each in own)}
    roles = {each.name: init_role(each.name) for each in own if each.default is EMPTY or type(each.default) is int}
    heads = sorted((name for name in roles if roles[name] == "heads"), key=lambda name: not is_read[name])
    unread = [name for name in heads[1:] if not is_read[name]]
    yield from _tied(own, unread, reading)[: MOST * 3]
    # a config may check that the layers are as many as another of its lists is long
    fewer = [each for each in own if init_role(each.name) != "layers" or each.default is EMPTY]
    yield from _tied(fewer, unread, reading)[:FEW] if len(fewer) < len(own) else []
    yield from _tied(own, heads[1:], reading)[:FEW] if heads[1:] != unread else []
    # a width of heads that is nothing by default, and is read all the same
    unset = [each.name for each in own if each.default is None and init_role(each.name) == "head_width"]
    asked = [each.replace(default=EMPTY) if each.name in unset and is_read[each.name] else each for each in own]
    yield from _tied(asked, heads[1:], reading)[:FEW] if asked != [*own] else []


def _tied(own: Sequence[inspect.Parameter], tied: Sequence[str], reading: Reading) -> list[Draft]:
    """The drafts of a config some of whose numbers of heads are one."""
    found = drafts([each for each in own if each.name not in tied], reading)
    same = dict.fromkeys(tied, "H")
    return [replace(each, init={**each.init, **(same if "H" in each.known else {})}) for each in found]


def _beside(
    others: Sequence[inspect.Parameter], own: Sequence[inspect.Parameter], reading: Reading, given: Mapping[str, Any]
) -> list[Draft]:
    """What is given beside a config: its heads may divide a width that is handed over by itself."""
    found = drafts(others, reading, given)[:1] or [Draft({})]
    heads = next((each for each in own if init_role(each.name) == "heads"), None)
    if heads is None or "D" not in found[0].known or found[0].known["D"].equals:
        return found
    shared = (each for each in drafts([*others, heads], reading, given) if "D" in each.known)
    more = next((each for each in shared if each.known["D"].equals), None)
    if more is None:
        return found
    return [*found, replace(more, init={name: each for name, each in more.init.items() if name != heads.name})]


def _kind(
    parameter: inspect.Parameter, names: Sequence[str], target: Any, namespace: Mapping[str, Any]
) -> tuple[str, type] | None:
    """The class of a config and how it is said; None: it is nowhere to be seen."""
    said = parameter.annotation
    if isinstance(said, str):
        said = namespace.get(said)
    library = _library_kind(target, names)
    if isinstance(said, type) and _covers(said, ()):
        # what is said stands, but where a config beside it has what is read and that one has not
        is_short = library is not None and _count(library, names) > _count(said, names)
        if not is_short:
            return _said(said, namespace), said
    if library is not None:
        return _said(library, namespace), library
    fitting = [
        (name, each)
        for name, each in namespace.items()
        if isinstance(each, type) and not each.__module__.startswith("torch") and _covers(each, names)
    ]
    return min(fitting, key=lambda each: len(_known(each[1])), default=None)


def _library_kind(target: Any, names: Sequence[str]) -> type | None:
    """The config class that a library of models has beside a class of layers."""
    module = str(getattr(target, "__module__", ""))
    if not module.startswith("transformers.models."):
        return None
    beside = sys.modules.get(module.replace(".modeling_", ".configuration_"))
    found = [
        each
        for name, each in vars(beside).items()
        if isinstance(each, type) and name.endswith("Config") and each.__module__ == beside.__name__
    ] if beside is not None else []  # fmt: skip
    named = getattr(target, "__name__", "")
    return max(found, key=lambda each: (_count(each, names), *_common(each.__name__, named)), default=None)


def _count(kind: type, names: Sequence[str]) -> int:
    known, mapped = _known(kind), getattr(kind, "attribute_map", {})
    return sum(name in known or name in mapped for name in names)


def _common(a: str, b: str) -> tuple[int, int]:
    """How long a start two names share; of those with the same, the shorter is better."""
    count = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return count, -len(a)


def _said(kind: type, namespace: Mapping[str, Any]) -> str:
    if namespace.get(kind.__name__) is kind:
        return str(kind.__name__)
    return f"__import__({kind.__module__!r}, fromlist=['{kind.__name__}']).{kind.__name__}"


def _known(kind: type) -> dict[str, Any]:
    """What a config class can be given or has, with the defaults."""
    out = {name: value for parent in reversed(kind.__mro__[:-1]) for name, value in vars(parent).items()}
    out = {name: value for name, value in out.items() if not name.startswith("_") and not callable(value)}
    return {**out, **{each.name: each.default for each in parameters(kind)}}


def _covers(kind: type, names: Sequence[str]) -> bool:
    """Whether a class can be made with keywords, and has what is read."""
    known = _known(kind)
    mapped = getattr(kind, "attribute_map", {})
    has = [name for name in names if name in known or name in mapped or hasattr(kind, name)]
    return len(has) == len(names) and (bool(parameters(kind)) or bool(known))


def _fields(
    kind: tuple[str, type] | None, names: Sequence[str], *, is_mapping: bool
) -> tuple[list[inspect.Parameter], list[str], str]:
    """The parameters of a config that matter, what else is written into it, and what comes before the bracket."""
    if kind is None or not parameters(kind[1]):
        known = {} if kind is None else _known(kind[1])
        own = [_parameter(name, known.get(name, EMPTY)) for name in dict.fromkeys(names) if not _is_method(name)]
        plain = [each for each in own if each.default is not EMPTY and init_role(each.name) == ""]
        extra = [f"{each.name}={each.default!r}" for each in plain]
        return [each for each in own if each not in plain], extra, "dict" if is_mapping else "SimpleNamespace"
    said, found = kind
    mapped = getattr(found, "attribute_map", {})
    wanted = {mapped.get(name, name) for name in names} | set(names)
    if found.__module__.startswith("transformers."):
        # what is read deep inside, or by the config itself
        deep = [each for each in parameters(found) if init_role(each.name) in DEEP]
        # a list holds one for each of several stages
        listed = {each.name for each in deep if isinstance(each.default, list | tuple)}
        wanted = (wanted | {each.name for each in deep}) - listed
    own = [
        each
        for each in parameters(found)
        if (each.name in wanted or each.default is EMPTY) and each.default is not dataclasses.MISSING
    ]
    extra = ["attn_implementation='eager'"] if found.__module__.startswith("transformers.") else []
    return own, extra, said


def _is_method(name: str) -> bool:
    return name in ("get", "keys", "items", "copy", "values", "update", "to_dict", "pop")


def _parameter(name: str, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


def written_as(value: Any, known: Mapping[str, Named]) -> str:
    """A value as Python, sizes as expressions in symbols."""
    if isinstance(value, Mapping) and "_expr" in value:
        return str(value["_expr"])
    if isinstance(value, Mapping) and "_tuple" in value:
        return f"({', '.join(written_as(each, known) for each in value['_tuple'])},)"
    symbols = {*known, "B", "L", "S", "H", "d", "D", "g", "n", "dv", "Hkv"}
    if isinstance(value, str) and value and set(spoken(value)) <= symbols:
        return value
    return repr(value)
