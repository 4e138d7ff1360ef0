"""Size variants: the ways in which the sizes of one constructor may hang together, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import SIDES

__all__ = ["SINGLE", "Variant", "variants"]

# no table of positions is as short
FEW = 12
# no tensor here has more axes
AXES = 5
CLONED = frozenset({"ModuleList", "clones", "clone", "get_clones"})
PREFERRED = (
    "d_model", "model_dim", "embed_dim", "emb_dim", "embed_size", "hidden_size", "hidden_dim", "num_hiddens",
    "n_embd", "dim", "dim_model", "d_out", "attn_dim", "inner_dim", "out_dim", "output_dim", "out_features",
)  # fmt: skip
SOURCES = ("d_in", "in_dim", "input_dim", "in_features", "in_channels", "dim_in", "d_input", "input_size", "c_in")
SINGLE = ("head_width", "value_head_width", "heads")
# how many heads queries have, where those of keys and values have another name
OF_QUERIES = re.compile(r"(?:n|num)_?q")
PLACED = re.compile(r"(layer|block)_?(idx|id|index|no|num|number)$")


@dataclass(frozen=True)
class Variant:
    """How the sizes of one constructor hang together.

    main: the width that D stands for; bound: widths that are H*d. is_even: head widths are. is_grouped: fewer key
    heads than heads. exact: what is as long as the input, "lengths", or "all" that is not known. spread: what the
    length of the input is made of.
    """

    roles: Mapping[str, str]
    main: str
    bound: tuple[str, ...]
    same: bool = False
    is_even: bool = False
    is_grouped: bool = True
    exact: str = ""
    spread: str = ""


def _role(parameter: inspect.Parameter, reading: Reading) -> str:
    """The role of a parameter of a constructor; "": it keeps its default, or is a free size."""
    role = init_role(parameter.name)
    default, annotation = parameter.default, str(parameter.annotation)
    if default is EMPTY and parameter.name in reading.modules:
        return "module"
    if parameter.name in reading.kernels and role in ("", "width"):
        return "kernel"
    if isinstance(default, bool) or annotation in ("bool", "<class 'bool'>"):
        return "flag"
    if role == "device":
        return role
    if parameter.name in reading.along and isinstance(default, int) and -AXES <= default < AXES:
        # the number of an axis, whatever its name has of a width
        return "axis"
    if isinstance(default, str) or annotation in ("str", "<class 'str'>") or parameter.name in reading.choices:
        return "text"
    if isinstance(default, float) and role != "dropout":
        return "number"
    if default is None and PLACED.match(parameter.name):
        # a layer that is told apart from others by its place is one of them
        return "place"
    if default is None and role not in ("key_heads", "heads", "dropout"):
        return "none"
    if role == "" and default is EMPTY and parameter.name in reading.asked:
        return "flag"
    if role in SINGLE[:2] and parameter.name in reading.bound:
        return "width"
    if role in ("", "factor") and parameter.name in reading.bound:
        # what the heads divide is a width, whatever it is called
        return "width"
    if role != "heads" and parameter.name in reading.norm_groups:
        return "norm_groups"
    if role == "" and default is EMPTY and reading.counts.get(parameter.name) in SIDES:
        # what is unpacked into the sides of an image is one
        return "grid"
    if role in ("", "width") and parameter.name in reading.patched:
        return "image"
    if role == "" and parameter.name in reading.repeated:
        return "layers"
    if role == "length" and parameter.name in ("n", "N", "L") and _is_count(default, reading):
        return "layers"
    return role


def _is_count(default: Any, reading: Reading) -> bool:
    """Whether one letter says how often something is stacked: few by default, or of modules that are cloned."""
    if isinstance(default, int):
        return default <= FEW
    return default is EMPTY and not CLONED.isdisjoint(reading.words)


def variants(
    parameters: Sequence[inspect.Parameter], reading: Reading, arguments: Mapping[str, Any]
) -> Iterator[Variant]:
    """The variants, those that differ in the fewest things from the likeliest first."""
    roles = {parameter.name: _role(parameter, reading) for parameter in parameters}
    if "heads" not in roles.values():
        roles.update((name, "heads") for name in [*roles][1:] if name in reading.letters)
    if "heads" not in roles.values() and "key_heads" in roles.values():
        # beside a number of heads of keys and values, one of queries is that of their heads
        roles.update((name, "heads") for name in [*roles] if OF_QUERIES.fullmatch(name))
    needed = [parameter.name for parameter in parameters if parameter.default is EMPTY]
    if "width" not in roles.values():
        unknown = [name for name in needed if roles[name] == ""]
        roles.update(dict.fromkeys(unknown[:1], "width"))
    wide = {name: "width" if role in SINGLE[:2] else role for name, role in roles.items()}
    has_lengths = not {"length", "batch"}.isdisjoint(roles.values()) or any(roles[name] == "" for name in needed)
    # a head width is multiplied by the heads somewhere; where a width is divided by them, other names are widths too
    is_wide = bool(reading.bound) and not any(
        name in reading.multiplied for name, role in roles.items() if role in SINGLE[:2]
    )
    bindings = [*_bindings(roles, reading), *(_bindings(wide, reading) if wide != roles else [])]
    ways: list[Sequence[Any]] = [
        sorted(bindings, key=lambda variant: variant.roles is not wide) if is_wide else bindings,
        (True, False) if reading.is_turned else (False, True),
        ("", "lengths", "all") if has_lengths else ("",),
        (True, False) if "key_heads" in roles.values() else (True,),
        list(_spreads(roles, [name for name in needed if roles[name] == ""], reading, arguments)),
    ]
    for places in sorted(product(*[range(len(each)) for each in ways]), key=lambda row: (sum(row), row[::-1])):
        base, is_even, exact, is_grouped, spread = (way[at] for way, at in zip(ways, places, strict=True))
        yield replace(base, is_even=is_even, exact=exact, is_grouped=is_grouped, spread=spread)


def _bindings(roles: Mapping[str, str], reading: Reading) -> list[Variant]:
    """Which widths are H*d, the likeliest first."""
    widths = [name for name, role in roles.items() if role == "width"]
    main = _main(widths)
    bound = tuple(name for name in widths if name in reading.bound)
    if bound and main not in bound and "head_width" not in roles.values():
        main = bound[0]
    free = Variant(roles, main, ())
    if not widths:
        return [free]
    every = Variant(roles, main, tuple(widths))
    if "heads" not in roles.values():
        parted = tuple(name for name in widths if name in reading.parted)
        out = [Variant(roles, parted[0] if main not in parted else main, parted)] if parted else []
        return [*out, free, replace(free, same=True)] if len(widths) > 1 else [*out, free]
    if bound and "head_width" not in roles.values():
        out = [replace(every, bound=bound), replace(every, bound=(main,)), every]
    else:
        out = [free, replace(free, bound=(main,)), every]
        out += [Variant(roles, name, (name,)) for name in widths if name != main]
    return [each for at, each in enumerate(out) if (each.main, each.bound) not in [(o.main, o.bound) for o in out[:at]]]


def _spreads(
    roles: Mapping[str, str], unknown: Sequence[str], reading: Reading, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """What the length of the input may be made of, so that windows divide it; "": it is free."""
    yield ""
    for name, role in roles.items():
        if role in ("window", "image", "grid") or name in unknown:
            sides = SIDES.get(reading.counts.get(name, 0), ())
            size = "*".join(f"{name}_{side}" for side in sides) or name
            if isinstance(arguments.get(name), str):
                size = arguments[name]
            square = size if sides else f"{size}*{size}"
            # an image that a class is built for is the one that comes
            ways = (square, f"n*{size}") if role in ("image", "grid") else (f"n*{size}", square)
            yield from (*ways, *([f"{size}+1"] if name in unknown else []))


def _main(widths: Sequence[str]) -> str:
    """The width that D stands for."""
    for name in PREFERRED:
        if name in widths:
            return name
    others = [name for name in widths if name not in SOURCES]
    return (others or [*widths, ""])[0]
