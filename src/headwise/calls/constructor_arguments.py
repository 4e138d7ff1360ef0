"""Constructor arguments: the ways in which a constructor is most likely called, the likeliest first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
SIZES = ("length", "window", "image", "patch", "vocabulary")
# what is given where nothing is known but the kind; EMPTY where a symbol is better
PLAIN: Mapping[str, Any] = {
    "flag": False, "bias": False, "place": 0, "layers": 2, "factor": 2, "number": 0.5, "none": None, "text": "",
    "device": "cpu", "kernel": 3, "dtype": {"_expr": "torch.float32"}, "dropout": 0.0,
    "activation": {"_expr": "torch.nn.GELU"}, "norm": {"_expr": "torch.nn.LayerNorm"}, "module": MODULE,
}  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """What a constructor is given, and what the symbols stand for."""

    init: Mapping[str, Any]
    known: Mapping[str, Named] = field(default_factory=dict)


def drafts(own: Sequence[inspect.Parameter], reading: Reading, given: Mapping[str, Any] | None = None) -> list[Draft]:
    """What the parameters may be given, the likeliest first.

    given: what the person said of some of them, which stands.
    """
    given = given or {}
    out: list[Draft] = []
    for variant in variants(own, reading, given):
        draft = _Writer(variant, reading).draft(own)
        draft = Draft({**draft.init, **given}, draft.known)
        if draft not in out:
            out.append(draft)
        if len(out) == MOST:
            break
    return out


class _Writer:
    """Writes a variant down as a draft."""

    def __init__(self, variant: Variant, reading: Reading) -> None:
        self.variant, self.reading = variant, reading
        self.known: dict[str, Named] = {}

    def draft(self, own: Sequence[inspect.Parameter]) -> Draft:
        """The values of the parameters."""
        variant = self.variant
        values = {each.name: self._value(each, variant.roles[each.name]) for each in own}
        if variant.is_even:
            for name, each in {"d": LEGEND["d"], **self.known}.items():
                if not each.equals and each.meaning in ("head_width", "width"):
                    self.known[name] = replace(each, even=True)
        if self.reading.step > 1:
            self.known |= divided(self.known, self.reading.step, by_heads=bool(variant.bound))
        if "d" not in self.known and self.reading.part:
            self.known["d"] = replace(LEGEND["d"], said=self.reading.part)
        elif "d" in self.known and not self.known["d"].said and self.reading.part:
            self.known["d"] = replace(self.known["d"], said=self.reading.part)
        if variant.spread:
            self.known["L"] = replace(LEGEND["L"], equals=variant.spread)
            count, _, side = variant.spread.partition("*")
            if count == "n":
                sides = side.split("*")
                self.known["h"] = replace(MORE["h"], equals=f"n*{sides[0]}")
                self.known["w"] = replace(MORE["w"], equals=f"m*{sides[-1]}")
        return Draft({name: value for name, value in values.items() if value is not EMPTY}, self.known)

    def _value(self, each: inspect.Parameter, role: str) -> Any:
        """What one parameter is given; EMPTY: its default."""
        has_groups = "key_heads" in self.variant.roles.values()
        if role == "heads" and "H" not in self.known:
            grouped = "g*Hkv" if self.variant.is_grouped and has_groups else ""
            self.known["H"] = replace(LEGEND["H"], said=each.name, equals=grouped)
            return "H"
        if role == "key_heads":
            if not self.variant.is_grouped:
                # a number by default is not that of these heads
                return EMPTY if each.default is None else "H"
            self.known["Hkv"] = replace(LEGEND["Hkv"], said=each.name)
            return "Hkv"
        if role in SINGLE:
            symbol, meaning = {"head_width": ("d", "head_width"), "value_head_width": ("dv", "value_width")}.get(
                role, (each.name, "parameter")
            )
            return self._symbol(each.name, symbol if symbol not in self.known else each.name, meaning)
        if role == "width":
            return self._width(each)
        if role == "rotary" and each.default is not None:
            return "d"
        if role in SIZES:
            return self._size(each, role)
        if role == "batch":
            # a table for the largest batch has room for any
            return "B" if self.variant.exact else self._symbol(each.name, each.name, "parameter", least=LEAST)
        if role == "text" and each.default is EMPTY and each.name in self.reading.choices:
            return self.reading.choices[each.name][0]
        if role in ("feed_forward", "rank") and isinstance(each.default, int) and each.default:
            return self._symbol(each.name, each.name, "parameter")
        return self._plain(each, role)

    def _width(self, each: inspect.Parameter) -> Any:
        variant = self.variant
        if each.name in variant.bound:
            if each.name == variant.main:
                self.known["D"] = replace(LEGEND["D"], said=each.name, equals="H*d")
            return "H*d"
        if each.name in ("channels", "in_channels", "in_chans", "num_channels") and each.default is not EMPTY:
            return EMPTY if isinstance(each.default, int) else each.name
        if each.name == variant.main or variant.same:
            self.known.setdefault("D", replace(LEGEND["D"], said=variant.main))
            return "D"
        return self._symbol(each.name, each.name, "parameter")

    def _size(self, each: inspect.Parameter, role: str) -> Any:
        if role == "length" and self.variant.exact:
            return "L"
        if sides := SIDES.get(self.reading.counts.get(each.name, 0)):
            return {"_tuple": [self._symbol(each.name, f"{each.name}_{one}", "parameter") for one in sides]}
        patch = next((name for name, own in self.variant.roles.items() if own == "patch"), "")
        if role == "image" and patch:
            self.known[each.name] = Named(each.name, "parameter", each.name, equals=f"n*{patch}")
            return f"n*{patch}"
        return self._symbol(each.name, each.name, "parameter", least=LEAST if role == "length" else 0)

    def _symbol(self, said: str, name: str, meaning: str, least: int = 0) -> str:
        is_small = init_role(said) in ("window", "image", "patch")
        name = name if name not in LEGEND or LEGEND[name].meaning == meaning else f"{name}_{meaning}"
        self.known[name] = Named(name, meaning, said, least=least, is_small=is_small)
        return name

    def _plain(self, each: inspect.Parameter, role: str) -> Any:
        """What a parameter is given that is no size of attention; EMPTY: its default."""
        if role == "dropout":
            return 0.0 if each.default is EMPTY or each.default else EMPTY
        if role == "layers" and isinstance(each.default, int) and each.default > PLAIN["layers"]:
            return PLAIN["layers"]
        if each.default is not EMPTY and not (role == "place" and each.default is None):
            return EMPTY
        if role in PLAIN:
            return PLAIN[role]
        if "float" in str(each.annotation):
            return 0.5
        return "L" if role == "" and self.variant.exact == "all" else self._symbol(each.name, each.name, "parameter")
