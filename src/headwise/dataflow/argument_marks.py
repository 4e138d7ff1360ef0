"""Argument marks: the tensors among the arguments of a plan, and the marks that their declared shapes give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from headwise.calls import FEATURES, Plan, call_role
from headwise.dataflow.provenance import LEARNED, Marks, tokens
from headwise.recording import tensors

__all__ = ["declared", "named_tensors", "source_numbers", "state_marks"]


def named_tensors(plan: Plan, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among the arguments, by name."""
    out: dict[str, Tensor] = {}
    names = [name for name in plan.call if not name.startswith("_")]
    for name, value in [*zip(names, args, strict=False), *options.items()]:
        for place, tensor in enumerate(tensors(value)):
            out[name if isinstance(value, Tensor) else f"{name}.{place}"] = tensor
    return out


def source_numbers(plan: Plan, names: Iterable[str]) -> dict[str, int]:
    """The number of each argument in marks; keys that all batch elements share are numbered as what is learned is."""
    batches = {symbol.name for symbol in plan.symbols if symbol.meaning == "batch"}
    own = {
        name: batches & _words(" ".join(map(str, spec))) for name, spec in plan.call.items() if isinstance(spec, list)
    }
    is_shared = (
        {name: not own[name] and call_role(name) in ("key", "value") for name in own} if any(own.values()) else {}
    )
    return {name: at + LEARNED * is_shared.get(name, False) for at, name in enumerate(names)}


def declared(plan: Plan, name: str, tensor: Tensor, source: int) -> Marks | None:
    """The marks of an argument, by its declared shape; None: it has no tokens."""
    if plan.mask and name == plan.mask:
        return None
    spec = plan.call.get(name)
    is_ids = isinstance(spec, Mapping)
    if isinstance(spec, Mapping):
        spec = spec.get("_ids")
    if not isinstance(spec, list) or len(spec) != tensor.ndim or tensor.ndim == 0:
        return None
    meanings = {symbol.name: symbol.meaning for symbol in plan.symbols}
    roles = []
    axis_meanings = [{meanings[symbol] for symbol in meanings if symbol in _words(str(text))} for text in spec]
    layout = str(plan.call.get("_layout", ""))
    if len(layout) == len(spec) and "D" in layout and not is_ids:
        # a number of channels may be a size of its own
        axis_meanings[layout.index("D")].add("width")
    has_features = any(axis_meaning & FEATURES for axis_meaning in axis_meanings)
    for at, axis_meaning in enumerate(axis_meanings):
        if "batch" in axis_meaning:
            roles.append("sample")
        elif axis_meaning & {"queries", "keys"}:
            roles.append("place")
        elif axis_meaning & FEATURES:
            roles.append("feature")
        else:
            # numbers of a table have no features
            is_last = at == len(spec) - 1 and len(spec) > 1 and not has_features and not is_ids
            roles.append("feature" if is_last else "place")
    if "place" not in roles and tensor.ndim > 1:
        return None
    return tokens(tuple(tensor.shape), tuple(roles), source)


def state_marks(plan: Plan, name: str, tensor: Tensor, source: int) -> Marks | None:
    """The marks of a state, one token for each batch element; None: it is none, or of a call with one query token."""
    spec = plan.call.get(name)
    if name == plan.mask or not isinstance(spec, list) or len(spec) != len(("B", "D")) or tensor.ndim != len(spec):
        return None
    is_batch = any(symbol.name == spec[0] and symbol.meaning == "batch" for symbol in plan.symbols)
    return tokens(tuple(tensor.shape), ("sample", "feature"), source) if is_batch else None


def _words(text: str) -> set[str]:
    for sign in "*+-/()":
        text = text.replace(sign, " ")
    return set(text.split())
