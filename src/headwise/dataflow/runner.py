"""Runner: one run of a plan in float64, recorded with values and provenance; operations may be replaced."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import FEATURES, Plan
from headwise.dataflow.float64 import Unset, as_it_is, readied
from headwise.dataflow.propagation import Seen, Shadow
from headwise.dataflow.provenance import Marks, tokens
from headwise.recording import Record, Replacing, Site, TensorSeen, record, tensors
from headwise.source import Span

__all__ = ["Manner", "Run", "StandIns", "arguments", "call_of", "declared", "default_dtype", "first_of", "run"]

StandIns = Mapping[Site, Callable[..., Any]]


@dataclass(frozen=True)
class Run:
    """A finished run. named: the tensors among the arguments; sources: the number that marks give to each; given: what
    the arguments held before the call.
    """

    plan: Plan
    sizes: Mapping[str, int]
    record: Record
    seen: tuple[Seen, ...]
    marks: Mapping[int, Marks]
    target: Any
    named: Mapping[str, Tensor]
    sources: Mapping[str, int]
    output: Tensor | None
    stand_ins: StandIns = field(default_factory=dict)
    known: Mapping[str, Marks] = field(default_factory=dict)
    given: Mapping[str, Tensor] = field(default_factory=dict)

    def marks_of(self, name: str) -> Marks | None:
        """The marks that an argument was given."""
        return self.known.get(name)

    def marks_at(self, seen: TensorSeen) -> Marks | None:
        """The marks of what an operation took that failed; what came right from the call was met nowhere else."""
        found = self.marks.get(seen.number)
        if found is None and seen.value is not None:
            for name, each in self.named.items():
                if name in self.known and each.shape == seen.value.shape and torch.equal(each, seen.value):
                    return self.known[name]
        return found

    @cached_property
    def makers(self) -> Mapping[int, list[Seen]]:
        """The operations that made or changed each tensor, by its number, in their order."""
        found: dict[int, list[Seen]] = {}
        for each in self.seen:
            for number in {*(made.number for made in each.operation.outputs), *each.operation.writes}:
                found.setdefault(number, []).append(each)
        return found

    @cached_property
    def size(self) -> int:
        """Bytes of the tensors that it holds."""
        met = [t.value for each in self.record.operations for t in (*each.inputs, *each.outputs)]
        met += [t for marks in self.marks.values() for t in marks.arrays.values()]
        stores = [t.untyped_storage() for t in met if t is not None]
        return sum({each.data_ptr(): each.nbytes() for each in stores}.values())

    @property
    def output_marks(self) -> Marks | None:
        """The marks of what was returned."""
        for each in reversed(self.seen):
            for made, marks in zip(each.operation.outputs, each.made, strict=False):
                if self.output is None or made.value is None or made.shape != tuple(self.output.shape):
                    continue
                if torch.equal(made.value.nan_to_num(), self.output.detach().nan_to_num()):
                    return marks
        return None


@dataclass(frozen=True)
class Manner:
    """How a run is made. seed: of the inputs; luck: of what is drawn while it runs, None: as the inputs. earlier: the
    seed of the inputs of a call before, None: it is the first. forgets: what that call left in the target is taken
    away. instance: the seed of what is drawn while it is built.
    """

    dtype: torch.dtype = torch.float64
    seed: int = 0
    luck: int | None = None
    earlier: int | None = None
    forgets: bool = False
    instance: int = 0
    gradients: bool = False
    training: bool = False


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """A block in which new tensors have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run(
    plan: Plan,
    manner: Manner | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    stand_ins: StandIns | None = None,
    own: tuple[str, ...] = (),
    change: Callable[[Any, dict[str, Any]], None] | None = None,
) -> Run:
    """One run. manner: None: an ordinary one. change: alters the target or its arguments before."""
    manner = manner or Manner()
    sizes = dict(plan.sizes(0) if sizes is None else sizes)
    with default_dtype(manner.dtype):
        try:
            with Unset():
                target = plan.build(sizes, seed=manner.instance)
        except Exception:  # noqa: BLE001  whatever it is, it is the person's, and is diagnosed
            failed = record(lambda: plan.build(sizes), own=own)
            return Run(plan, sizes, failed, (), {}, None, {}, {}, None, dict(stand_ins or {}))
        if isinstance(target, nn.Module):
            target = copy.deepcopy(target) if target is plan.target else target
            target = readied(target, manner.dtype, training=manner.training)
        args, options = arguments(plan, sizes, manner.seed, manner.dtype)
        if change is not None:
            change(target, options)
        named = named_tensors(plan, args, options)
        sources = {name: at for at, name in enumerate(named)}
        known = {
            name: marks
            for name, each in named.items()
            if (marks := declared(plan, name, each, sources[name])) is not None
        }
        shadow = Shadow({id(named[name]): marks for name, marks in known.items()}, dict(stand_ins or {}))
        if manner.gradients:
            for each in named.values():
                if each.is_floating_point():
                    each.requires_grad_()
        given = {name: each.detach().clone() for name, each in named.items()}
        model = target if isinstance(target, nn.Module) else None
        replacing = Replacing(stand_ins or {}, own)
        with (
            torch.set_grad_enabled(manner.gradients),
            replacing,
            replacing.within_layers(),
            torch.random.fork_rng(devices=()),
        ):
            _called_before(plan, target, sizes, manner)
            torch.default_generator.manual_seed(manner.seed if manner.luck is None else manner.luck)
            done = record(
                lambda: target(*args, **options),
                model=model, own=own, values=True, encoders=True, observe=shadow.observe,
            )  # fmt: skip
    shadow.follow(done.operations)
    output = next(iter(tensors(first_of(done.result))), None)
    return Run(
        plan, sizes, done, tuple(shadow.seen), shadow.marks, target, named, sources, output,
        dict(stand_ins or {}), known, given,
    )  # fmt: skip


def _called_before(plan: Plan, target: Any, sizes: Mapping[str, int], manner: Manner) -> None:
    """The calls that come before the one that is recorded."""
    if isinstance(target, nn.Module) and any(isinstance(p, nn.UninitializedParameter) for p in target.parameters()):
        # weights that the first call draws are drawn alike in every run
        torch.default_generator.manual_seed(0)
        _called(plan, target, sizes, 0, manner.dtype)
    if manner.earlier is not None:
        forget = as_it_is(target) if manner.forgets and isinstance(target, nn.Module) else None
        _called(plan, target, sizes, manner.earlier, manner.dtype)
        if forget is not None:
            forget()


def _called(plan: Plan, target: Any, sizes: Mapping[str, int], seed: int, dtype: torch.dtype) -> None:
    """Call a target once, whatever comes of it."""
    args, options = arguments(plan, sizes, seed, dtype)
    with torch.no_grad(), contextlib.suppress(Exception):
        target(*args, **options)


def arguments(
    plan: Plan, sizes: Mapping[str, int], seed: int, dtype: torch.dtype
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a plan is called with, in a dtype."""
    with torch.random.fork_rng(devices=()):
        # an expression of the person's may draw numbers too
        torch.default_generator.manual_seed(seed)
        args, options = plan.arguments(sizes, seed=seed)
    return tuple(_in(each, dtype) for each in args), {name: _in(each, dtype) for name, each in options.items()}


def first_of(result: Any) -> Any:
    """What a call gives, where it may be an object of outputs."""
    if isinstance(result, Tensor | tuple | list | Mapping):
        return result
    return getattr(result, "last_hidden_state", None) if result is not None else None


def _in(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, tuple):
        return tuple(_in(each, dtype) for each in value)
    return value


def named_tensors(plan: Plan, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among the arguments, by name."""
    out: dict[str, Tensor] = {}
    names = [name for name in plan.call if not name.startswith("_")]
    for name, value in [*zip(names, args, strict=False), *options.items()]:
        for place, each in enumerate(tensors(value)):
            out[name if isinstance(value, Tensor) else f"{name}.{place}"] = each
    return out


def declared(plan: Plan, name: str, tensor: Tensor, source: int) -> Marks | None:
    """The marks of an argument, from the shape that it was asked for; None: it holds no tokens."""
    if plan.mask and name == plan.mask:
        return None
    said = plan.call.get(name)
    if isinstance(said, Mapping):
        said = said.get("_ids")
    if not isinstance(said, list) or len(said) != tensor.ndim or tensor.ndim == 0:
        return None
    meanings = {each.name: each.meaning for each in plan.symbols}
    roles = []
    all_held = [{meanings[each] for each in meanings if each in _words(str(text))} for text in said]
    layout = str(plan.call.get("_layout", ""))
    if len(layout) == len(said) and "D" in layout:
        # a number of channels may be a size of its own
        all_held[layout.index("D")].add("width")
    has_features = any(held & FEATURES for held in all_held)
    for at, held in enumerate(all_held):
        if "batch" in held:
            roles.append("sample")
        elif held & {"queries", "keys"}:
            roles.append("place")
        elif held & FEATURES:
            roles.append("feature")
        else:
            is_last = at == len(said) - 1 and len(said) > 1 and not has_features
            roles.append("feature" if is_last else "place")
    if "place" not in roles and tensor.ndim > 1:
        return None
    return tokens(tuple(tensor.shape), tuple(roles), source)


def _words(text: str) -> set[str]:
    for sign in "*+-/()":
        text = text.replace(sign, " ")
    return set(text.split())


def call_of(run: Run, entry: Seen) -> Span:
    """Where an operation was asked for: of a helper that serves several, the call that was meant."""
    operation = entry.operation
    others = [each.operation.chain for each in run.seen if each.operation.span == operation.span]
    for place in reversed(range(len(operation.chain))):
        if any(len(other) > place and other[place] != operation.chain[place] for other in others):
            return operation.chain[place]
    return operation.span
