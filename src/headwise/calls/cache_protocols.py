"""Cache protocols: the ways in which a target may take the keys and values of earlier tokens, by its signature."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls.cache_classes import ROOM, filled, given_by, own_names, stores
from headwise.calls.function_trees import written_tree
from headwise.calls.plan import Plan
from headwise.calls.rank_repairs import axes_of
from headwise.calls.roles import call_role, init_role
from headwise.calls.signature import EMPTY, callee, parameters
from headwise.calls.source_hints import Reading, read
from headwise.source import nodes_of

__all__ = ["CacheProtocol", "seen_names", "ways"]

FLAG = re.compile(r"cache|past|present|(^|_)kv|incremental|decod|inference|step|generat", re.IGNORECASE)
# how many tokens came before: "start", or a word of the first group with one of the second
STARTS = re.compile(
    r"^(start|first|offset|pos|position|step|t|idx|index|n_past|num_past|seen)$|^(start|offset)_|"
    r"(start|cur|curr|current|cache|past|kv|pos|seq|token|decode|step|context|rope|rotary|time|query)_?"
    r"(pos|position|idx|index|offset|len|length|start|step|shift)s?$"
)
MAKES = re.compile(
    r"(set_?up|init|build|make|create|alloc|enable|start|prepare|reset|clear).*(cache|kv|decod|state)|^reset$"
)
RENEWED = ("new", "next", "updated")
POSITIONS = ("positions",)
TABLES = ("frequencies", "cosine", "sine", "cosine_sine")


@dataclass(frozen=True)
class CacheProtocol:
    """One way to decode. name: of the argument or the attribute.

    options: given with every call; start: the argument's name and what is handed over before the first token, made
    anew for each sequence; pick: which part of a result is handed on, None: the same object, "pair": the last two.
    starts, positions: the arguments that get the position of the first new token, or of each. prepare: done to the
    target before a sequence. plan: how it is built and called apart from that. is_own: all code that keeps is the
    person's own. tables: arguments that are handed over whole, the target takes its own rows of them. is_renewed: no
    word says that it is a cache; a new one is returned.
    """

    name: str
    plan: Plan
    options: Mapping[str, Any] = field(default_factory=dict)
    start: Callable[[], dict[str, Any]] = dict
    names: tuple[str, ...] = ()
    pick: int | str | None = None
    starts: tuple[str, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    prepare: Callable[[Any], None] | None = None
    is_own: bool = True
    tables: tuple[str, ...] = ()
    is_renewed: bool = False

    def onward(self, options: dict[str, Any], result: Any) -> dict[str, Any]:
        """What is handed over with the next tokens. LookupError: the result holds no cache."""
        if self.pick is None:
            return options
        if not isinstance(result, tuple | list):
            cache = getattr(result, "past_key_values", getattr(result, "cache", None))
            if cache is None:
                raise LookupError
            return {self.names[0]: cache}
        if self.pick == "pair":
            if len(result) <= len(self.names) or len(result) < len(("output", "k", "v")):
                raise LookupError
            last = tuple(result[-2:])
            return dict(zip(self.names, last, strict=True)) if len(self.names) > 1 else {self.names[0]: last}
        cache = result[int(self.pick)] if -len(result) < int(self.pick) < len(result) else None
        if cache is None:
            raise LookupError
        if len(self.names) > 1:
            if not isinstance(cache, tuple | list) or len(cache) != len(self.names):
                raise LookupError
            return dict(zip(self.names, cache, strict=True))
        return {self.names[0]: cache}


def ways(plan: Plan, sizes: Mapping[str, int], dtype: torch.dtype) -> Iterator[CacheProtocol]:
    """The ways to decode with a target, the likeliest first. plan: that runs without a cache."""
    tables = tuple(name for name in plan.call if call_role(name) in TABLES)
    for way in _ways(plan, sizes, dtype):
        yield way
        if tables and way.starts:
            yield replace(way, tables=tables)


def _ways(plan: Plan, sizes: Mapping[str, int], dtype: torch.dtype) -> Iterator[CacheProtocol]:
    params = parameters(callee(plan.target))
    called = [param for param in params if _is_cache(param)]
    caches = called or [param for param in params if param.name in _handed_back(plan.target)]
    flags = _flags(params)
    given = {name for name, value in plan.call.items() if axes_of(value) is not None}
    starts = tuple(param.name for param in params if _is_start(param, caches) and param.name not in given)
    more = _positions(params, plan)
    reading = read(plan.target, plan.namespace)
    for way in _forms(plan, caches, reading, sizes, dtype):
        for options in flags:
            for positions in more:
                yield replace(way, options=options, starts=starts, positions=positions, is_renewed=not called)
    for way in _kept(plan, bool(caches), reading, sizes, dtype):
        for options in reversed(flags):
            for positions in more:
                if way.name or options or starts or positions or way.prepare is not None:
                    name = way.name or next(iter([*options, *starts, *positions]), "")
                    yield replace(way, name=name, options=options, starts=starts, positions=positions)


def seen_names(plan: Plan) -> list[str]:
    """The arguments that speak of a cache, by their names."""
    returned = _handed_back(plan.target)
    return [
        parameter.name
        for parameter in parameters(callee(plan.target))
        if _is_cache(parameter)
        or parameter.name in returned
        or (_is_flag(parameter) and re.search("cache|past", parameter.name))
    ]


@lru_cache(maxsize=64)
def _handed_back(target: Any) -> frozenset[str]:
    """The arguments that need not be given and of which a new one is returned for the next call: `new_memory`."""
    function = getattr(target, "forward", target)
    tree = written_tree(inspect.unwrap(getattr(function, "__func__", function)))
    returns = [node.value for node in nodes_of(tree) if isinstance(node, ast.Return)] if tree is not None else []
    names = {
        node.id for value in returns if value is not None for node in ast.walk(value) if isinstance(node, ast.Name)
    }
    spare = [parameter.name for parameter in parameters(callee(target)) if parameter.default is None]
    return frozenset(name for name in spare if {f"{word}_{name}" for word in RENEWED} & names)


def _is_flag(param: Any) -> bool:
    is_said = isinstance(param.default, bool) or str(param.annotation) in ("bool", "<class 'bool'>")
    return (is_said or call_role(param.name) == "flag") and bool(FLAG.search(param.name))


def _is_cache(param: Any) -> bool:
    if _is_flag(param) or STARTS.search(param.name.lower()) or "int" in str(param.annotation).replace("Tuple", ""):
        return False
    annotation = param.annotation if isinstance(param.annotation, str) else str(param.annotation)
    return call_role(param.name) == "cache" or bool(re.search(r"Cache|KV|Past", annotation))


def _is_start(param: Any, caches: list[Any]) -> bool:
    """Whether an argument says how many tokens came before, as one whole number."""
    if param in caches or _is_flag(param) or isinstance(param.default, bool):
        return False
    is_whole = isinstance(param.default, int) or str(param.annotation) in ("int", "<class 'int'>")
    is_named = call_role(param.name) == "start" or bool(STARTS.search(param.name.lower()))
    return is_named and (is_whole or param.default is EMPTY) and "Tensor" not in str(param.annotation)


def _flags(params: list[Any]) -> list[dict[str, Any]]:
    names = [param.name for param in params if _is_flag(param)]
    if not names:
        return [{}]
    every = dict.fromkeys(names, True)
    first = {name: True for name in names if re.search("cache|past|kv", name)}
    return [{}, *([first] if first else []), *([every] if every != first else [])]


def _positions(params: list[Any], plan: Plan) -> list[dict[str, int]]:
    """Which arguments get the position of each token that the plan leaves out, and with how many axes."""
    names = [param.name for param in params if call_role(param.name) in POSITIONS and param.name not in plan.call]
    return [{}, *([dict.fromkeys(names, 1), dict.fromkeys(names, 2)] if names else [])]


def _forms(
    plan: Plan, caches: list[Any], reading: Reading, sizes: Mapping[str, int], dtype: torch.dtype
) -> Iterator[CacheProtocol]:
    """The forms that what is handed over as an argument may have."""
    names = tuple(each.name for each in caches)
    if not names:
        return
    only = names[:1]
    for group in dict.fromkeys([names, only]):
        for pick in (-1, 1, "pair"):
            yield CacheProtocol(group[0], plan, start=lambda group=group: dict.fromkeys(group), names=group, pick=pick)  # type: ignore[misc]
    # a method makes what it gives as its own weights are; what is built may hold a module of the person's
    built = copy.deepcopy(plan.build(sizes)).to(dtype) if _is_module(plan.target) else None
    for give in () if built is None else given_by(built, sizes, dtype):
        yield CacheProtocol(only[0], plan, start=lambda give=give: {only[0]: give()}, names=only)  # type: ignore[misc]
        yield CacheProtocol(only[0], plan, start=lambda give=give: {only[0]: give()}, names=only, pick=-1)  # type: ignore[misc]
    first = caches[0]
    for kind in stores(first.name, first.annotation, plan.target, plan.namespace, reading):
        arguments = filled(kind, sizes, dtype)
        if arguments is not None:
            is_own = not kind.__module__.startswith("transformers.")

            def start(kind: type = kind, arguments: dict[str, Any] = arguments) -> dict[str, Any]:
                return {only[0]: kind(**arguments)}

            yield CacheProtocol(only[0], plan, start=start, names=only, is_own=is_own)
            yield CacheProtocol(only[0], plan, start=start, names=only, pick=-1, is_own=is_own)
    keys = [each.strip("[]") for each in reading.attributes.get(first.name, ()) if each.startswith("[")]
    if keys or "keys" in reading.attributes.get(first.name, ()) or "get" in reading.attributes.get(first.name, ()):
        for cache in ({}, dict.fromkeys(keys)):
            yield CacheProtocol(only[0], plan, start=lambda cache=cache: {only[0]: dict(cache)}, names=only)  # type: ignore[misc]
            yield CacheProtocol(only[0], plan, start=lambda cache=cache: {only[0]: dict(cache)}, names=only, pick=-1)  # type: ignore[misc]
    empties: tuple[dict[str, Any] | list[Any], ...] = ({}, [], [None, None])
    for empty in empties:
        yield CacheProtocol(only[0], plan, start=lambda empty=empty: {only[0]: empty.copy()}, names=only)  # type: ignore[misc]
    yield from _rooms(plan, names, sizes, dtype)


def _rooms(plan: Plan, names: tuple[str, ...], sizes: Mapping[str, int], dtype: torch.dtype) -> Iterator[CacheProtocol]:
    """Tensors for keys and values: with no tokens yet, or with room for all."""
    heads, batch = sizes.get("Hkv", sizes.get("H", 1)), sizes.get("B", 1)
    width = sizes.get("d", sizes.get("D", 1) // max(1, sizes.get("H", 1)))
    for count in (0, ROOM):
        for shape in ((batch, heads, count, width), (batch, count, heads, width), (batch, count, heads * width)):

            def start(shape: tuple[int, ...] = shape) -> dict[str, Any]:
                pair = tuple(torch.zeros(shape, dtype=dtype) for _ in "kv")
                return dict(zip(names, pair, strict=True)) if len(names) == len(pair) else {names[0]: pair}

            for pick in (-1, "pair", 1) if count == 0 else (None, -1, "pair"):
                yield CacheProtocol(names[0], plan, start=start, names=names[:2], pick=pick, is_own=False)


def _kept(
    plan: Plan, has_argument: bool, reading: Reading, sizes: Mapping[str, int], dtype: torch.dtype
) -> Iterator[CacheProtocol]:
    """The ways of a target that keeps what it has seen itself."""
    if not _is_module(plan.target):
        return
    plans = [plan]
    if isinstance(plan.target, type):
        names = [
            parameter.name for parameter in parameters(plan.target) if _is_flag(parameter) or _is_init_flag(parameter)
        ]
        if names:
            plans.append(replace(plan, init={**plan.init, **dict.fromkeys(names, True)}))
    for variant in plans:
        built = variant.build(sizes)
        makers = [name for name in own_names(built) if MAKES.search(name) and callable(getattr(built, name, None))]
        makers = [name for name in makers if name not in ("forward", "reset_parameters")]
        calls = {name: filled(getattr(built, name), sizes, dtype) for name in makers}
        ready = {name: arguments for name, arguments in calls.items() if arguments is not None}
        plain = vars(nn.Module()).keys()
        mine = {name: value for name, value in vars(built).items() if name not in plain} | built._buffers
        caches = [name for name, value in mine.items() if _is_held(name, value)]
        if not has_argument or ready:
            yield CacheProtocol(caches[0] if caches else "", variant, prepare=_making(ready) if ready else None)
        empty = [name for name, value in mine.items() if value is None and call_role(name) == "cache"]
        for name in empty[:1]:
            for kind in stores(name, "", plan.target, plan.namespace, reading):
                arguments = filled(kind, sizes, dtype)
                if arguments is not None:
                    yield CacheProtocol(name, variant, prepare=_setting(name, kind, arguments))
        toggles = [name for name, value in mine.items() if value is False and re.search("cache|decod", name)]
        if toggles:
            yield CacheProtocol(toggles[0], variant, prepare=_setting(toggles[0], bool, {"value": True}))


def _is_module(target: Any) -> bool:
    return isinstance(target, nn.Module) or (isinstance(target, type) and issubclass(target, nn.Module))


def _is_init_flag(param: Any) -> bool:
    return (
        isinstance(param.default, bool) and bool(re.search("cache|decode", param.name)) and init_role(param.name) != ""
    )


def _is_held(name: str, value: Any) -> bool:
    words = re.search(r"cache|past|(^|_)kv|state|memory", name)
    return bool(words) and not isinstance(value, bool) and (value is None or isinstance(value, Tensor | dict | list))


def _making(calls: Mapping[str, Mapping[str, Any]]) -> Callable[[Any], None]:
    def prepare(target: Any) -> None:
        for name, arguments in calls.items():
            getattr(target, name)(**arguments)

    return prepare


def _setting(name: str, kind: type, arguments: Mapping[str, Any]) -> Callable[[Any], None]:
    def prepare(target: Any) -> None:
        setattr(target, name, True if kind is bool else kind(**arguments))

    return prepare
