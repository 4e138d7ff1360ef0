"""Axis names: what each axis of each tensor of the aligned runs is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.dataflow.alignment import Row
from headwise.dataflow.axes import Axis, Shape
from headwise.dataflow.axis_parts import Atom, Axes, Digit, Laid, Part, Piece, Pieces, unmixed, whole
from headwise.dataflow.axis_rules import Seen, outputs
from headwise.dataflow.expressions import UNKNOWN, Expressions
from headwise.dataflow.index_maps import Moved
from headwise.dataflow.sizes import Sizes, product
from headwise.dataflow.tensor_origins import Follower, Source
from headwise.recording import Operation, Record, TensorSeen

__all__ = ["Named", "Names"]

# the weights of these are not shown: the person wrote `self.q_proj(x)`
WITH_WEIGHTS = frozenset({
    "linear", "embedding", "layer_norm", "rms_norm", "group_norm", "batch_norm", "conv1d", "conv2d", "conv3d",
})  # fmt: skip
# nor those of these, which come behind the input and the state: how many tensors these are
RECURRENT = {"gru": 2, "lstm": 3, "rnn_tanh": 2, "rnn_relu": 2}


@dataclass(frozen=True)
class Named:
    """The axes of what one operation took and gave, before they are said."""

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]


class Names:
    """Gives the tensors of aligned runs their axes, in order, and says them once all is known.

    declared: the axes of each tensor among the arguments, as expressions in symbols. sizes: of each symbol.
    """

    def __init__(
        self,
        expressions: Expressions,
        declared: Mapping[str, Sequence[str]],
        records: Sequence[Record],
        followers: Sequence[Follower],
        sizes: Mapping[str, Sizes],
    ) -> None:
        self.expressions = expressions
        self._declared, self._sizes = declared, sizes
        self._records, self._followers = records, followers
        self._runs = len(records)
        self._axes: dict[int, Axes] = {}

    def of(self, row: Row) -> Named:
        """The axes of an operation, once for each row and in the order of the rows."""
        operations = row.operations
        inputs = tuple(
            self._taken(first.number, sizes) for first, sizes in _beside([each.inputs for each in operations])
        )
        results = tuple(sizes for _, sizes in _beside([each.outputs for each in operations]))
        seen = Seen(
            row.first.function, inputs, results, row.first.arguments, self._moves(row),
            tuple(len(each.inputs) for each in operations),
        )  # fmt: skip
        given = outputs(seen)
        for each, axes in zip(row.first.outputs, given, strict=False):
            if each.number not in row.first.writes or each.number not in self._axes:
                self._axes[each.number] = axes
        return Named(inputs, given)

    def inputs_of(self, operations: Sequence[Operation]) -> tuple[Axes, ...]:
        """The axes of what an operation took that failed in every run."""
        return tuple(self._taken(first.number, sizes) for first, sizes in _beside([each.inputs for each in operations]))

    def shown(self, row: Row, named: Named) -> tuple[Axes, ...]:
        """The inputs that a person wrote: without the weights of a layer that was called."""
        if row.first.name in WITH_WEIGHTS:
            return named.inputs[:1]
        return named.inputs[: RECURRENT.get(row.first.name)]

    def shape(self, axes: Axes, sizes: Sequence[int]) -> Shape:
        """Axes as they are said; sizes: of the run that is shown."""
        return Shape(tuple(self._axis(pieces, size) for pieces, size in zip(axes, sizes, strict=True)))

    def _axis(self, pieces: Pieces, size: int) -> Axis:
        scrambled = any(isinstance(piece, Part) for piece in pieces)
        return Axis(self._text(pieces), size, scrambled)

    def _text(self, pieces: Pieces) -> str:
        if not pieces:
            return "1"
        said = [self._piece(piece) for piece in pieces]
        if len(said) > 1 and not any(isinstance(each, Part) for each in pieces):
            total = self.expressions.name(whole(pieces, self._runs))
            # halves, and what has no name, say nothing that the whole does not say shorter; so do copies, each next to
            # what it copies, that make up a size with a name of its own: the key heads repeated for the query heads
            is_repeated = isinstance(pieces[-1], Atom) and pieces[-1].is_copied
            if (is_repeated and total.isidentifier()) or any(UNKNOWN in each for each in said):
                return total
            if total != UNKNOWN and any("//" in each for each in said):
                return total
        return multiplied(said)

    def _piece(self, piece: Piece) -> str:
        if isinstance(piece, Part):
            return f"({' '.join(dict.fromkeys(self._piece(each) for each in unmixed(piece)))})"
        if piece.name:
            return piece.name
        text = self.expressions.name(piece.sizes)
        for slow, fast in piece.halves.values():
            halves = multiplied([self._piece(slow), self._piece(fast)])
            # in the order in which it is taken apart, where that is into sizes that have names; a third of three
            # widths is a width
            if all(each.isidentifier() or (each.isdigit() and "*" not in text) for each in halves.split("*")):
                return halves
            if text == UNKNOWN and UNKNOWN not in halves:
                return halves
        if text == UNKNOWN and piece.joined:
            lengths = [self._text(each) for each in piece.joined]
            if UNKNOWN not in lengths:
                return "+".join(lengths)
        return text

    def _taken(self, number: int, sizes: tuple[Sizes, ...]) -> Axes:
        """The axes of a tensor that an operation took, declared or new where no operation gave it."""
        found = self._axes.get(number)
        if found is not None and len(found) == len(sizes):
            return found
        source = self._source(number)
        said = self._declared.get(source.name) if source.kind == "argument" else None
        if said is not None and len(said) == len(sizes):
            axes = tuple(self._declared_axis(text, size) for text, size in zip(said, sizes, strict=True))
        else:
            axes = tuple(() if set(size) == {1} else (Atom(size),) for size in sizes)
        self._axes[number] = axes
        return axes

    def _declared_axis(self, text: str, sizes: Sizes) -> Pieces:
        """What the caller was asked for, taken at its word where it is a symbol: two may have one size."""
        if set(sizes) == {1}:
            return ()
        factors = text.replace(" ", "").split("*")
        known = [self._sizes.get(each) for each in factors]
        if len(factors) > 1 and product([each for each in known if each is not None], self._runs) == sizes:
            return tuple(Atom(each, name) for name, each in zip(factors, known, strict=True) if each is not None)
        return (Atom(sizes, text if text.isidentifier() else ""),)

    def _source(self, number: int) -> Source:
        return self._followers[0].sources.get(number, Source("made"))

    def _moves(self, row: Row) -> tuple[Laid | None, ...] | None:
        """How each result lies over the first input, in all runs; None: the operation is no movement."""
        found = [follower.moves.get(place) for follower, place in zip(self._followers, row.places, strict=True)]
        if any(each is None for each in found):
            return None
        return tuple(_digits(each) for each in zip(*[each for each in found if each is not None], strict=False))


def multiplied(factors: Sequence[str]) -> str:
    """A product, with brackets round what is a sum or is rounded."""
    if len(factors) == 1:
        return factors[0]
    return "*".join(f"({each})" if _is_sum(each) or "//" in each else each for each in factors)


def _is_sum(text: str) -> bool:
    """Whether + or - stands outside of all brackets."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter in "+-" and depth == 0:
            return True
    return False


def _digits(moves: Sequence[Moved]) -> Laid | None:
    """The digits of one result in all runs; None: they are not of one form."""
    if any(each.axes is None for each in moves):
        return None
    axes = []
    for own in zip(*[each.axes for each in moves if each.axes is not None], strict=False):
        if len({len(digits) for digits in own}) > 1:
            return None
        axes.append(
            tuple(
                Digit(tuple(size for size, _ in level), tuple(stride for _, stride in level))
                for level in zip(*own, strict=True)
            )
        )
    return Laid(tuple(axes), all(each.is_whole for each in moves), tuple(each.start for each in moves))


def _beside(many: Sequence[Sequence[TensorSeen]]) -> Iterator[tuple[TensorSeen, tuple[Sizes, ...]]]:
    """Each tensor of the first run, with its sizes in all; those that have not the same rank in all have none."""
    for together in zip(*many, strict=False):
        ranks = {len(each.shape) for each in together}
        sizes = tuple(zip(*[each.shape for each in together], strict=True)) if len(ranks) == 1 else ()
        yield together[0], sizes
