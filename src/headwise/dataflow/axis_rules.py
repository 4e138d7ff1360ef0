"""Axis rules: the output axes of an operation, from its input axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.dataflow.axis_parts import Atom, Axes, Laid, Part, Pieces, rearranged, whole
from headwise.dataflow.sizes import Sizes, is_one, less, times

__all__ = ["OperationAxes", "outputs"]


@dataclass(frozen=True)
class OperationAxes:
    """One operation in all runs. inputs: the axes of its tensors; results: the sizes of its outputs, axis by axis.

    moves: the layout of each result, None where it has none. arguments: those without tensors, of the first run, by
    position or name. counts: of inputs, in each run.
    """

    function: str
    inputs: tuple[Axes, ...]
    results: tuple[tuple[Sizes, ...], ...]
    arguments: Mapping[str, Any]
    moves: tuple[Laid | None, ...] | None
    counts: Sizes

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.counts)


Rule = Callable[[OperationAxes], "tuple[Axes | None, ...]"]


def outputs(op: OperationAxes) -> tuple[Axes, ...]:
    """The axes of each result; an unknown axis is one new piece of its size."""
    rule = RULES.get(op.function.rpartition(".")[2])
    guesses: Sequence[Axes | None]
    if op.moves is not None:
        guesses = [None if laid is None else rearranged(op.inputs[0], laid) for laid in op.moves]
    elif rule is not None:
        guesses = rule(op)
    else:
        guesses = [_broadcast(op)] * len(op.results)
    guesses = [*guesses, *[None] * len(op.results)][: len(op.results)]
    return tuple(
        _fitted(guess if guess is not None else _by_size(op, sizes), sizes, op.runs)
        for guess, sizes in zip(guesses, op.results, strict=True)
    )


def _fitted(axes: Axes, sizes: tuple[Sizes, ...], runs: int) -> Axes:
    """Axes, with a new piece in place of those whose size is not the recorded one."""
    if len(axes) != len(sizes):
        return tuple(_new(size) for size in sizes)
    return tuple(axis if whole(axis, runs) == size else _new(size) for axis, size in zip(axes, sizes, strict=True))


def _new(sizes: Sizes) -> Pieces:
    return () if is_one(sizes) else (Atom(sizes),)


def _by_size(op: OperationAxes, sizes: tuple[Sizes, ...]) -> Axes:
    """The axes of an unknown operation: each that of the first input with exactly one axis of its size."""
    out: list[Pieces] = []
    for size in sizes:
        match = next(
            (
                same_size[0]
                for axes in op.inputs
                for same_size in [[a for a in axes if whole(a, op.runs) == size]]
                if len(same_size) == 1
            ),
            None,
        )
        out.append(_new(size) if match is None or sizes.count(size) > 1 else match)
    return tuple(out)


def _broadcast(op: OperationAxes) -> Axes | None:
    """The axes of an elementwise operation; None: its result is no broadcast of its inputs."""
    if not op.inputs or not op.results:
        return None
    sizes = op.results[0]
    axes = merged(op.inputs, len(sizes))
    return axes if all(whole(axis, op.runs) == size for axis, size in zip(axes, sizes, strict=True)) else None


def merged(many: Sequence[Axes], rank: int) -> Axes:
    """The axes of a broadcast, aligned at the last: the first that is longer than 1 and, if possible, no copy."""
    out: list[Pieces] = []
    for place in range(-rank, 0):
        present = [axes[place] for axes in many if len(axes) >= -place and axes[place]]
        uncopied = [axis for axis in present if not any(isinstance(piece, Atom) and piece.is_copied for piece in axis)]
        out.append((uncopied or present or [()])[0])
    return tuple(out)


def _met(many: Sequence[Axes], rank: int) -> Axes:
    """The batch axes of a product; a mixed axis of either side makes the result mixed."""
    out = list(merged(many, rank))
    for place in range(-rank, 0):
        mixed = (axes[place] for axes in many if len(axes) >= -place and _is_mixed(axes[place]))
        out[place] = next(mixed, out[place])
    return tuple(out)


def _is_mixed(axis: Pieces) -> bool:
    return any(isinstance(piece, Part) for piece in axis)


def _matmul(op: OperationAxes) -> tuple[Axes | None, ...]:
    a, b = op.inputs[-2:] if len(op.inputs) > 1 else (op.inputs[0], op.inputs[0])
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    batch = _met([a[:-2], b[:-2]], max(len(a), len(b), 2) - 2)
    return ((*batch, *rows, *columns),)


def _linear(op: OperationAxes) -> tuple[Axes | None, ...]:
    x, weight = op.inputs[:2]
    return ((*x[:-1], *weight[:-1]),)


def _same(op: OperationAxes) -> tuple[Axes | None, ...]:
    return (op.inputs[0],) * len(op.results)


def _embedding(op: OperationAxes) -> tuple[Axes | None, ...]:
    ids, weight = op.inputs[:2]
    return ((*ids, weight[-1]),)


def _attention(op: OperationAxes) -> tuple[Axes | None, ...]:
    q, k, v = op.inputs[:3]
    return ((*_met([q[:-2], k[:-2], v[:-2]], len(q) - 2), *q[-2:-1], v[-1]),)


def _layer(op: OperationAxes) -> tuple[Axes | None, ...]:
    """nn.MultiheadAttention: its output has the axes of the query, its weights by size."""
    return op.inputs[0], None


def _convolution(op: OperationAxes) -> tuple[Axes | None, ...]:
    x, weight = op.inputs[:2]
    sizes = op.results[0]
    space = [axis if whole(axis, op.runs) == size else _new(size) for axis, size in zip(x[2:], sizes[2:], strict=False)]
    return ((x[0], weight[0], *space),) if len(sizes) == len(x) else (None,)


def _reduction(op: OperationAxes) -> tuple[Axes | None, ...]:
    x, rank = op.inputs[0], len(op.inputs[0])
    arguments = op.arguments
    dim = arguments.get("dim", arguments.get("axis", arguments.get("1")))
    dims = [dim] if isinstance(dim, int) and not isinstance(dim, bool) else dim
    if not isinstance(dims, tuple | list) or not all(isinstance(each, int) for each in dims):
        # over all axes, or of two tensors elementwise
        return ((),) if len(op.results[0]) == 0 else (_broadcast(op),)
    gone = {each % rank for each in dims} if rank else set()
    if len(op.results[0]) == rank:
        return (tuple(() if at in gone else axis for at, axis in enumerate(x)),) * len(op.results)
    return (tuple(axis for at, axis in enumerate(x) if at not in gone),) * len(op.results)


def _joined(op: OperationAxes) -> tuple[Axes | None, ...]:
    """cat: the joined axis is new, the others are merged from the inputs."""
    rank = len(op.results[0])
    whole_inputs = [axes for axes in op.inputs if len(axes) == rank]
    dim = op.arguments.get("dim", op.arguments.get("axis", op.arguments.get("1", 0)))
    if not whole_inputs or not isinstance(dim, int):
        return (None,)
    axes = list(merged(whole_inputs, rank))
    joined_axis = axes[dim]
    if times(op.counts, whole(joined_axis, op.runs)) == op.results[0][dim] and not is_one(op.counts):
        # one input for each head, side by side
        axes[dim] = (Atom(op.counts), *joined_axis)
    else:
        axes[dim] = (Atom(op.results[0][dim], joined=tuple(whole_input[dim] for whole_input in whole_inputs)),)
    return (tuple(axes),)


def _stacked(op: OperationAxes) -> tuple[Axes | None, ...]:
    dim = op.arguments.get("dim", op.arguments.get("1", 0))
    if not op.inputs or not isinstance(dim, int):
        return (None,)
    axes = list(merged(op.inputs, len(op.inputs[0])))
    axes.insert(dim % (len(axes) + 1), _new(op.results[0][dim]))
    return (tuple(axes),)


def _outer(op: OperationAxes) -> tuple[Axes | None, ...]:
    return ((*op.inputs[0], *op.inputs[1]),)


def _einsum(op: OperationAxes) -> tuple[Axes | None, ...]:
    equation = op.arguments.get("0", op.arguments.get("equation"))
    if not isinstance(equation, str):
        return (None,)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(op.inputs):
        return (None,)
    named: dict[str, Pieces] = {}
    rests: list[Axes] = []
    for term, axes in zip(terms, op.inputs, strict=True):
        before, dots, after = term.partition("...")
        letters = list(before) + list(after)
        if len(letters) > len(axes):
            return (None,)
        count = len(axes) - len(letters)
        if dots:
            rests.append(axes[len(before) : len(before) + count])
        named_axes = axes[: len(before)] + axes[len(before) + count :]
        for letter, axis in zip(letters, named_axes, strict=False):
            if axis and (not named.get(letter) or (_is_mixed(axis) and not _is_mixed(named[letter]))):
                named[letter] = axis
            named.setdefault(letter, axis)
    if not arrow:
        letters_of = "".join(terms).replace(".", "")
        right = ("..." if rests else "") + "".join(sorted(c for c in set(letters_of) if letters_of.count(c) == 1))
    before, dots, after = right.partition("...")
    middle = _met(rests, max(map(len, rests), default=0)) if dots else ()
    return ((*[named.get(c, ()) for c in before], *middle, *[named.get(c, ()) for c in after]),)


def _gathered(op: OperationAxes) -> tuple[Axes | None, ...]:
    """gather: the axes of its index."""
    return (op.inputs[1],) if len(op.inputs) > 1 else (None,)


def _topped(op: OperationAxes) -> tuple[Axes | None, ...]:
    """The axes of the input, with a new piece for each axis of another size."""
    return tuple(
        tuple(
            axis if whole(axis, op.runs) == size else _new(size) for axis, size in zip(op.inputs[0], sizes, strict=True)
        )
        if len(sizes) == len(op.inputs[0])
        else None
        for sizes in op.results
    )


def _padded(op: OperationAxes) -> tuple[Axes | None, ...]:
    """pad: an axis that grows is the axis of the input and what was laid beside it."""
    x, sizes = op.inputs[0], op.results[0]
    if len(sizes) != len(x):
        return (None,)
    return (tuple(_lengthened(axis, size, op.runs) for axis, size in zip(x, sizes, strict=True)),)


def _lengthened(axis: Pieces, size: Sizes, runs: int) -> Pieces:
    """An axis with what makes it so long; a new piece where it does not grow in every run."""
    before = whole(axis, runs)
    if before == size:
        return axis
    if not less(before, size):
        return _new(size)
    further = Atom(tuple(a - b for a, b in zip(size, before, strict=True)))
    return (Atom(size, joined=(axis, (further,))),)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "__matmul__", "dot", "baddbmm", "addmm", "addbmm"), _matmul),
    **dict.fromkeys(("linear",), _linear),
    **dict.fromkeys(("embedding",), _embedding),
    **dict.fromkeys(("scaled_dot_product_attention", "attention", "DotProductAttention", "AdditiveAttention"),
                    _attention),
    **dict.fromkeys(("MultiheadAttention", "multi_head_attention_forward", "MultiHeadAttention"), _layer),
    **dict.fromkeys(("TransformerEncoderLayer", "TransformerEncoder", "layer_norm", "rms_norm", "group_norm", "softmax",
                     "batch_norm", "normalize", "log_softmax", "dropout", "masked_fill", "masked_fill_", "cumsum",
                     "roll", "flip"), _same),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "logsumexp", "norm", "any", "all",
                     "prod", "std", "var", "median", "vector_norm"), _reduction),
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    **dict.fromkeys(("stack",), _stacked),
    **dict.fromkeys(("outer", "ger"), _outer),
    **dict.fromkeys(("einsum",), _einsum),
    **dict.fromkeys(("gather", "take_along_dim"), _gathered),
    **dict.fromkeys(("pad",), _padded),
    **dict.fromkeys(("topk", "sort", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), _topped),
}  # fmt: skip
