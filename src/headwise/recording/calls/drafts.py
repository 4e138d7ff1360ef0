"""Drafts: the ways in which a constructor is most likely called, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from headwise.recording.calls.callee import parameters
from headwise.recording.calls.plan import Named
from headwise.recording.calls.reading import Reading
from headwise.recording.calls.roles import init_role
from headwise.recording.calls.steps import divided
from headwise.recording.calls.symbols import LEGEND, MORE, PAIR

__all__ = ["EMPTY", "LEAST", "Draft", "drafts", "parameters"]

EMPTY = inspect.Parameter.empty
# no length of an argument is longer
LEAST = 43
MOST = 48
# no table of positions is as short
FEW = 12
CLONED = frozenset({"ModuleList", "clones", "clone", "get_clones"})
PREFERRED = (
    "d_model", "model_dim", "embed_dim", "emb_dim", "embed_size", "hidden_size", "hidden_dim", "num_hiddens",
    "n_embd", "dim", "dim_model", "d_out", "attn_dim", "inner_dim", "out_dim", "output_dim", "out_features",
)  # fmt: skip
SOURCES = ("d_in", "in_dim", "input_dim", "in_features", "in_channels", "dim_in", "d_input", "input_size", "c_in")
SINGLE = ("head_width", "value_head_width", "heads")
SIZES = ("length", "window", "image", "patch", "vocabulary")
PLACED = re.compile(r"(layer|block)_?(idx|id|index|no|num|number)$")
# what is given where nothing is known but the kind; EMPTY where a symbol is better
PLAIN: Mapping[str, Any] = {
    "flag": False, "bias": False, "place": 0, "layers": 2, "factor": 2, "number": 0.5, "none": None, "text": "",
    "device": "cpu", "kernel": 3, "dtype": {"_expr": "torch.float32"}, "dropout": 0.0,
    "activation": {"_expr": "torch.nn.GELU"}, "norm": {"_expr": "torch.nn.LayerNorm"},
}  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """What a constructor is given, and what the symbols stand for."""

    init: Mapping[str, Any]
    known: Mapping[str, Named] = field(default_factory=dict)


@dataclass(frozen=True)
class _Variant:
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


def drafts(own: Sequence[inspect.Parameter], reading: Reading, given: Mapping[str, Any] | None = None) -> list[Draft]:
    """What the parameters may be given, the likeliest first.

    given: what the person said of some of them, which stands.
    """
    given = given or {}
    out: list[Draft] = []
    for variant in _variants(own, reading, given):
        draft = _Writer(variant, reading).draft(own)
        draft = Draft({**draft.init, **given}, draft.known)
        if draft not in out:
            out.append(draft)
        if len(out) == MOST:
            break
    return out


def _role(parameter: inspect.Parameter, reading: Reading) -> str:
    """The role of a parameter of a constructor; "": it keeps its default, or is a free size."""
    role = init_role(parameter.name)
    default, said = parameter.default, str(parameter.annotation)
    if parameter.name in reading.kernels and role in ("", "width"):
        return "kernel"
    if isinstance(default, bool) or said in ("bool", "<class 'bool'>"):
        return "flag"
    if role == "device":
        return role
    if isinstance(default, str) or said in ("str", "<class 'str'>") or parameter.name in reading.choices:
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
    if role == "length" and parameter.name in ("n", "N", "L") and _is_count(default, reading):
        return "layers"
    return role


def _is_count(default: Any, reading: Reading) -> bool:
    """Whether one letter says how often something is stacked: few by default, or of modules that are cloned."""
    if isinstance(default, int):
        return default <= FEW
    return default is EMPTY and not CLONED.isdisjoint(reading.words)


def _variants(own: Sequence[inspect.Parameter], reading: Reading, given: Mapping[str, Any]) -> Iterator[_Variant]:
    """The variants, those that differ in the fewest things from the likeliest first."""
    roles = {each.name: _role(each, reading) for each in own}
    needed = [each.name for each in own if each.default is EMPTY]
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
        sorted(bindings, key=lambda each: each.roles is not wide) if is_wide else bindings,
        (True, False) if reading.is_turned else (False, True),
        ("", "lengths", "all") if has_lengths else ("",),
        (True, False) if "key_heads" in roles.values() else (True,),
        list(_spreads(roles, [name for name in needed if roles[name] == ""], reading, given)),
    ]
    for places in sorted(product(*[range(len(each)) for each in ways]), key=lambda each: (sum(each), each[::-1])):
        base, is_even, exact, is_grouped, spread = (way[at] for way, at in zip(ways, places, strict=True))
        yield replace(base, is_even=is_even, exact=exact, is_grouped=is_grouped, spread=spread)


def _bindings(roles: Mapping[str, str], reading: Reading) -> list[_Variant]:
    """Which widths are H*d, the likeliest first."""
    widths = [name for name, role in roles.items() if role == "width"]
    main = _main(widths)
    bound = tuple(name for name in widths if name in reading.bound)
    if bound and main not in bound and "head_width" not in roles.values():
        main = bound[0]
    free = _Variant(roles, main, ())
    if not widths:
        return [free]
    every = _Variant(roles, main, tuple(widths))
    if "heads" not in roles.values():
        parted = tuple(name for name in widths if name in reading.parted)
        out = [_Variant(roles, parted[0] if main not in parted else main, parted)] if parted else []
        return [*out, free, replace(free, same=True)] if len(widths) > 1 else [*out, free]
    if bound and "head_width" not in roles.values():
        out = [replace(every, bound=bound), replace(every, bound=(main,)), every]
    else:
        out = [free, replace(free, bound=(main,)), every]
        out += [_Variant(roles, name, (name,)) for name in widths if name != main]
    return [each for at, each in enumerate(out) if (each.main, each.bound) not in [(o.main, o.bound) for o in out[:at]]]


def _spreads(
    roles: Mapping[str, str], unknown: Sequence[str], reading: Reading, given: Mapping[str, Any]
) -> Iterator[str]:
    """What the length of the input may be made of, so that windows divide it; "": it is free."""
    yield ""
    for name, role in roles.items():
        if role in ("window", "image") or name in unknown:
            size = f"{name}_h*{name}_w" if name in reading.pairs else name
            if isinstance(given.get(name), str):
                size = given[name]
            square = size if name in reading.pairs else f"{size}*{size}"
            yield from (f"n*{size}", square, *([f"{size}+1"] if name in unknown else []))


def _main(widths: Sequence[str]) -> str:
    """The width that D stands for."""
    for name in PREFERRED:
        if name in widths:
            return name
    others = [name for name in widths if name not in SOURCES]
    return (others or [*widths, ""])[0]


class _Writer:
    """Writes a variant down as a draft."""

    def __init__(self, variant: _Variant, reading: Reading) -> None:
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
        if each.name in self.reading.pairs:
            return {"_tuple": [self._symbol(each.name, f"{each.name}_{one}", "parameter") for one in PAIR]}
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
