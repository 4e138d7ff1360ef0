"""Parameters: whether each is registered, used, and reached by the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import LAYERS, AttentionOps, MarkedOp, Run, attentions, chain_of, sources_of
from headwise.diagnosis.checks.gradients import gradient_cut
from headwise.diagnosis.checks.ignored_arguments import is_read
from headwise.diagnosis.checks.inputs import TargetModule
from headwise.diagnosis.checks.untaken_branches import is_used_elsewhere
from headwise.diagnosis.checks.unused_projections import called_twice, end_of, last_of, named_again, unmade
from headwise.diagnosis.checks.whole_models import query_and_key_sources
from headwise.diagnosis.modules import module_at, parameter_at
from headwise.diagnosis.repair import Change, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import assigned

__all__ = [
    "cut_gradients",
    "held",
    "holder_of",
    "listed",
    "unregistered",
    "unused_parameters",
    "without_gradient",
]


def without_gradient(run: Run) -> tuple[list[str], str]:
    """The parameters that the output does not reach, of a run with gradients; and what the backward raised."""
    if not isinstance(run.target, nn.Module) or run.output is None:
        return [], ""
    parameters = dict(run.target.named_parameters())
    frozen = [name for name, each in parameters.items() if not each.requires_grad]
    if not parameters or len(frozen) == len(parameters):
        return [], ""
    if not run.output.requires_grad:
        return [name for name in parameters if name not in frozen], ""
    weights = torch.linspace(0.5, 1.5, run.output.numel(), dtype=run.output.dtype).reshape(run.output.shape)
    try:
        (run.output * weights).sum().backward()
    except RuntimeError as error:
        return [], str(error).splitlines()[0]
    return [name for name, each in parameters.items() if name not in frozen and each.grad is None], ""


def listed(names: Sequence[str]) -> str:
    """Names as they are said: the first three, and that there are more."""
    return ", ".join([*names[:3], *("…" for _ in names[3:4])])


def used_parameters(run: Run) -> set[str]:
    """The parameters that any operation of a run took, or that a view of was taken."""
    if not isinstance(run.target, nn.Module):
        return set()
    storages: dict[int, list[str]] = {}
    for name, parameter in run.target.named_parameters():
        storages.setdefault(parameter.untyped_storage().data_ptr(), []).append(name)
    out: set[str] = set()
    for entry in run.seen:
        for tensor in entry.tensors:
            out |= set(storages.get(tensor.untyped_storage().data_ptr(), []) if tensor.layout is torch.strided else [])
    return out


def unused_parameters(run: Run, lacking: list[str]) -> list[str]:
    """Those without gradient that no operation took at all."""
    used = used_parameters(run)
    is_opaque = any(entry.last in LAYERS for entry in run.seen)
    return [] if is_opaque else [name for name in lacking if name not in used]


def unused_suspects(run: Run, unused: list[str]) -> list[Suspect]:
    """Projections that are registered and never run."""
    if not unused or not attentions(run):
        return []
    target = run.target
    owners = list(dict.fromkeys(name.rpartition(".")[0] or name for name in unused))
    out = []
    for owner in owners:
        weights = [name for name in unused if name.rpartition(".")[0] == owner or name == owner]
        has_weight = any(parameter_at(target, name).ndim > 1 for name in weights)
        is_left = _is_beside_used(run, owner) or not is_read(target, owner)
        if not has_weight or not is_left or is_used_elsewhere(run, owner):
            # what is read on another way, as with a flag that is off, has its use there
            continue
        if (without := unmade(run, owner)) is not None:
            out.append(without)
            continue
        stand_ins, change = _applied(run, target, owner)
        severity = "fault" if _fits_somewhere(run, target, owner) else "note"
        if not stand_ins and (instead := called_twice(run, owner)) is not None:
            out.append(instead)
            continue
        span, home = end_of(run), named_again(run)
        if not stand_ins and isinstance(dict(target.named_modules()).get(owner), nn.Linear):
            # what does not fit behind the last operation is named where it is made
            span, home = assigned(target, [owner]) or span, None
        out.append(
            Suspect("projection-unused", span, Repair(stand_ins, change), severity, values={"name": owner}, home=home)
        )
    return out


def _is_beside_used(run: Run, owner: str) -> bool:
    """Whether it is one of a list others of which ran: that the list is read says nothing of this one."""
    stem, _, place = owner.rpartition(".")
    return bool(stem) and place.isdigit() and any(name.startswith(f"{stem}.") for name in used_parameters(run))


def _fits_somewhere(run: Run, target: nn.Module, owner: str) -> bool:
    """Whether a layer that never runs takes what is made anywhere; one that does not is only left over."""
    module = dict(target.named_modules(remove_duplicate=False)).get(owner)
    output = (tensor.shape[-1] for entry in run.seen for tensor in entry.outputs if tensor.shape)
    return not isinstance(module, nn.Linear) or module.in_features in output


def _applied(run: Run, target: nn.Module, owner: str) -> tuple[dict[Site, Callable[..., Any]], Change | None]:
    """A projection put behind the last operation, where it fits there."""
    last = last_of(run)[-1]
    module = module_at(target, owner) if owner in dict(target.named_modules()) else None
    width = last.outputs[0].shape[-1] if last.outputs and last.outputs[0].shape else 0
    if not isinstance(module, nn.Linear) or module.in_features != width:
        return {}, None
    holder, function = TargetModule(owner), last.function

    def right(*args: Any, **options: Any) -> Any:
        return holder.module(function(*args, **options))

    return {last.site: right}, holder.take


def unregistered(run: Run) -> list[Suspect]:
    """Parameters that a run uses but the module does not have: in a plain list, or made anew at each call."""
    if not isinstance(run.target, nn.Module):
        return []
    registered = {id(parameter) for parameter in run.target.parameters()}
    for entry in run.seen:
        for tensor in entry.tensors:
            # what is frozen may be kept out of the way on purpose
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad and id(tensor) not in registered:
                holder = holder_of(run.target, tensor)
                span = None if holder is None else assigned(holder[0], [holder[1]])
                change = None if holder is None else _registered(run.target, *holder)
                kind = "weights-outside-module" if holder is None else "parameters-unregistered"
                values = {"name": "" if holder is None else holder[1]}
                return [Suspect(kind, span or entry.span, Repair(change=change), values=values)]
    return []


def holder_of(target: nn.Module, tensor: Tensor) -> tuple[nn.Module, str] | None:
    """The module that keeps a tensor, and the name of the attribute in which it does."""
    for module in target.modules():
        for name, buffer in module._buffers.items():
            if buffer is tensor:
                return module, name
        for name, value in vars(module).items():
            if not name.startswith("_") and any(each is tensor for each in held(value, 0)):
                return module, name
    return None


def _registry(value: Any) -> Any:
    """A list or dictionary of modules or parameters, of others of these too, as torch's own; anything else as it is."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        items = {key: _registry(item) for key, item in value.items()}
        if items and all(isinstance(item, nn.Parameter) for item in items.values()):
            return nn.ParameterDict(items)
        return nn.ModuleDict(items) if all(isinstance(item, nn.Module) for item in items.values()) else value
    if isinstance(value, list | tuple):
        inner = [_registry(item) for item in value]
        if inner and all(isinstance(item, nn.Parameter) for item in inner):
            return nn.ParameterList(inner)
        return nn.ModuleList(inner) if all(isinstance(item, nn.Module) for item in inner) else value
    return value


def _registered(target: nn.Module, holder: nn.Module, name: str) -> Change:
    """A change that lets a module know what it keeps in a plain list or dictionary."""
    path = next(path for path, each in target.named_modules() if each is holder)

    def change(target: Any, _: dict[str, Any]) -> None:
        module = module_at(target, path)
        value = vars(module).pop(name, None)
        registry = _registry(value)
        for item in (registry,) if isinstance(registry, nn.Module) else ():
            # what was not known was left in train mode
            item.train(module.training)
        setattr(module, name, registry)
        if registry is value:
            # beside other things
            weights = (weight for weight in held(value, 0) if isinstance(weight, nn.Parameter))
            for at, weight in enumerate(weights):
                module.register_parameter(f"{name}_{at}", weight)

    return change


def held(value: Any, depth: int) -> Iterator[Any]:
    """The parameters and tensors of a value: a module's, and those in lists and dictionaries. depth: how many of these
    it stands in.
    """
    if isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, Tensor):
        yield value
    elif depth < 3 and isinstance(value, list | tuple | set):
        for item in value:
            yield from held(item, depth + 1)
    elif depth < 3 and isinstance(value, Mapping):
        for item in value.values():
            yield from held(item, depth + 1)


def cut_gradients(
    run: Run, lacking: list[str], rerun: Callable[[dict[Site, Callable[..., Any]]], Run]
) -> list[Suspect]:
    """Where the gradient of parameters that are used is cut off."""

    def is_better(rerun: Run) -> bool:
        left, error = without_gradient(rerun)
        return not error and set(left) < set(lacking)

    return gradient_cut(run, rerun, is_better, values={"name": listed(lacking)})


def cut_paths(run: Run, rerun: Callable[[dict[Site, Callable[..., Any]]], Run]) -> list[Suspect]:
    """Where the gradient of weights or of an operand is cut off, though some of the packed parameters get theirs."""
    if not _is_cut(run):
        return []
    return gradient_cut(run, rerun, lambda repeated: not _is_cut(repeated), is_data=True, kind="gradient-path-cut")


def _is_cut(run: Run) -> bool:
    """Whether an operand of an attention has no gradient; all arguments of the run have one."""
    for attention in attentions(run):
        entries = [attention.context] if attention.scores is None else [attention.context, attention.scores]
        for entry in entries:
            for tensor, marks in zip(entry.inputs, entry.given, strict=True):
                if (
                    marks is not None
                    and marks.kind in ("token", "pair")
                    and tensor.dtype.is_floating_point
                    and (not tensor.requires_grad or _is_of_weights_alone(run, attention, entry, tensor.number))
                    and not _is_frozen(run, entry, tensor.number)
                ):
                    return True
    return False


def _is_of_weights_alone(run: Run, attention: AttentionOps, entry: MarkedOp, number: int) -> bool:
    """Whether an operand of tokens that attend to themselves, and to a memory or none, has a gradient by its projection
    alone, since these tokens were detached before it.
    """
    queries, keys = query_and_key_sources(attention)
    if not queries or not queries <= keys:
        return False
    for maker in chain_of(run, entry.at, number):
        given = [tensor for tensor, marks in zip(maker.inputs, maker.given, strict=True)
                 if sources_of(marks) & queries and tensor.dtype.is_floating_point]  # fmt: skip
        is_attached = any(tensor.requires_grad for tensor in maker.outputs)
        if given and is_attached and not any(tensor.requires_grad for tensor in given):
            return True
    return False


def _is_frozen(run: Run, entry: MarkedOp, number: int) -> bool:
    """Whether weights that are not to learn made an operand: it is cut off on purpose, as from a teacher."""
    makers = chain_of(run, entry.at, number)
    return any(isinstance(t, nn.Parameter) and not t.requires_grad for maker in makers for t in maker.tensors)
