"""Registry: every known convention, and which of them a set of weights follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

from headwise.compat.conversion import classic_layers, encoders, gpt2, keras_layers, libraries, llama, t5
from headwise.compat.conversion.arguments import check_convention
from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.source import UntoldError
from headwise.compat.conversion.weight_tables import Account, WeightTable
from headwise.errors import ConversionError

__all__ = ["blocks", "conventions", "named", "recognised"]


@cache
def conventions() -> tuple[Convention, ...]:
    """All of them, in the order in which they are tried."""
    parts = (classic_layers, encoders, gpt2, llama, t5, libraries, keras_layers)
    return tuple(convention for part in parts for convention in part.CONVENTIONS)


def named(name: str) -> tuple[Convention, ...]:
    """The conventions of a name: itself or its alias first, then its variants (torch, torch_separate)."""
    check_convention(name)
    exact = [convention for convention in conventions() if name in (convention.name, *convention.aliases)]
    return (*exact, *(convention for convention in conventions() if convention.name.startswith(f"{exact[0].name}_")))


def recognised(
    weights: Mapping[str, Tensor], convention: str | None, module: Any, config: Any
) -> tuple[list[Convention], str, dict[str, Tensor]]:
    """The conventions that weights may be of, the prefix that all their keys had, and the weights without it.

    There is one, but for a module, which can be asked which of several it computes. Weights of none, and bare weights
    of several that compute different things, raise ConversionError.
    """
    if not weights:
        raise ConversionError("a source must hold weights, but it has none: give one attention layer or its state_dict")
    tried = conventions() if convention is None else named(convention)
    cuts = [(prefix, {key.removeprefix(prefix): t for key, t in weights.items()}) for prefix in _prefixes(weights)]
    for prefix, stripped in cuts:
        fitting = _settled([each for each in tried if _fits(each.table, stripped)], module, config)
        if len(fitting) > 1 and convention is None and module is None:
            names = ", ".join(each.name for each in fitting)
            shared = ", ".join(sorted(stripped)[:4])
            raise UntoldError(
                f"these names must be of one convention, but {names} share {shared} and compute different things: say "
                "which with convention=",
                "refuse.convention_untold",
                conventions=names,
                names=shared,
            )
        if fitting:
            if convention is None and module is None:
                _refuse_another_model(fitting[0], config)
            return (fitting[:1] if convention is not None else fitting), prefix, stripped
    raise ConversionError(_unknown(weights, cuts, tried, convention))


def blocks(weights: Mapping[str, Tensor], tried: tuple[Convention, ...]) -> dict[str, Convention]:
    """Where in the weights of a whole model layers of attention stand: prefix -> the first convention that fits."""
    by_prefix: dict[str, Convention] = {}
    for convention in tried:
        first = convention.table.rows[0].theirs
        for key in weights:
            prefix = key.removesuffix(first)
            if key.endswith(first) and (not prefix or prefix[-1] in "./") and prefix not in by_prefix:
                inside = {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
                if _fits(convention.table, inside):
                    by_prefix[prefix] = convention
    return by_prefix


def _prefixes(weights: Mapping[str, Tensor]) -> Iterator[str]:
    """What may be cut off every key: nothing first, then each dotted part that all of them share."""
    yield ""
    first, *rest = weights
    for end, sign in enumerate(first):
        if any(key[: end + 1] != first[: end + 1] for key in rest):
            return
        if sign in "./" and end + 1 < len(first):
            yield first[: end + 1]


def _fits(table: WeightTable, weights: Mapping[str, Tensor]) -> bool:
    account = table.account(weights)
    return not account.missing and set(account.unexpected) <= {leave.theirs for leave in table.refused}


def _settled(fitting: list[Convention], module: Any, config: Any) -> list[Convention]:
    """Of conventions with the same names: the one of the module's class or the model's type, else all that may be."""
    kind = _model_type(config)
    configs = [getattr(module, "config", None), getattr(getattr(module, "self", None), "config", None)]
    kinds = {kind, *(getattr(each, "model_type", None) for each in configs)} - {None}
    meant = [each for each in fitting if any(each.is_for(module, kind) for kind in kinds | {None})]
    by_class = [each for each in meant if type(module).__name__ in each.modules]
    if by_class or meant:
        return by_class or meant
    if isinstance(module, nn.Module) and not kinds and len(fitting) > 1:
        # a module without a configuration holds all that it computes with
        return [each for each in fitting if not each.needs_config] or fitting
    return fitting


def _model_type(config: Any) -> str | None:
    return config.get("model_type") if isinstance(config, Mapping) else getattr(config, "model_type", None)


def _refuse_another_model(convention: Convention, config: Any) -> None:
    """Names alone do not make a model of another type compute the same."""
    kind = _model_type(config)
    if kind is not None and not convention.is_for(None, kind):
        raise ConversionError(
            f"model_type={kind!r} must be a known one, but only the names are those of {convention.name!r}: if it "
            f"computes the same, say so with convention={convention.name!r}"
        )


def _unknown(
    weights: Mapping[str, Tensor],
    cuts: list[tuple[str, dict[str, Tensor]]],
    tried: tuple[Convention, ...],
    convention: str | None,
) -> str:
    inside = blocks(weights, tried)
    if inside:
        shown = ", ".join(
            f"{prefix.rstrip('./') or 'the top'} ({candidate.name})" for prefix, candidate in list(inside.items())[:4]
        )
        more = f", and {len(inside) - 4} more" if len(inside) > 4 else ""
        return (
            f"a source must be one layer of attention, but {len(weights)} weights came that hold {len(inside)} of them "
            f"at {shown}{more}: give one of these"
        )

    half = _half(cuts, tried)
    if half is not None:
        candidate, part, lacking = half
        return (
            f"a source must be a whole layer of attention, but {', '.join(sorted(weights)[:4])} are only the "
            f"{part!r} part of one of {candidate.name!r}, which has {', '.join(lacking[:4])} too: give the module that "
            f"holds this one as .{part}, or all weights of it"
        )

    def closeness(account: Account) -> int:
        return 2 * len(account.used) - len(account.missing) - len(account.unexpected)

    pairs = [(n, candidate, cut) for n, candidate in enumerate(tried) for _, cut in cuts]
    ranked = [(closeness(candidate.table.account(cut)), n, candidate, cut) for n, candidate, cut in pairs]
    _, _, closest, cut = max(ranked, key=lambda entry: (entry[0], -entry[1]))
    account = closest.table.account(cut)
    names = sorted(weights)
    listed = ", ".join(f"{name} {tuple(weights[name].shape)}" for name in names[:8])
    listed += f", and {len(names) - 8} more" if len(names) > 8 else ""
    faults = [
        f"{verb} {', '.join(keys[:8])}"
        for verb, keys in (("misses", account.missing), ("does not know", account.unexpected))
        if keys
    ]
    wanted = "a known convention" if convention is None else f"the convention {convention!r}"
    if not account.used:
        firsts = dict.fromkeys(candidate.table.rows[0].theirs for candidate in tried)
        sought = ", ".join(
            f"{first} ({', '.join(candidate.name for candidate in tried if candidate.table.rows[0].theirs == first)})"
            for first in firsts
        )
        return (
            f"a source must hold a layer of attention, but none was found among {listed}; looked for: {sought}: give "
            "one attention layer or its state_dict"
        )
    return (
        f"the names must be those of {wanted}, but {listed} came; the closest table is {closest.name!r}, which "
        f"{' and '.join(faults)}: give the weights of exactly one attention layer"
    )


def _half(
    cuts: list[tuple[str, dict[str, Tensor]]], tried: tuple[Convention, ...]
) -> tuple[Convention, str, tuple[str, ...]] | None:
    """The convention of which weights are all under one of its names, that name, and what they lack; else None."""
    halves = []
    for candidate in tried:
        names = [row.theirs for row in candidate.table.rows]
        for part in dict.fromkeys(name.partition(".")[0] for name in names if name.count(".") > 1):
            inside = {name.removeprefix(f"{part}.") for name in names if name.startswith(f"{part}.")}
            places = [prefix for prefix, weights in cuts if inside == weights.keys()]
            if len(inside) > 1 and places:
                lacking = tuple(name for name in names if not name.startswith(f"{part}."))
                halves.append((places[0].endswith(f"{part}."), (candidate, part, lacking)))
    # several call their half alike: the one whose name stands before it, else the first
    return max(halves, key=lambda pair: pair[0])[1] if halves else None
