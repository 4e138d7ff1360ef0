"""Drafts: the ways in which a constructor is most likely called, the likeliest first."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwise.recording.calls.plan import Named
from headwise.recording.calls.reading import Reading
from headwise.recording.calls.roles import init_role
from headwise.recording.calls.symbols import LEGEND

__all__ = ["Draft", "drafts", "parameters"]

EMPTY = inspect.Parameter.empty
# no length of an argument is longer
LEAST = 43
PREFERRED = (
    "d_model model_dim embed_dim emb_dim embed_size hidden_size hidden_dim num_hiddens n_embd dim dim_model d_out "
    "attn_dim inner_dim out_dim output_dim out_features"
).split()
SOURCES = ("d_in", "in_dim", "input_dim", "in_features", "in_channels", "dim_in", "d_input", "input_size", "c_in")


@dataclass(frozen=True)
class Draft:
    """What a constructor is given, and what the symbols stand for."""

    init: Mapping[str, Any]
    known: Mapping[str, Named] = field(default_factory=dict)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that can be given by name or place; none where a signature is not to be had."""
    try:
        every = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [each for each in every if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]


def drafts(own: Sequence[inspect.Parameter], reading: Reading, given: Mapping[str, Any] | None = None) -> list[Draft]:
    """What the parameters may be given, the likeliest first.

    given: what the person said of some of them, which stands.
    """
    roles = {each.name: _role(each) for each in own if each.name not in (given or {})}
    out: list[Draft] = []
    for variant in _variants(roles, own, reading):
        draft = variant.draft(own)
        draft = Draft({**draft.init, **(given or {})}, draft.known)
        if draft not in out:
            out.append(draft)
    return out


def _role(parameter: inspect.Parameter) -> str:
    """The role of a parameter of a constructor; "": it keeps its default, or is a free size."""
    role = init_role(parameter.name)
    default, said = parameter.default, str(parameter.annotation)
    if isinstance(default, bool) or "bool" in said:
        return "flag"
    if isinstance(default, str) or said in ("str", "<class 'str'>"):
        return "text"
    if isinstance(default, float) and role != "dropout":
        return "number"
    if default is None and role not in ("key_heads", "head_width", "heads", "value_head_width"):
        return "none"
    return role


@dataclass(frozen=True)
class _Variant:
    """How the sizes of one constructor hang together.

    main: the width that D stands for; bound: widths that are H*d; free: D does not depend on H and d.
    """

    roles: Mapping[str, str]
    main: str
    bound: tuple[str, ...]
    is_even: bool = False
    is_grouped: bool = True
    is_exact: bool = False
    same: tuple[str, ...] = ()

    def draft(self, own: Sequence[inspect.Parameter]) -> Draft:
        """The values of the parameters."""
        init: dict[str, Any] = {}
        known: dict[str, Named] = {}
        for each in own:
            if each.name not in self.roles:
                continue
            value = self._value(each, self.roles[each.name], known)
            if value is not EMPTY:
                init[each.name] = value
        if self.is_even:
            known["d"] = replace(known.get("d", LEGEND["d"]), even=True)
            if not known.get("D", LEGEND["D"]).equals:
                known["D"] = replace(known.get("D", LEGEND["D"]), even=True)
        return Draft(init, known)

    def _value(self, each: inspect.Parameter, role: str, known: dict[str, Named]) -> Any:
        """What one parameter is given; EMPTY: its default."""
        symbol = {"heads": "H", "head_width": "d", "value_head_width": "dv"}.get(role)
        if role == "heads" and self.is_grouped and "key_heads" in self.roles.values():
            known["H"] = replace(LEGEND["H"], said=each.name, equals="g*Hkv")
            return "H"
        if role == "key_heads":
            if not self.is_grouped:
                return EMPTY if each.default is not EMPTY else "H"
            known["Hkv"] = replace(LEGEND["Hkv"], said=each.name)
            return "Hkv"
        if symbol is not None:
            if each.default is None and role != "heads":
                return EMPTY
            known[symbol] = replace(LEGEND[symbol], said=each.name)
            return symbol
        if role == "width":
            return self._width(each, known)
        if role in ("length", "window", "image", "patch", "vocabulary"):
            return self._length(each, role, known)
        return _plain(each, role, known)

    def _width(self, each: inspect.Parameter, known: dict[str, Named]) -> Any:
        if each.name in self.bound:
            if each.name == self.main:
                known["D"] = replace(LEGEND["D"], said=each.name, equals="H*d")
            return "H*d"
        if each.name == self.main or each.name in self.same:
            known.setdefault("D", replace(LEGEND["D"], said=self.main))
            return "D"
        known[each.name] = Named(each.name, "parameter", each.name)
        return each.name

    def _length(self, each: inspect.Parameter, role: str, known: dict[str, Named]) -> Any:
        if role in ("length",) and self.is_exact:
            return "L"
        name = each.name if each.name not in LEGEND else f"{each.name}_max"
        known[name] = Named(name, "parameter", each.name, least=LEAST if role == "length" else 0)
        return name


def _plain(each: inspect.Parameter, role: str, known: dict[str, Named]) -> Any:
    """What a parameter is given that is no size of attention; EMPTY: its default."""
    if role == "dropout":
        return 0.0 if each.default is EMPTY or each.default else EMPTY
    if each.default is not EMPTY:
        return EMPTY
    fixed = {"flag": False, "bias": False, "place": 0, "layers": 2, "number": 0.5, "text": "", "none": None}
    if role in fixed:
        return fixed[role]
    if "float" in str(each.annotation):
        return 0.5
    name = each.name if each.name not in LEGEND else f"{each.name}_"
    known[name] = Named(name, "parameter", each.name)
    return name


def _variants(roles: Mapping[str, str], own: Sequence[inspect.Parameter], reading: Reading) -> Iterator[_Variant]:
    widths = [name for name, role in roles.items() if role == "width"]
    has_heads = "heads" in roles.values()
    has_head_width = any(
        role == "head_width" and next(each for each in own if each.name == name).default is not None
        for name, role in roles.items()
    )
    main = _main(widths, reading)
    bound = tuple(name for name in widths if name in reading.bound)
    if bound and not has_head_width:
        main = main if main in bound else bound[0]
    every = _Variant(roles, main, tuple(widths))
    if not widths:
        plain = [_Variant(roles, main, ())]
    elif not has_heads:
        plain = [_Variant(roles, main, ()), _Variant(roles, main, (), same=tuple(widths))]
    elif has_head_width:
        plain = [_Variant(roles, main, ()), _Variant(roles, main, (main,)), every]
    elif bound:
        plain = [_Variant(roles, main, bound), _Variant(roles, main, (main,)), every]
    else:
        plain = [_Variant(roles, main, ()), _Variant(roles, main, (main,)), every]
        plain += [_Variant(roles, name, (name,)) for name in widths if name != main]
    plain = list(dict.fromkeys(_Hashed(each) for each in plain))
    evens = (True, False) if reading.is_turned else (False, True)
    for is_even in evens:
        for is_exact in (False, True) if "length" in roles.values() else (False,):
            for is_grouped in (True, False) if "key_heads" in roles.values() else (True,):
                for each in plain:
                    yield replace(each.variant, is_even=is_even, is_exact=is_exact, is_grouped=is_grouped)


class _Hashed:
    """A variant by what tells it from others."""

    def __init__(self, variant: _Variant) -> None:
        self.variant = variant
        self.key = (variant.main, variant.bound, variant.same)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _main(widths: Sequence[str], reading: Reading) -> str:
    """The width that D stands for."""
    for name in PREFERRED:
        if name in widths:
            return name
    others = [name for name in widths if name not in SOURCES]
    return (others or list(widths) or [""])[-1 if others and widths[0] in SOURCES else 0]
