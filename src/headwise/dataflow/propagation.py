"""Propagation: follows the provenance of every tensor through a run, operation by operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow.contractions import Contraction, contraction, is_constant
from headwise.dataflow.index_maps import is_movement
from headwise.dataflow.product_provenance import contracted, embedded, entrywise, fresh_features, from_places
from headwise.dataflow.provenance import LOST, Marks, numbered
from headwise.dataflow.views import Views
from headwise.recording import Operation, Recalled, TensorSeen, tensors

__all__ = ["TRIANGLES", "Seen", "Shadow"]

JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "pad",
                   "gather", "take_along_dim", "tril", "triu", "index_put_", "index_copy",
                   "scatter", "scatter_", "index_copy_", "index_add_"})  # fmt: skip
TRIANGLES = frozenset({"tril", "triu", "tril_", "triu_"})
SUMS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "logsumexp", "norm", "vector_norm", "prod"})
ATTENTIONS = frozenset({"scaled_dot_product_attention", "attention", "DotProductAttention", "AdditiveAttention"})
LAYERS = frozenset({"MultiheadAttention", "multi_head_attention_forward"})
# of another tensor these have the shape or the kind alone
NEW = frozenset({"new_empty", "new_zeros", "new_ones", "new_full", "empty_like", "zeros_like", "ones_like", "full_like",
                 "rand_like", "randn_like"})  # fmt: skip
# the second tensor only says of which kind the first is to be; or of which shape
LIKENED = frozenset({"to", "type_as"})
SHAPED = frozenset({"expand_as", "view_as", "reshape_as"})
# their result is new in every entry: what it holds of which token is found by its places alone
FRESH = frozenset({"conv1d", "conv2d", "conv3d"})
Replaced = Callable[..., Any]
# what a stand-in may raise where a call has a form that is not known
FAILURES = (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError)


@dataclass
class Seen:
    """One operation with the marks of what it took and gave. joint: the contraction that it is, None: it is none;
    change: what stood in for it.
    """

    at: int
    operation: Operation
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    given: tuple[Marks | None, ...]
    made: tuple[Marks | None, ...]
    joint: Contraction | None = None
    change: Replaced | None = None

    @property
    def rules(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments and options that torch's attention really ran with."""
        if isinstance(self.change, Recalled):
            return self.args[:3], self.change.options(self.options)
        return self.args, self.options

    @property
    def last(self) -> str:
        """The last part of torch's name of it."""
        return self.operation.function.rpartition(".")[2]

    @property
    def handed_on(self) -> list[tuple[TensorSeen, Marks]]:
        """The tensors with marks whose numbers go into its result: not those of whose kind or shape it is made."""
        taken = 0 if self.last in NEW else 1 if self.last in LIKENED | SHAPED else len(self.given)
        pairs = zip(self.operation.inputs[:taken], self.given[:taken], strict=True)
        return [(each, marks) for each, marks in pairs if marks is not None]

    @property
    def tensors(self) -> list[Tensor]:
        """Its tensors, in order."""
        return list(tensors((self.args, self.options)))


@dataclass
class Shadow:
    """known: marks by the id of an argument's tensor. replaced: what stands in for an operation, by its site."""

    known: dict[int, Marks]
    replaced: Mapping[Any, Replaced] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    marks: dict[int, Marks] = field(default_factory=dict)
    views: Views = field(default_factory=Views)
    noted: dict[int, tuple[Operation, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=dict
    )

    def observe(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Take note of an operation that has just run."""
        self.noted[at] = (operation, function, args, dict(options))

    def follow(self, operations: Sequence[Operation]) -> None:
        """Follow the marks through all operations of the run that was noted."""
        for at, operation in enumerate(operations):
            noted = self.noted.get(at)
            if noted is not None:
                self._follow(at, *noted)
            else:
                # a function of headwise's, of which only what came and went is known
                given = tuple(each.value for each in operation.inputs if each.value is not None)
                self._follow(at, operation, _unknown, given, {})

    def _follow(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        own = list(tensors((args, options)))
        for seen, tensor in zip(operation.inputs, own, strict=True):
            if seen.number not in self.marks and id(tensor) in self.known:
                self.marks[seen.number] = self.known[id(tensor)]
        given = tuple(self.marks.get(each.number) for each in operation.inputs)
        site = (operation.chain, operation.span, operation.name)
        change = self.replaced.get(site)
        entry = Seen(at, operation, function, args, options, given, (None,) * len(operation.outputs), change=change)
        if any(each is not None for each in given):
            try:
                entry.made = self._made(entry, own, change)
            except FAILURES:
                entry.made = (LOST,) * len(operation.outputs)
        for each, marks in zip(operation.outputs, entry.made, strict=False):
            if marks is not None and (marks.kind == "lost" or marks.shape == each.shape):
                self.marks[each.number] = marks
            elif marks is not None:
                self.marks[each.number] = LOST
            else:
                self.marks.pop(each.number, None)
        if entry.last in ("__setitem__", "copy_") and _values(entry, own):
            # what holds them now holds their marks
            with contextlib.suppress(*FAILURES):
                number = operation.inputs[0].number
                self.marks[number] = _written(entry, own)
                self.views.written(number, self.marks)
        if len(operation.outputs) == 1 and operation.inputs and is_movement(operation.function):
            self.views.note(operation.outputs[0].number, operation.inputs[0].number, function, args, dict(options))
        self.seen.append(entry)

    def _made(self, entry: Seen, own: list[Tensor], change: Replaced | None) -> tuple[Marks | None, ...]:
        operation, given = entry.operation, entry.given
        count = len(operation.outputs)
        last = entry.last
        function = change or entry.function
        if last in NEW:
            return (None,) * count
        if last in ATTENTIONS:
            return (self._attention(given, operation),)
        if last in ("view_as_complex", "view_as_real"):
            return (_as_complex(given[0]) if last == "view_as_complex" else _as_real(given[0]),)
        is_cut = last in TRIANGLES and given[0] is not None and given[0].kind == "pair"
        if is_cut or (last in LIKENED and len(given) > 1):
            # a score of which nothing is left is that of the same two tokens
            return given[:1]
        if last in SHAPED and given[0] is None:
            return (None,)
        if last in LAYERS:
            return (fresh_features(given[0], operation.outputs[0].shape), *([None] * (count - 1)))
        if last in FRESH:
            return (from_places(given[0], operation.outputs[0].shape),)
        if last == "embedding":
            return (embedded(given[0], operation.outputs[0].shape),)
        if is_movement(operation.function) or last in JOINS:
            moved = _moved(function, entry, own)
            return moved if len(moved) == count else (LOST,) * count
        joint = contraction(operation.function, entry.args, entry.options)
        entry.joint = joint if joint is not None and joint.is_possible else None
        if entry.joint is not None:
            return (contracted(entry.joint, given, own, operation.outputs[0].shape),)
        if last in SUMS and count and tuple(operation.outputs[0].shape) != tuple(own[0].shape):
            return (summed(entry),) * count
        return tuple(entrywise(given, tuple(each.shape)) for each in operation.outputs)

    def _attention(self, given: tuple[Marks | None, ...], operation: Operation) -> Marks:
        q, v = given[0], given[2]
        if q is None or v is None or q.kind != "token" or v.kind != "token":
            return LOST
        shape = tuple(operation.outputs[0].shape)
        heads, width = q.arrays["f"][..., :1].expand(shape), torch.arange(shape[-1]).expand(shape)
        return Marks("token", {"t": q.arrays["t"][..., :1].expand(shape), "f": numbered(heads, width)})


def _as_complex(marks: Marks | None) -> Marks:
    """Of numbers two of which become one: the token that they are of, and the first of their features."""
    if marks is None or marks.kind != "token" or not is_constant(marks.arrays["t"], marks.arrays["t"].ndim - 1):
        return LOST
    return marks.through(lambda each: each[..., 0])


def _as_real(marks: Marks | None) -> Marks:
    """Of complex numbers that become two each: one after the other, of the same token."""
    if marks is None or marks.kind != "token":
        return LOST
    t, f = (marks.arrays[each].unsqueeze(-1).expand(*marks.shape, 2) for each in "tf")
    return Marks("token", {"t": t, "f": f * 2 + torch.arange(2)})


def _unknown(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("what a function of headwise's does with marks is not asked of it")


def _moved(function: Replaced, entry: Seen, own: list[Tensor]) -> tuple[Marks | None, ...]:
    """The marks after a movement: their arrays moved the same way."""
    kinds = {each.kind for each in entry.given if each is not None}
    if len(kinds) != 1 or kinds == {"lost"}:
        return (LOST,) * len(entry.operation.outputs)
    (kind,) = kinds
    out: list[dict[str, Tensor]] = []
    for name in next(each for each in entry.given if each is not None).arrays:
        args, options = _stood_in(entry, own, name)
        if entry.last == "pad":
            options = {"value": -1, **{key: each for key, each in options.items() if key in ("pad", "input")}}
            args = args[:2]
        for place, each in enumerate(tensors(function(*args, **options))):
            if place == len(out):
                out.append({})
            out[place][name] = each
    return tuple(Marks(kind, arrays) for arrays in out)


def _values(entry: Seen, own: list[Tensor]) -> list[Marks]:
    """The marks of what an operation writes into its first tensor; what says where is not written."""
    written = {id(each) for each in tensors((entry.args[2 if entry.last == "__setitem__" else 1 :], entry.options))}
    pairs = list(zip(own, entry.given, strict=True))[1:]
    return [marks for tensor, marks in pairs if marks is not None and id(tensor) in written]


def _written(entry: Seen, own: list[Tensor]) -> Marks:
    """The marks of a tensor into which others were written."""
    known = _values(entry, own)[0]
    if entry.given[0] is not None and entry.given[0].kind != known.kind:
        return LOST
    arrays = {}
    for name in known.arrays:
        args, options = _stood_in(entry, own, name)
        entry.function(*args, **options)
        arrays[name] = args[0]
    return Marks(known.kind, arrays) if known.kind != "lost" else LOST


def _stood_in(entry: Seen, own: list[Tensor], name: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, with each tensor's array of marks, of which a view can be taken, in its place."""
    by_id = {id(t): marks for t, marks in zip(own, entry.given, strict=True)}

    def instead(value: Any) -> Any:
        if isinstance(value, Tensor):
            marks = by_id.get(id(value))
            if marks is not None and name in marks.arrays:
                return marks.arrays[name].clone(memory_format=torch.contiguous_format)
            return torch.full(value.shape, -1) if value.is_floating_point() else value
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return type(value)([instead(each) for each in value])
        return value

    return [instead(each) for each in entry.args], {key: instead(each) for key, each in entry.options.items()}


def summed(entry: Seen) -> Marks | None:
    """Of a sum over axes: what they have in common."""
    marks, before, after = entry.given[0], entry.tensors[0].shape, entry.operation.outputs[0].shape
    if marks is None or marks.kind == "lost":
        return LOST
    keep = len(before) == len(after)
    named = entry.options.get("dim", entry.options.get("axis"))
    named = (
        next((each for each in entry.args[1:] if isinstance(each, int | tuple | list)), None)
        if named is None
        else named
    )
    axes = sorted({each % len(before) for each in ([named] if isinstance(named, int) else named or range(len(before)))})
    arrays = {}
    for name, each in marks.arrays.items():
        array = each
        for axis in axes:
            same = is_constant(array, axis)
            array = array.select(axis, 0).unsqueeze(axis)
            if not same and name != "f":
                array = torch.full_like(array, -1)
        arrays[name] = (
            array.expand([1 if a in axes else n for a, n in enumerate(before)]) if keep else array.reshape(after)
        )
    return Marks(marks.kind, arrays)
