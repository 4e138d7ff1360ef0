"""Axis rules: the axes of what an operation gives, from the axes of what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.dataflow.axis_parts import Atom, Axes, Laid, Part, Pieces, rearranged, whole
from headwise.dataflow.sizes import Sizes, is_one, times

__all__ = ["Seen", "outputs"]


@dataclass(frozen=True)
class Seen:
    """One operation in all runs. inputs: the axes of its tensors; results: the sizes of what it gave, axis by axis.

    moves: for each result its digits, or None where it is not an order of entries. arguments: what came besides
    tensors, of the first run, by place or name. counts: of inputs, in each run.
    """

    function: str
    inputs: tuple[Axes, ...]
    results: tuple[tuple[Sizes, ...], ...]
    arguments: Mapping[str, Any]
    moves: tuple[Laid | None, ...] | None
    counts: Sizes

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self.counts)


Rule = Callable[[Seen], "tuple[Axes | None, ...]"]


def outputs(seen: Seen) -> tuple[Axes, ...]:
    """The axes of each result; an axis of which nothing is known holds one new piece of its size."""
    rule = RULES.get(seen.function.rpartition(".")[2])
    guesses: Sequence[Axes | None]
    if seen.moves is not None:
        guesses = [None if laid is None else rearranged(seen.inputs[0], laid) for laid in seen.moves]
    elif rule is not None:
        guesses = rule(seen)
    else:
        guesses = [_broadcast(seen)] * len(seen.results)
    guesses = [*guesses, *[None] * len(seen.results)][: len(seen.results)]
    return tuple(
        _fitted(guess if guess is not None else _by_size(seen, sizes), sizes, seen.runs)
        for guess, sizes in zip(guesses, seen.results, strict=True)
    )


def _fitted(axes: Axes, sizes: tuple[Sizes, ...], runs: int) -> Axes:
    """Axes, with those put right by size whose pieces do not make up what was seen."""
    if len(axes) != len(sizes):
        return tuple(_new(size) for size in sizes)
    return tuple(axis if whole(axis, runs) == size else _new(size) for axis, size in zip(axes, sizes, strict=True))


def _new(sizes: Sizes) -> Pieces:
    return () if is_one(sizes) else (Atom(sizes),)


def _by_size(seen: Seen, sizes: tuple[Sizes, ...]) -> Axes:
    """Where nothing is known of an operation: an axis is that of the first input that has just one of its size."""
    out: list[Pieces] = []
    for size in sizes:
        found = next(
            (
                own[0]
                for axes in seen.inputs
                for own in [[a for a in axes if whole(a, seen.runs) == size]]
                if len(own) == 1
            ),
            None,
        )
        out.append(_new(size) if found is None or sizes.count(size) > 1 else found)
    return tuple(out)


def _broadcast(seen: Seen) -> Axes | None:
    """The axes of an operation that works entry by entry; None: its result is no broadcast of its inputs."""
    if not seen.inputs or not seen.results:
        return None
    sizes = seen.results[0]
    axes = merged(seen.inputs, len(sizes))
    return axes if all(whole(axis, seen.runs) == size for axis, size in zip(axes, sizes, strict=True)) else None


def merged(many: Sequence[Axes], rank: int) -> Axes:
    """The axes of a broadcast, aligned at the last: of each the first that is longer than 1 and no copy of others."""
    out: list[Pieces] = []
    for place in range(-rank, 0):
        own = [axes[place] for axes in many if len(axes) >= -place and axes[place]]
        known = [axis for axis in own if not any(isinstance(piece, Atom) and piece.is_copied for piece in axis)]
        out.append((known or own or [()])[0])
    return tuple(out)


def _met(many: Sequence[Axes], rank: int) -> Axes:
    """The axes along which products are taken one by one: where one side is mixed up, so is what comes of both."""
    out = list(merged(many, rank))
    for place in range(-rank, 0):
        mixed = (axes[place] for axes in many if len(axes) >= -place and _is_mixed(axes[place]))
        out[place] = next(mixed, out[place])
    return tuple(out)


def _is_mixed(axis: Pieces) -> bool:
    return any(isinstance(piece, Part) for piece in axis)


def _matmul(seen: Seen) -> tuple[Axes | None, ...]:
    a, b = seen.inputs[-2:] if len(seen.inputs) > 1 else (seen.inputs[0], seen.inputs[0])
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    batch = _met([a[:-2], b[:-2]], max(len(a), len(b), 2) - 2)
    return ((*batch, *rows, *columns),)


def _linear(seen: Seen) -> tuple[Axes | None, ...]:
    x, weight = seen.inputs[:2]
    return ((*x[:-1], *weight[:-1]),)


def _same(seen: Seen) -> tuple[Axes | None, ...]:
    return (seen.inputs[0],) * len(seen.results)


def _embedding(seen: Seen) -> tuple[Axes | None, ...]:
    ids, weight = seen.inputs[:2]
    return ((*ids, weight[-1]),)


def _attention(seen: Seen) -> tuple[Axes | None, ...]:
    q, k, v = seen.inputs[:3]
    return ((*_met([q[:-2], k[:-2], v[:-2]], len(q) - 2), *q[-2:-1], v[-1]),)


def _layer(seen: Seen) -> tuple[Axes | None, ...]:
    """nn.MultiheadAttention: its output is as the query, its weights are by size."""
    return seen.inputs[0], None


def _convolution(seen: Seen) -> tuple[Axes | None, ...]:
    x, weight = seen.inputs[:2]
    sizes = seen.results[0]
    space = [
        axis if whole(axis, seen.runs) == size else _new(size) for axis, size in zip(x[2:], sizes[2:], strict=False)
    ]
    return ((x[0], weight[0], *space),) if len(sizes) == len(x) else (None,)


def _reduction(seen: Seen) -> tuple[Axes | None, ...]:
    x, rank = seen.inputs[0], len(seen.inputs[0])
    given = seen.arguments
    dim = given.get("dim", given.get("axis", given.get("1")))
    dims = [dim] if isinstance(dim, int) and not isinstance(dim, bool) else dim
    if not isinstance(dims, tuple | list) or not all(isinstance(each, int) for each in dims):
        # of everything, or of two tensors entry by entry
        return ((),) if len(seen.results[0]) == 0 else (_broadcast(seen),)
    gone = {each % rank for each in dims} if rank else set()
    if len(seen.results[0]) == rank:
        return (tuple(() if at in gone else axis for at, axis in enumerate(x)),) * len(seen.results)
    return (tuple(axis for at, axis in enumerate(x) if at not in gone),) * len(seen.results)


def _joined(seen: Seen) -> tuple[Axes | None, ...]:
    """cat: the joined axis is new, the others are those of the first input that knows them."""
    rank = len(seen.results[0])
    whole_inputs = [axes for axes in seen.inputs if len(axes) == rank]
    dim = seen.arguments.get("dim", seen.arguments.get("axis", seen.arguments.get("1", 0)))
    if not whole_inputs or not isinstance(dim, int):
        return (None,)
    axes = list(merged(whole_inputs, rank))
    own = axes[dim]
    if times(seen.counts, whole(own, seen.runs)) == seen.results[0][dim] and not is_one(seen.counts):
        # one for each head, side by side
        axes[dim] = (Atom(seen.counts), *own)
    else:
        axes[dim] = (Atom(seen.results[0][dim], joined=tuple(each[dim] for each in whole_inputs)),)
    return (tuple(axes),)


def _stacked(seen: Seen) -> tuple[Axes | None, ...]:
    dim = seen.arguments.get("dim", seen.arguments.get("1", 0))
    if not seen.inputs or not isinstance(dim, int):
        return (None,)
    axes = list(merged(seen.inputs, len(seen.inputs[0])))
    axes.insert(dim % (len(axes) + 1), _new(seen.results[0][dim]))
    return (tuple(axes),)


def _outer(seen: Seen) -> tuple[Axes | None, ...]:
    return ((*seen.inputs[0], *seen.inputs[1]),)


def _einsum(seen: Seen) -> tuple[Axes | None, ...]:
    equation = seen.arguments.get("0", seen.arguments.get("equation"))
    if not isinstance(equation, str):
        return (None,)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(seen.inputs):
        return (None,)
    named: dict[str, Pieces] = {}
    rests: list[Axes] = []
    for term, axes in zip(terms, seen.inputs, strict=True):
        before, dots, after = term.partition("...")
        letters = list(before) + list(after)
        if len(letters) > len(axes):
            return (None,)
        count = len(axes) - len(letters)
        if dots:
            rests.append(axes[len(before) : len(before) + count])
        own = axes[: len(before)] + axes[len(before) + count :]
        for letter, axis in zip(letters, own, strict=False):
            if axis and (not named.get(letter) or (_is_mixed(axis) and not _is_mixed(named[letter]))):
                named[letter] = axis
            named.setdefault(letter, axis)
    if not arrow:
        letters_of = "".join(terms).replace(".", "")
        right = ("..." if rests else "") + "".join(sorted(c for c in set(letters_of) if letters_of.count(c) == 1))
    before, dots, after = right.partition("...")
    middle = _met(rests, max(map(len, rests), default=0)) if dots else ()
    return ((*[named.get(c, ()) for c in before], *middle, *[named.get(c, ()) for c in after]),)


def _gathered(seen: Seen) -> tuple[Axes | None, ...]:
    """gather: as its index, which is the last tensor."""
    return (seen.inputs[1],) if len(seen.inputs) > 1 else (None,)


def _topped(seen: Seen) -> tuple[Axes | None, ...]:
    """As the input but for axes of another size."""
    return tuple(
        tuple(
            axis if whole(axis, seen.runs) == size else _new(size)
            for axis, size in zip(seen.inputs[0], sizes, strict=True)
        )
        if len(sizes) == len(seen.inputs[0])
        else None
        for sizes in seen.results
    )


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
    **dict.fromkeys(("topk", "sort", "pad", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), _topped),
}  # fmt: skip
