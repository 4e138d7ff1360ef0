"""Inputs: whether queries, keys and values are each made from their own input, by a projection of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import call_role
from headwise.dataflow import (
    AttentionOps,
    MarkedOp,
    Run,
    attentions,
    call_of,
    chain_of,
    source_of,
)
from headwise.diagnosis.checks.confused_samples import arriving_nowhere
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.checks.ignored_arguments import is_dead, is_dead_elsewhere, is_switched
from headwise.diagnosis.checks.packed_weights import shared_features, shared_part
from headwise.diagnosis.checks.projection_names import role_of
from headwise.diagnosis.checks.untaken_branches import is_elsewhere
from headwise.diagnosis.modules import module_at, parameter_at
from headwise.diagnosis.repair import Change, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, seeded
from headwise.source import assigned

__all__ = ["Making", "TargetModule", "ignored_inputs", "is_absorbed", "makings", "redirected", "shared_projections"]


class Making:
    """How one side of an attention was made. projection: the product with weights, None: there is none; weight: the
    number of the weights in the record; source: the argument that it comes from.
    """

    def __init__(self, run: Run, side: Side) -> None:
        self.name = side.name
        chain = chain_of(run, side.entry, side.operand)
        joints = [entry for entry in chain if entry.joint is not None]
        self.projection: MarkedOp | None = joints[-1] if joints else None
        self.first = chain[0] if chain else side.entry
        numbers = [number for number in torch.unique(source_of(side.t)).tolist() if number >= 0]
        self.source = next((name for name, each in run.sources.items() if numbers == [each]), None)
        self.is_learned = bool(numbers) and not set(numbers) & set(run.sources.values())
        self.weight, self.value = self._weight()

    def _weight(self) -> tuple[int | None, Tensor | None]:
        entry = self.projection
        if entry is None:
            return None, None
        for operand, marks, tensor in zip(entry.inputs, entry.given, entry.tensors, strict=True):
            if marks is None and tensor.ndim > 1:
                return operand.number, tensor
        return None, None


def makings(run: Run, attention: AttentionOps) -> dict[str, Making]:
    """How each side of an attention was made."""
    return {side.name: Making(run, side) for side in sides(attention)}


def is_absorbed(run: Run, attention: AttentionOps) -> bool:
    """Whether keys are what values are then projected from, as latents are: heads have another width than their own."""
    by_name = {side.name: side for side in sides(attention)}
    latent = makings(run, attention).get("k")
    if latent is None or latent.projection is None or "v" not in by_name:
        return False
    joints = [entry for entry in chain_of(run, by_name["v"].entry, by_name["v"].operand) if entry.joint is not None]
    return latent.projection in joints[:-1]


def ignored_inputs(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Arguments that change nothing, and the projections that took another in their place."""
    all_attentions = attentions(run)
    if not all_attentions or run.output is None:
        return []
    names = [name for name in run.named if name in run.argument_marks]
    every = [name for name in run.named if name != run.plan.mask]
    if len(every) > 1 and all(is_dead(run, rerun, name) for name in every):
        # whatever single ones are for, one of all of them is
        is_wanted = is_dead_elsewhere(run, rerun, every[0]) and not is_switched(run, rerun, every[0])
        if is_wanted and (lost := arriving_nowhere(run, every[0], set())):
            return lost
    dead = [name for name in names if is_dead(run, rerun, name) and is_dead_elsewhere(run, rerun, name)]
    dead = [name for name in dead if not is_switched(run, rerun, name)]
    if not dead:
        return []
    origins = makings(run, all_attentions[0])
    ordered = names if len(names) > 2 else [*names, names[-1]]
    wanted = dict(zip("qkv", ordered, strict=False)) | {
        role[0]: name for name in names if (role := call_role(name)) in ("query", "key", "value") and len(names) > 2
    }
    out = []
    for name in dead:
        side = next(
            (s for s, each in wanted.items() if each == name and s in origins and origins[s].source != name), None
        )
        if side is None:
            out += arriving_nowhere(run, name, {origin.source for origin in origins.values()})
            continue
        out.append(redirected(run, origins[side].projection or origins[side].first, name, origins[side].source or ""))
    return out


def redirected(run: Run, entry: MarkedOp, name: str, was: str) -> Suspect:
    """That an operation takes one argument in place of another; and with the other."""
    place = next((at for at, each in enumerate(entry.args) if each is run.named.get(was)), None)
    values, home = {"name": name, "was": was}, call_of(run, entry)
    kind = "input-unused" if not was else "input-mixed" if _is_taken(run, name) else "input-ignored"
    if place is None or name not in run.plan.arguments(run.sizes)[1]:
        return Suspect(kind, entry.span, values=values, home=home)
    taken: dict[str, Any] = {}
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        return function(*args[:place], taken["value"], *args[place + 1 :], **options)

    def change(_: Any, options: dict[str, Any]) -> None:
        taken["value"] = options[name]

    return Suspect(kind, entry.span, Repair({entry.site: right}, change=change), values=values, home=home)


def _is_taken(run: Run, name: str) -> bool:
    """Whether any operation takes what comes from an argument."""
    number = run.sources.get(name)
    taken = (marks for entry in run.seen for marks in entry.given if marks is not None and marks.kind == "token")
    return any(number in source_of(marks.arrays["t"]).unique().tolist() for marks in taken)


class TargetModule:
    """A module of the target that runs, by its name: a stand-in may call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module: Any = None

    def take(self, target: Any, _: dict[str, Any]) -> None:
        """Take it from the target before it is called."""
        self.module = module_at(target, self.name)


def shared_projections(run: Run, unused: list[str]) -> list[Suspect]:
    """Projections of queries, keys and values that are one by accident: a twin is registered and has no use."""
    out: list[Suspect] = []
    target = run.target
    for attention in attentions(run)[:1]:
        projections = {name: each.projection for name, each in makings(run, attention).items()}
        if out := shared_features(run, {side.name: side for side in sides(attention)}, projections):
            return out
    if not isinstance(target, nn.Module):
        return shared_arguments(run)
    names: dict[int, list[str]] = {}
    for name, parameter in target.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for attention in attentions(run)[:1]:
        origins = makings(run, attention)
        packed = {name: (making.projection, making.value) for name, making in origins.items()
                  if making.projection is not None and making.value is not None}  # fmt: skip
        if out := shared_part(run, packed):
            return out
        for a, b in (("q", "k"), ("k", "v"), ("q", "v")):
            if a not in origins or b not in origins:
                continue
            first, second = origins[a], origins[b]
            if first.weight is None or first.weight != second.weight or first.projection is second.projection:
                continue
            aliases = names.get(id(first.value), [])
            shape = () if first.value is None else tuple(first.value.shape)
            spare = [name for name in unused if parameter_at(target, name).ndim > 1 and _is_twin(target, name, shape)]
            later = max(
                (x for x in (first, second) if x.projection is not None),
                key=lambda x: x.projection.at if x.projection else 0,
            )
            if len(aliases) > 1:
                span = assigned(target, aliases[1:]) or (later.projection.span if later.projection else None)
                all_one = [name for name, each in origins.items() if each.weight == first.weight]
                values = {"name": ", ".join(sorted(all_one, key="qkv".index)), "near": _owners(aliases)}
                out.append(Suspect("projection-shared", span, Repair(change=_apart(aliases[1:])), values=values))
            elif spare:
                entry = next(
                    (x.projection for x in (second, first) if x.projection is not None and role_of(spare[0]) == x.name),
                    later.projection,
                )
                if entry is not None:
                    stand_ins, change = _with_weight(entry, spare[0])
                    out.append(
                        Suspect(
                            "projection-reused",
                            entry.span,
                            Repair(stand_ins, change=change),
                            values={"name": f"{a}, {b}", "near": _owners(spare[:1])},
                        )
                    )
            if out:
                return out
    return out


def shared_arguments(run: Run) -> list[Suspect]:
    """Weights that a function is given, of which two sides are made, where others of that shape are used nowhere."""
    taken = {id(tensor) for entry in run.seen for tensor in entry.tensors}
    for attention in attentions(run)[:1]:
        origins = [op for op in makings(run, attention).values() if op.value is not None]
        for first, second in combinations(origins, 2):
            if first.weight != second.weight or first.projection is None or second.projection is first.projection:
                continue
            spare = [name for name, value in run.named.items()
                     if id(value) not in taken and first.value is not None and value.shape == first.value.shape
                     and not is_elsewhere(run, name)]  # fmt: skip
            named = next((name for name, each in run.named.items() if each is first.value), "")
            if not spare or not named or second.projection is None:
                continue
            later = max((first.projection, second.projection), key=lambda entry: entry.at)
            return [_given_another(later, named, spare[0], f"{first.name}, {second.name}")]
    return []


def _given_another(entry: MarkedOp, named: str, spare: str, sides: str) -> Suspect:
    """A product that takes another of the weights that a function is given."""
    weights: dict[str, Tensor] = {}
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        return function(
            *(weights["spare"] if argument is weights["named"] else argument for argument in args), **options
        )

    def change(_: Any, options: dict[str, Any]) -> None:
        weights.update(named=options[named], spare=options[spare])

    return Suspect(
        "projection-shared",
        entry.span,
        Repair({entry.site: right}, change=change),
        values={"name": sides, "near": named},
    )


def _owners(names: list[str]) -> str:
    """The modules that hold parameters, or those that no module holds, as they are said."""
    return ", ".join(dict.fromkeys(name.rpartition(".")[0] or name for name in names))


def _is_twin(target: nn.Module, name: str, shape: tuple[int, ...]) -> bool:
    """Whether an unused weight is a twin of one of this shape; its own input width may be free, as nothing uses it."""
    own_shape = tuple(parameter_at(target, name).shape)
    return own_shape == shape or (own_shape[0] == shape[0] and role_of(name) != "")


def _with_weight(entry: MarkedOp, name: str) -> tuple[dict[Site, Callable[..., Any]], Change]:
    """A product that is made with another of the target's weights."""
    owner, _, leaf = name.rpartition(".")
    holder, function = TargetModule(owner), entry.function

    def right(*args: Any, **options: Any) -> Any:
        if isinstance(holder.module, nn.Linear):
            return holder.module(args[0])
        return function(args[0], getattr(holder.module, leaf), *args[2:], **options)

    return {entry.site: right}, holder.take


def _apart(names: list[str]) -> Change:
    """A change that gives parameters, by these names, values of their own."""

    def change(target: Any, _: dict[str, Any]) -> None:
        with seeded(2):
            for full in names:
                path = full.rpartition(".")[0]
                leaf = path.rpartition(".")[2]
                if path:
                    module = copy.deepcopy(module_at(target, path))
                    for parameter in module.parameters():
                        parameter.data = torch.randn_like(parameter) * (
                            parameter.std() if parameter.numel() > 1 else 1.0
                        )
                    setattr(module_at(target, path.rpartition(".")[0]), leaf, module)
                else:
                    weight = parameter_at(target, full)
                    setattr(target, full, nn.Parameter(torch.randn_like(weight) * weight.std()))

    return change
