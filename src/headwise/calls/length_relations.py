"""Length relations: how long inputs, and the sides of images, must be for what an error says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from torch import nn

from headwise.calls.bound_symbols import bound_to, expressions_of, free_of, inputs_of, with_times
from headwise.calls.plan import Plan, evaluated
from headwise.calls.roles import init_role
from headwise.calls.width_repairs import TOKEN_AXES

__all__ = ["covered_sides", "halved_sides", "lengthened", "multiples", "strided_sides"]

# an entry that an axis does not have
PAST = re.compile(r"index (\d+) is out of bounds for dimension \d+ with size (\d+)")
# a sample of which nothing is left
SHORT = re.compile(r"Length of all samples has to be greater than 0|Cannot pack empty tensors")
# by what sides are divided that are halved up to four times, and lengths of which much is put together
HALVINGS, LENGTHS = (2, 4, 8, 16), (16, 32)
STRIDED = nn.Conv1d | nn.Conv2d | nn.MaxPool1d | nn.MaxPool2d | nn.AvgPool1d | nn.AvgPool2d


def lengthened(plan: Plan, text: str, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """Plans in which a length has the entries that an error asks of it."""
    if SHORT.search(text):
        # lengths that are halved several times
        tokens = [name for name in free_of(plan) if name in TOKEN_AXES and name in inputs_of(plan)]
        yield from (with_times(plan, name, factor) for factor in LENGTHS for name in tokens)
    if (match := PAST.search(text)) is None:
        return
    for name in (symbol for symbol in free_of(plan) if symbol in inputs_of(plan) and symbol != "B"):
        if sizes[name] == int(match[2]):
            longer = (replace(s, least=int(match[1]) + 1) if s.name == name else s for s in plan.symbols)
            yield replace(plan, symbols=tuple(longer))


def multiples(plan: Plan, have: int, factor: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The length of an input that must be divided by something, as a multiple of it; both sides of an image at once."""
    free, inputs = free_of(plan), inputs_of(plan)
    built = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    named = next((each for each in expressions_of(built) if evaluated(each, sizes) == factor), "")
    for divisor in dict.fromkeys(each for each in (named, str(factor)) if each):
        # windows of an image are small: it has as many tokens as their squares
        small = tuple(replace(s, is_small=True) if s.name == divisor else s for s in plan.symbols)
        part = divisor if divisor.isalnum() else f"({divisor})"
        for name in (symbol for symbol in free if sizes[symbol] == have and symbol in inputs):
            images = {"h": f"n*{part}", "w": f"m*{part}"}
            if name in images and set(images) <= set(free):
                yield bound_to(replace(plan, symbols=small), images)
            else:
                yield bound_to(plan, {name: f"n*{part}"})


def halved_sides(plan: Plan) -> Iterator[Plan]:
    """Sides of an image that are halved once or several times without a remainder."""
    free, inputs = free_of(plan), inputs_of(plan)
    bound = {symbol.equals for symbol in plan.symbols if symbol.name in inputs or init_role(symbol.said) == "image"}
    for factor in HALVINGS:
        if {"h", "w"} <= set(free) & inputs:
            yield bound_to(plan, {"h": f"n*{factor}", "w": f"m*{factor}"})
        elif "n" in free and any(equals.startswith("n*") for equals in bound):
            yield with_times(plan, "n", factor)


def covered_sides(plan: Plan, height: int, width: int) -> Iterator[Plan]:
    """Sides of an image, or as many tokens, that a kernel of so many places covers: some more than it, or just it
    behind all strides.
    """
    free, inputs = free_of(plan), inputs_of(plan)
    patch = next((name for name, size in plan.sizes(-1).items() if size == height == width and name in free), "")
    small = tuple(replace(s, is_small=True) if s.name == patch else s for s in plan.symbols)
    if patch and {"h", "w"} <= set(free):
        # an image is of whole patches
        yield bound_to(replace(plan, symbols=small), {"h": f"n*{patch}", "w": f"m*{patch}"})
    larger = {"h": f"n+{height}", "w": f"t+{width}"}
    if sides := {name: each for name, each in larger.items() if name in free}:
        yield bound_to(plan, sides)
    images = [name for name, symbol in free.items() if init_role(symbol.said or name) == "image"]
    if len(images) == 2 and patch and patch not in images:
        # an image that a class is built for is of whole patches
        yield bound_to(plan, {images[0]: f"n*{patch}", images[1]: f"m*{patch}"})
    tokens = [name for name in free if name in TOKEN_AXES and name in inputs]
    built = plan.build(plan.sizes(-1)) if {"h", "w"} <= set(free) or tokens else None
    layers = built.modules() if isinstance(built, nn.Module) else ()
    strides = [_both(each.stride) for each in layers if isinstance(each, STRIDED)]
    down, across = (prod(each[side] for each in strides) for side in (0, 1))
    if {"h", "w"} <= set(free):
        if down * across > 1:
            tall = replace(plan, symbols=tuple(
                replace(s, fixed=height * down) if s.name == "h" else s for s in plan.symbols))  # fmt: skip
            yield with_times(tall, "w", width * across)
    elif tokens:
        long = (replace(s, least=height * down) if s.name in tokens else s for s in plan.symbols)
        yield replace(plan, symbols=tuple(long))


def _both(stride: int | tuple[int, ...]) -> tuple[int, ...]:
    return (stride, stride) if isinstance(stride, int) else stride * 2 if len(stride) == 1 else stride


def strided_sides(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """Sides that windows divide, as so many times more as convolutions leave out."""
    sides = {s.name: s.equals for s in plan.symbols if s.name in ("h", "w") and s.equals[:2] in ("n*", "m*")}
    built = plan.build(sizes) if sides and not any("*" in equals[2:] for equals in sides.values()) else None
    layers = [each for each in built.modules() if isinstance(each, nn.Conv2d)] if isinstance(built, nn.Module) else []
    strides = [each.stride[0] for each in layers]
    # side by side, or one behind the other
    for stride in dict.fromkeys((max(strides, default=1), prod(strides))):
        if stride > 1:
            yield bound_to(plan, {name: f"{equals}*{stride}" for name, equals in sides.items()})
