"""Constructor arguments: the ways in which a constructor is most likely called, the likeliest first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

from headwise.calls.plan import Named
from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY, parameters
from headwise.calls.size_variants import SINGLE, Variant, variants
from headwise.calls.source_hints import Reading
from headwise.calls.submodules import MODULE
from headwise.calls.symbols import LEGEND, MORE, SIDES
from headwise.calls.width_divisors import divided

__all__ = ["EMPTY", "LEAST", "Draft", "drafts", "parameters"]

# no length of an argument is longer
LEAST = 43
MOST = 48
# how many windows lie along each side of an image
COUNTS = ("n", "m", "t")
SIZES = ("length", "window", "image", "grid", "patch", "vocabulary")
# what is given where nothing is known but the kind; EMPTY where a symbol is better
PLAIN: Mapping[str, Any] = {
    "flag": False, "bias": False, "place": 0, "layers": 2, "factor": 2, "norm_groups": 1, "number": 0.5,
    "none": None, "text": "", "device": "cpu", "kernel": 3, "dtype": {"_expr": "torch.float32"}, "dropout": 0.0,
    "activation": {"_expr": "torch.nn.GELU"}, "norm": {"_expr": "torch.nn.LayerNorm"}, "module": MODULE,
}  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """What a constructor is given, and what the symbols stand for."""

    init: Mapping[str, Any]
    symbols: Mapping[str, Named] = field(default_factory=dict)


def drafts(params: Sequence[inspect.Parameter], reading: Reading, init: Mapping[str, Any] | None = None) -> list[Draft]:
    """What the parameters may be given, the likeliest first.

    init: what the user gives to some of them, which stands.
    """
    init = init or {}
    out: list[Draft] = []
    for variant in variants(params, reading, init):
        draft = _Writer(variant, reading).draft(params)
        draft = Draft({**draft.init, **init}, draft.symbols)
        if draft not in out:
            out.append(draft)
        if len(out) == MOST:
            break
    return out


class _Writer:
    """Writes a variant down as a draft."""

    def __init__(self, variant: Variant, reading: Reading) -> None:
        self.variant, self.reading = variant, reading
        self.symbols: dict[str, Named] = {}
        self.defaults: dict[str, Any] = {}

    def draft(self, params: Sequence[inspect.Parameter]) -> Draft:
        """The values of the parameters."""
        variant, self.defaults = self.variant, {param.name: param.default for param in params}
        values = {parameter.name: self._value(parameter, variant.roles[parameter.name]) for parameter in params}
        if variant.is_even:
            for name, symbol in {"d": LEGEND["d"], **self.symbols}.items():
                if not symbol.equals and symbol.meaning in ("head_width", "width"):
                    self.symbols[name] = replace(symbol, even=True)
        own_heads = [count for name, counts in self._stages.items() if init_role(name) == "heads" for count in counts]
        if own_heads and "H" not in self.symbols and variant.bound:
            self.symbols["d"] = replace(self.symbols.get("d", LEGEND["d"]), times=lcm(*own_heads))
        if self.reading.step > 1:
            self.symbols |= divided(self.symbols, self.reading.step, by_heads=bool(variant.bound))
        if "d" not in self.symbols and self.reading.part:
            self.symbols["d"] = replace(LEGEND["d"], said=self.reading.part)
        elif "d" in self.symbols and not self.symbols["d"].said and self.reading.part:
            self.symbols["d"] = replace(self.symbols["d"], said=self.reading.part)
        if variant.spread:
            self.symbols["L"] = replace(LEGEND["L"], equals=variant.spread)
            count, _, side = variant.spread.partition("*")
            if count == "n":
                sides = side.split("*")
                self.symbols["h"] = replace(MORE["h"], equals=f"n*{sides[-2] if sides[1:] else sides[0]}")
                self.symbols["w"] = replace(MORE["w"], equals=f"m*{sides[-1]}")
                if sides[2:]:
                    self.symbols["t"] = replace(MORE["t"], equals=f"n*{sides[0]}")
            elif {count, side} <= self.symbols.keys() and count != side:
                self.symbols |= {at: replace(MORE[at], equals=size) for at, size in (("h", count), ("w", side))}
        return Draft({name: value for name, value in values.items() if value is not EMPTY}, self.symbols)

    def _value(self, param: inspect.Parameter, role: str) -> Any:
        """What one parameter is given; EMPTY: its default."""
        if "shift" in param.name and type(param.default) is int:
            # which goes with the window: by as much as its own size, or a multiple, nothing is shifted
            return EMPTY
        if "shift" in param.name and param.default is EMPTY and role in ("", "width"):
            return self._half_window(param)
        if isinstance(param.default, tuple | list) and role not in SIZES:
            # as many sizes as there are parts, which belong together
            return EMPTY
        has_groups = "key_heads" in self.variant.roles.values()
        if role == "heads" and "H" not in self.symbols:
            grouped = "g*Hkv" if self.variant.is_grouped and has_groups else ""
            self.symbols["H"] = replace(LEGEND["H"], said=param.name, equals=grouped)
            return "H"
        if role == "key_heads":
            if not self.variant.is_grouped:
                # a number by default is not that of these heads
                return EMPTY if param.default is None else "H"
            self.symbols["Hkv"] = replace(LEGEND["Hkv"], said=param.name)
            return "Hkv"
        if role in SINGLE:
            symbol, meaning = {"head_width": ("d", "head_width"), "value_head_width": ("dv", "value_width")}.get(
                role, (param.name, "parameter")
            )
            return self._symbol(param.name, symbol if symbol not in self.symbols else param.name, meaning)
        if role == "width":
            return self._width(param)
        if role == "rotary" and param.default is not None:
            return "d"
        if role in SIZES:
            return self._size(param, role)
        if role == "batch":
            # a table for the largest batch has room for any
            return "B" if self.variant.exact else self._symbol(param.name, param.name, "parameter", least=LEAST)
        if role == "text" and param.default is EMPTY and param.name in self.reading.choices:
            return self.reading.choices[param.name][0]
        if role == "token" and param.default is EMPTY:
            return self._token(param.name)
        if role in ("feed_forward", "rank") and isinstance(param.default, int) and param.default:
            return self._symbol(param.name, param.name, "parameter")
        return self._plain(param, role)

    def _token(self, name: str) -> int:
        """The number of a token, of each another, and none that one of them has by default."""
        tokens = [token for token, role in self.variant.roles.items() if role == "token"]
        required = [token for token in tokens if self.defaults[token] is EMPTY]
        numbers = [number for number in range(len(tokens) + 1) if number not in map(self.defaults.get, tokens)]
        return numbers[required.index(name)]

    def _half_window(self, param: inspect.Parameter) -> Any:
        """Half of a window, by which windows are shifted (arXiv:2103.14030); a size of its own where there is none."""
        windows = [name for name, role in self.variant.roles.items() if role == "window"]
        sides = SIDES.get(self.reading.counts.get(param.name, 0), ("",))
        names = [self._symbol(param.name, f"{param.name}_{side}".rstrip("_"), "parameter") for side in sides]
        for name, side in zip(names, sides, strict=True):
            window = f"{windows[0]}_{side}".rstrip("_") if windows else ""
            if window in self.symbols and bool(side) == (windows[0] in self.reading.counts):
                self.symbols[name] = replace(self.symbols[name], equals=f"{window}//2")
        return {"_tuple": names} if len(names) > 1 else names[0]

    def _width(self, param: inspect.Parameter) -> Any:
        variant = self.variant
        if param.name in variant.bound:
            if param.name == variant.main:
                self.symbols["D"] = replace(LEGEND["D"], said=param.name, equals="H*d")
            return "H*d"
        if param.name in ("channels", "in_channels", "in_chans", "num_channels") and param.default is not EMPTY:
            return EMPTY if isinstance(param.default, int) else param.name
        if param.name == variant.main or variant.same:
            self.symbols.setdefault("D", replace(LEGEND["D"], said=variant.main))
            return "D"
        return self._symbol(param.name, param.name, "parameter")

    def _size(self, param: inspect.Parameter, role: str) -> Any:
        if role == "length" and self.variant.exact:
            return "L"
        if sides := SIDES.get(self._count(param.name)):
            names = [self._symbol(param.name, f"{param.name}_{side}", "parameter") for side in sides]
            window = self._named("window")
            if role in ("image", "grid") and window:
                # an image is cut into windows, which may have sides of their own
                has_sides = self._count(window) == len(sides)
                for name, side, times in zip(names, sides, COUNTS, strict=False):
                    divisor = f"{window}_{side}" if has_sides else window
                    self.symbols[name] = replace(self.symbols[name], equals=f"{times}*{divisor}")
            return {"_tuple": names}
        patch = self._named("patch")
        if role == "image" and patch:
            # each stage but the last halves the sides, which windows divide in all of them
            stages = max((len(counts) for counts in self._stages.values()), default=1)
            window = self._named("window") if stages > 1 else ""
            parts = [patch, *([window] if window else []), *([str(2 ** (stages - 1))] if stages > 1 else [])]
            # windows are several in all stages but the last then
            side = "*".join([*([] if window else ["n"]), *parts])
            self.symbols[param.name] = Named(param.name, "parameter", param.name, equals=side)
            return side
        name = self._symbol(param.name, param.name, "parameter", least=LEAST if role == "length" else 0)
        if role == "length" and patch:
            self.symbols[name] = replace(self.symbols[name], equals=f"n*{patch}")
        return name

    @property
    def _stages(self) -> dict[str, Sequence[int]]:
        """The parameters that have a whole number for each of several stages by default."""
        lists = {name: each for name, each in self.defaults.items() if isinstance(each, tuple | list) and len(each) > 1}
        roles = {name: init_role(name) for name in lists if all(type(count) is int for count in lists[name])}
        return {name: lists[name] for name, role in roles.items() if role in ("heads", "layers")}

    def _count(self, name: str) -> int:
        """How many sizes a parameter holds: one by default is one, whatever a class inside has; 0: it is not known."""
        return 0 if type(self.defaults.get(name)) is int else self.reading.counts.get(name, 0)

    def _named(self, role: str) -> str:
        """The parameter of a role; "": there is none."""
        return next((name for name, each in self.variant.roles.items() if each == role), "")

    def _symbol(self, parameter: str, name: str, meaning: str, least: int = 0) -> str:
        is_small = init_role(parameter) in ("window", "image", "patch")
        name = name if name not in LEGEND or LEGEND[name].meaning == meaning else f"{name}_{meaning}"
        self.symbols[name] = Named(name, meaning, parameter, least=least, is_small=is_small)
        return name

    def _plain(self, param: inspect.Parameter, role: str) -> Any:
        """What a parameter is given that is no size of attention; EMPTY: its default."""
        if role == "dropout" and not (type(param.default) is int and param.default > 1):
            return 0.0 if param.default is EMPTY or param.default else EMPTY
        if role == "layers" and isinstance(param.default, int) and param.default > PLAIN["layers"]:
            return PLAIN["layers"]
        if param.default is not EMPTY and not (role == "place" and param.default is None):
            return EMPTY
        if role in PLAIN:
            return PLAIN[role]
        if "float" in str(param.annotation):
            return 0.5
        return "L" if role == "" and self.variant.exact == "all" else self._symbol(param.name, param.name, "parameter")
