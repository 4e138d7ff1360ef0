"""First drafts: the drafts that a search begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.calls import plan_variants
from headwise.calls.configs import config_drafts, config_parameter
from headwise.calls.constructor_arguments import Draft, drafts
from headwise.calls.module_arguments import furnished
from headwise.calls.request import Wish
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import LETTERS

__all__ = ["opening"]


def opening(target: Any, reading: Reading, namespace: Mapping[str, Any], wish: Wish, *, has_heads: bool) -> list[Draft]:
    """What a target may be built of, the likeliest first. has_heads: whether its call takes a number of heads."""
    given = wish.known
    if not isinstance(target, type):
        return plan_variants.unbuilt_drafts(given, wish.lengths, has_heads=has_heads)
    own = parameters(target)
    config, found = config_parameter(own, reading), drafts(own, reading, wish.init)
    if config is not None and config.name not in wish.init:
        others = [each for each in own if each is not config]
        found = config_drafts(config, others, target, reading, namespace, wish.init)
    found = furnished(found, target, reading, namespace)
    if wish.numbers.init:
        found = [Draft(wish.numbers.built(each.init), each.known) for each in found]
    found = [Draft(each.init, {**each.known, **plan_variants.evened(given, each.known)}) for each in found]
    # what the file itself gives a parameter of this name may stand elsewhere in it as well
    sizes = {name: size for name, size in reading.numbers.items() if init_role(name) in LETTERS}
    return [*found, *(plan_variants.pinned_to(each, sizes) for each in found[:1] if sizes.keys() & each.init.keys())]
