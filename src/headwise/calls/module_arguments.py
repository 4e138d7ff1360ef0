"""Module arguments: the first drafts of a call, and modules for constructor parameters that take one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from torch import nn

from headwise.calls import plan_variants
from headwise.calls.configs import config_drafts, config_parameter, written_as
from headwise.calls.constructor_arguments import Draft, drafts
from headwise.calls.plan import Named
from headwise.calls.request import Wish
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.source_hints import Reading, read
from headwise.calls.submodules import MODULE, offered
from headwise.calls.symbols import LETTERS

__all__ = ["opening"]

# so many ways of filling one draft, and so many drafts that are filled
WAYS, MOST = 6, 6


def _furnished(candidates: Sequence[Draft], target: Any, reading: Reading, namespace: Mapping[str, Any]) -> list[Draft]:
    """The drafts with modules where the class calls what it is given; they themselves where it calls none."""
    if not any(value == MODULE for draft in candidates[:1] for value in draft.init.values()):
        return list(candidates)
    kinds = _kinds(target, namespace)
    instances = {name: _instance(name, kind, namespace) for name, kind in kinds.items()}
    return [each for draft in candidates[:MOST] for each in _filled(draft, reading, kinds, instances)]


def _filled(
    draft: Draft, reading: Reading, kinds: Mapping[str, Any], instances: Mapping[str, tuple[str, Mapping[str, Named]]]
) -> Iterator[Draft]:
    """One draft with each way of giving it modules, the likeliest first."""
    wanted = [name for name, value in draft.init.items() if value == MODULE]
    widths = _widths(draft)
    choices = [offered(name, reading.modules[name], widths, kinds) or ["torch.nn.Identity()"] for name in wanted]
    for places in islice(sorted(product(*(range(len(choice)) for choice in choices)), key=sum), WAYS):
        init, symbols = dict(draft.init), dict(draft.symbols)
        for name, options, at in zip(wanted, choices, places, strict=True):
            expression, more = instances.get(options[at], (options[at], {}))
            init[name], symbols = {"_expr": expression}, {**more, **symbols}
        yield Draft(init, symbols)


def _widths(draft: Draft) -> dict[str, str]:
    """What the width of the input, of all heads and of all key heads is called in a draft."""
    has = {name for name in ("H", "Hkv", "d", "D") if name in draft.symbols}
    heads = "H*d" if {"H"} <= has else "D"
    return {"D": "D", "H*d": heads, "Hkv*d": "Hkv*d" if "Hkv" in has else heads, "d": "d" if "H" in has else "D"}


def _kinds(target: Any, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The classes of modules and the functions of the file that a class may be given."""
    home = getattr(target, "__module__", "")
    return {
        name: kind
        for name, kind in namespace.items()
        if kind is not target
        and (inspect.isfunction(kind) or (isinstance(kind, type) and issubclass(kind, nn.Module)))
        and kind.__module__ == home
        and not _is_abstract(kind)
    }


def _is_abstract(kind: Any) -> bool:
    """Whether a class leaves what it does to those that are made of it."""
    return inspect.isabstract(kind) or bool(getattr(getattr(kind, "forward", None), "__isabstractmethod__", False))


def _instance(name: str, kind: Any, namespace: Mapping[str, Any]) -> tuple[str, Mapping[str, Named]]:
    """The expression that makes something of the file, as it is most likely made, and its symbols."""
    if not isinstance(kind, type):
        return name, {}
    draft = next(iter(drafts(parameters(kind), read(kind, namespace))), Draft({}))
    words = [f"{each}={written_as(value, draft.symbols)}" for each, value in draft.init.items()]
    return f"{name}({', '.join(words)})", draft.symbols


def opening(target: Any, reading: Reading, namespace: Mapping[str, Any], wish: Wish, *, has_heads: bool) -> list[Draft]:
    """What a target may be built of, the likeliest first. has_heads: whether its call takes a number of heads."""
    symbols = wish.symbols
    if not isinstance(target, type):
        return plan_variants.unbuilt_drafts(symbols, wish.lengths, has_heads=has_heads)
    params = parameters(target)
    config, candidates = config_parameter(params, reading), drafts(params, reading, wish.init)
    if config is not None and config.name not in wish.init:
        others = [parameter for parameter in params if parameter is not config]
        candidates = config_drafts(config, others, target, reading, namespace, wish.init)
    candidates = _furnished(candidates, target, reading, namespace)
    if wish.numbers.init:
        candidates = [Draft(wish.numbers.built(draft.init), draft.symbols) for draft in candidates]
    candidates = [
        Draft(draft.init, {**draft.symbols, **plan_variants.evened(symbols, draft.symbols)}) for draft in candidates
    ]
    # what the file itself gives a parameter of this name may stand elsewhere in it as well
    sizes = {name: size for name, size in reading.numbers.items() if init_role(name) in LETTERS}
    return [
        *candidates,
        *(plan_variants.pinned_to(draft, sizes) for draft in candidates[:1] if sizes.keys() & draft.init.keys()),
    ]
