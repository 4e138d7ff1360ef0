"""Propagation: follows the provenance of every tensor through a run, operation by operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow.axis_names import RECURRENT
from headwise.dataflow.contractions import CONVOLUTIONS, contraction
from headwise.dataflow.index_maps import is_movement, of_marks
from headwise.dataflow.kept_provenance import (
    as_complex,
    as_one_token,
    as_real,
    embedded,
    fresh_features,
    from_places,
    packed,
    pooled,
    recurrent,
    summed,
)
from headwise.dataflow.learned_tokens import LearnedTokens
from headwise.dataflow.marked_operations import ADDITIONS, LIKENED, NEW, SHAPED, SOFTMAXES, MarkedOp, Replaced
from headwise.dataflow.product_provenance import contracted, entrywise
from headwise.dataflow.provenance import LOST, Marks, numbered
from headwise.dataflow.summed_products import product_of, summed_product
from headwise.dataflow.views import Views
from headwise.recording import Operation, tensors

__all__ = ["TRIANGLES", "ProvenanceTracker"]

JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "pad",
                   "gather", "take_along_dim", "tril", "triu", "index_put_", "index_copy",
                   "scatter", "scatter_", "index_copy_", "index_add_"})  # fmt: skip
CATS = frozenset({"cat", "concat", "concatenate"})
TRIANGLES = frozenset({"tril", "triu", "tril_", "triu_"})
SUMS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "logsumexp", "norm", "vector_norm", "prod"})
COUNTS = frozenset({"sum", "count_nonzero"})
ATTENTIONS = frozenset({"scaled_dot_product_attention", "attention", "DotProductAttention", "AdditiveAttention"})
LAYERS = frozenset({"MultiheadAttention", "multi_head_attention_forward"})
POOLS = frozenset({
    f"{prefix}{kind}_pool{axes}d" for prefix in ("", "adaptive_") for kind in ("avg", "max") for axes in (1, 2, 3)
})  # fmt: skip
# of the first tensor of these the others pick entries
INDEXED = frozenset({"index_select", "__getitem__", "gather", "take_along_dim"})
# the tokens of a padded batch one after another, and back
PACKS = frozenset({"_pack_padded_sequence", "_pad_packed_sequence"})
Noted = tuple[Operation, Replaced, tuple[Any, ...], dict[str, Any]]
# what a replacement may raise for a call of unknown form
FAILURES = (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError)


@dataclass
class ProvenanceTracker:
    """Propagates marks through a run. argument_marks: by the id of an argument; replaced: replacements by site.
    states: the marks of arguments that are one token for each batch element, by their id; they and what is learned have
    marks only where no tokens are weighed without them; None: never. learned: what of it is taken as tokens.
    """

    argument_marks: dict[int, Marks]
    replaced: Mapping[Any, Replaced] = field(default_factory=dict)
    states: Mapping[int, Marks] | None = None
    learned: LearnedTokens | None = None
    ops: list[MarkedOp] = field(default_factory=list)
    marks: dict[int, Marks] = field(default_factory=dict)
    views: Views = field(default_factory=Views)
    noted: dict[int, Noted] = field(default_factory=dict)
    products: dict[int, MarkedOp] = field(default_factory=dict)
    is_followed: bool = False

    def observe(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Note an operation that has just run."""
        self.noted[at] = (operation, function, args, dict(options))

    def follow(self, operations: Sequence[Operation]) -> None:
        """Propagate the marks through all operations of the noted run, once."""
        if self.is_followed:
            return
        self.is_followed = True
        self._follow_all(operations)
        if self.states is None or weighs_tokens(self.ops):
            return
        wider = ProvenanceTracker(
            {**self.states, **self.argument_marks}, self.replaced, learned=LearnedTokens(), noted=self.noted
        )
        wider._follow_all(operations)
        if weighs_tokens(wider.ops):
            self.ops, self.marks, self.views, self.learned = wider.ops, wider.marks, wider.views, wider.learned

    def _follow_all(self, operations: Sequence[Operation]) -> None:
        for at, operation in enumerate(operations):
            noted = self.noted.get(at)
            if noted is not None:
                self._follow(at, *noted)
            else:
                # a headwise function, of which only inputs and outputs are recorded
                values = tuple(tensor.value for tensor in operation.inputs if tensor.value is not None)
                self._follow(at, operation, _unknown, values, {})

    def _follow(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        input_tensors = list(tensors((args, options)))
        for state, tensor in zip(operation.inputs, input_tensors, strict=True):
            if state.number not in self.marks and id(tensor) in self.argument_marks:
                self.marks[state.number] = self.argument_marks[id(tensor)]
        if self.learned is not None and (own := self.learned.marks_of(operation, input_tensors)) is not None:
            self.marks.setdefault(operation.inputs[0].number, own)
        input_marks = tuple(self.marks.get(operand.number) for operand in operation.inputs)
        site = (operation.chain, operation.span, operation.name)
        change = self.replaced.get(site)
        unknown = (None,) * len(operation.outputs)
        entry = MarkedOp(at, operation, function, args, options, input_marks, unknown, change=change)
        if (product := product_of(entry, self.products)) is not None:
            self.products |= dict.fromkeys(entry.results, product)
        elif entry.last == "sum" and (product := self.products.get(operation.inputs[0].number)) is not None:
            entry = summed_product(product, entry) or entry
        if any(input_mark is not None for input_mark in entry.given):
            try:
                entry.output_marks = self._output_marks(entry, entry.tensors, change)
            except FAILURES:
                entry.output_marks = (LOST,) * len(operation.outputs)
            if self.learned is not None and len(entry.output_marks) == 1:
                entry.output_marks = (self.learned.as_copied(operation, entry.output_marks[0]),)
        for output, marks in zip(operation.outputs, entry.output_marks, strict=False):
            if marks is not None and (marks.kind == "lost" or marks.shape == output.shape):
                self.marks[output.number] = marks
            elif marks is not None:
                self.marks[output.number] = LOST
            else:
                self.marks.pop(output.number, None)
        if entry.last in ("__setitem__", "copy_") and _values(entry, input_tensors):
            # the written tensor has their marks now
            with contextlib.suppress(*FAILURES):
                number = operation.inputs[0].number
                self.marks[number] = _written(entry, input_tensors)
                self.views.written(number, self.marks)
        if len(operation.outputs) == 1 and operation.inputs and is_movement(operation.function):
            self.views.note(operation.outputs[0].number, operation.inputs[0].number, function, args, dict(options))
        self.ops.append(entry)

    def _output_marks(self, entry: MarkedOp, inputs: list[Tensor], change: Replaced | None) -> tuple[Marks | None, ...]:
        operation, input_marks, last = entry.operation, entry.given, entry.last
        count, function = len(operation.outputs), change or entry.function
        if last in NEW:
            return (None,) * count
        if last in ATTENTIONS:
            return (self._attention(input_marks, operation),)
        if last in ("view_as_complex", "view_as_real"):
            return (as_complex(input_marks[0]) if last == "view_as_complex" else as_real(input_marks[0]),)
        is_cut = last in TRIANGLES and input_marks[0] is not None and input_marks[0].kind == "pair"
        if is_cut or (last in LIKENED and len(input_marks) > 1):
            # a masked score keeps its two tokens
            return input_marks[:1]
        if last in SHAPED and input_marks[0] is None:
            return (None,)
        if last in LAYERS:
            return (fresh_features(input_marks[0], operation.outputs[0].shape), *([None] * (count - 1)))
        if last in RECURRENT:
            states = (LOST,) * (count - 1) if self.learned is None else self.learned.last_states(entry)
            return (recurrent(input_marks[0], operation.outputs[0].shape), *states)
        if last in PACKS:
            return (packed(function, input_marks[0], entry.args), *([None] * (count - 1)))
        if last in CONVOLUTIONS and not (input_marks[0] and input_marks[0].kind == "pair"):
            return (from_places(input_marks[0], operation.outputs[0].shape),)
        if last in POOLS:
            return (pooled(input_marks[0], operation.outputs[0].shape), *([None] * (count - 1)))
        if last == "embedding":
            return (embedded(input_marks[0], operation.outputs[0].shape),)
        if is_movement(operation.function) or last in JOINS:
            moved = _moved(of_marks(function, operation.function), entry, inputs)
            return moved if len(moved) == count else (LOST,) * count
        joint = entry.joint or contraction(operation.function, entry.args, entry.options)
        entry.joint = joint if joint is not None and joint.is_possible else None
        if entry.joint is not None:
            return (contracted(entry.joint, input_marks, inputs, operation.outputs[0].shape),)
        if last in CONVOLUTIONS:
            # scores of several pairs are of none
            return (LOST,) * count
        if last in COUNTS and not (inputs[0].is_floating_point() or inputs[0].is_complex()):
            # how many tokens there are is of none of them
            return (None,) * count
        if last in SUMS and count and tuple(operation.outputs[0].shape) != tuple(inputs[0].shape):
            before, after = tuple(inputs[0].shape), operation.outputs[0].shape
            marks = summed(input_marks[0], before, after, entry.args, entry.options)
            is_weighed = any(each.last in SOFTMAXES for each in self.ops)
            if self.learned is not None and len(entry.outputs) == 1 and not is_weighed:
                marks = self.learned.of_samples(entry, marks)
            return (marks,) * count
        is_sum = operation.name in ADDITIONS
        return tuple(entrywise(input_marks, tuple(tensor.shape), is_sum=is_sum) for tensor in operation.outputs)

    def _attention(self, input_marks: tuple[Marks | None, ...], operation: Operation) -> Marks:
        q, v = input_marks[0], input_marks[2]
        if q is None or v is None or q.kind != "token" or v.kind != "token":
            return LOST
        shape = tuple(operation.outputs[0].shape)
        heads, width = q.arrays["f"][..., :1].expand(shape), torch.arange(shape[-1]).expand(shape)
        return Marks("token", {"t": q.arrays["t"][..., :1].expand(shape), "f": numbered(heads, width)})


def _unknown(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("a headwise function does not propagate marks")


def _moved(function: Replaced, entry: MarkedOp, input_tensors: list[Tensor]) -> tuple[Marks | None, ...]:
    """The marks after a movement: their arrays moved the same way."""
    sources = [marks for marks in _moved_marks(entry) if marks is not None]
    kinds = {marks.kind for marks in sources}
    if len(kinds) != 1 or kinds == {"lost"}:
        return (LOST,) * len(entry.outputs)
    (kind,) = kinds
    out: list[dict[str, Tensor]] = []
    for name in sources[0].arrays:
        args, options = _stood_in(entry, input_tensors, name)
        if entry.last == "pad":
            options = {"value": -1, **{key: each for key, each in options.items() if key in ("pad", "input")}}
            args = args[:2]
        for place, array in enumerate(tensors(function(*args, **options))):
            if place == len(out):
                out.append({})
            out[place][name] = array
    return tuple(Marks(kind, arrays) for arrays in out)


def _moved_marks(entry: MarkedOp) -> tuple[Marks | None, ...]:
    """The marks of what an operation moves: an index that it reads says which entries, whatever it was made of."""
    if entry.last in INDEXED:
        return (entry.given[0], *[None] * (len(entry.given) - 1))
    return as_one_token(entry.given, entry.args, entry.options) if entry.last in CATS else entry.given


def _values(entry: MarkedOp, input_tensors: list[Tensor]) -> list[Marks]:
    """The marks of the values that an operation writes into its first tensor, without index tensors."""
    written = {id(tensor) for tensor in tensors((entry.args[2 if entry.last == "__setitem__" else 1 :], entry.options))}
    pairs = list(zip(input_tensors, entry.given, strict=True))[1:]
    return [marks for tensor, marks in pairs if marks is not None and id(tensor) in written]


def _written(entry: MarkedOp, input_tensors: list[Tensor]) -> Marks:
    """The marks of a tensor after a write."""
    marks = _values(entry, input_tensors)[0]
    if entry.given[0] is not None and entry.given[0].kind != marks.kind:
        return LOST
    arrays = {}
    for name in marks.arrays:
        args, options = _stood_in(entry, input_tensors, name)
        if isinstance(args[0], Tensor) and any(args[0] is tensor for tensor in input_tensors):
            # what was recorded stays as it is
            args[0] = torch.full(args[0].shape, -1)
        entry.function(*args, **options)
        arrays[name] = args[0]
    return Marks(marks.kind, arrays) if marks.kind != "lost" else LOST


def _stood_in(entry: MarkedOp, input_tensors: list[Tensor], name: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, with an array of marks in place of each tensor."""
    by_id = {id(t): marks for t, marks in zip(input_tensors, _moved_marks(entry), strict=True)}

    def instead(value: Any) -> Any:
        if isinstance(value, Tensor):
            marks = by_id.get(id(value))
            if marks is not None and name in marks.arrays:
                return marks.arrays[name].clone(memory_format=torch.contiguous_format)
            return torch.full(value.shape, -1) if value.is_floating_point() else value
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return type(value)([instead(each) for each in value])
        return value

    return [instead(argument) for argument in entry.args], {key: instead(each) for key, each in entry.options.items()}


def weighs_tokens(ops: Sequence[MarkedOp]) -> bool:
    """Whether tokens are weighed by scores of tokens."""
    for entry in ops:
        kinds = {marks.kind for marks in entry.given if marks is not None}
        if entry.joint is not None and kinds == {"pair", "token"}:
            return True
        if entry.last in LAYERS or (entry.last in ATTENTIONS and all(entry.given[:2])):
            return True
    return False
