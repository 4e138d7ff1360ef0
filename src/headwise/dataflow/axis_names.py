"""Axis names: the name of each axis of each tensor of the aligned runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from headwise.dataflow.axes import NamedAxis, Shape
from headwise.dataflow.axis_parts import Atom, Axes, Digit, Laid, Part, Piece, Pieces, unmixed, whole
from headwise.dataflow.axis_rules import OperationAxes, outputs
from headwise.dataflow.expressions import UNKNOWN, Expressions
from headwise.dataflow.index_maps import Moved
from headwise.dataflow.provenance import Follower, Origin
from headwise.dataflow.sizes import Sizes, product
from headwise.recording import Operation, Record, TensorSeen
from headwise.source import Span

__all__ = ["Names", "RECURRENT", "Row", "aligned", "by_site"]

# the weights of these are not shown: the source is `self.q_proj(x)`
WITH_WEIGHTS = frozenset({
    "linear", "embedding", "layer_norm", "rms_norm", "group_norm", "batch_norm", "conv1d", "conv2d", "conv3d",
})  # fmt: skip
# nor those of these, which follow the input and the state: the number of shown tensors
RECURRENT = {"gru": 2, "lstm": 3, "rnn_tanh": 2, "rnn_relu": 2}
Site = tuple[tuple[Span, ...], Span, str]


@dataclass(frozen=True)
class RowAxes:
    """The axes of the inputs and outputs of one operation, before they are named."""

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]


class Names:
    """Derives the axes of the tensors of aligned runs in order, and names them after all rows.

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

    def of(self, row: Row) -> RowAxes:
        """The axes of an operation, once for each row and in the order of the rows."""
        operations = row.operations
        inputs = tuple(
            self._taken(first.number, sizes) for first, sizes in _beside([operation.inputs for operation in operations])
        )
        results = tuple(sizes for _, sizes in _beside([operation.outputs for operation in operations]))
        op = OperationAxes(
            row.first.function, inputs, results, row.first.arguments, self._moves(row),
            tuple(len(operation.inputs) for operation in operations),
        )  # fmt: skip
        output_axes = outputs(op)
        for tensor, axes in zip(row.first.outputs, output_axes, strict=False):
            if tensor.number not in row.first.writes or tensor.number not in self._axes:
                self._axes[tensor.number] = axes
        return RowAxes(inputs, output_axes)

    def inputs_of(self, operations: Sequence[Operation]) -> tuple[Axes, ...]:
        """The axes of the inputs of an operation that failed in every run."""
        return tuple(
            self._taken(first.number, sizes) for first, sizes in _beside([operation.inputs for operation in operations])
        )

    def shown(self, row: Row, named: RowAxes) -> tuple[Axes, ...]:
        """The axes of the inputs in the source, without the weights of a layer."""
        if row.first.name in WITH_WEIGHTS:
            return named.inputs[:1]
        return named.inputs[: RECURRENT.get(row.first.name)]

    def shape(self, axes: Axes, sizes: Sequence[int]) -> Shape:
        """Axes as a shape with names; sizes: of the shown run."""
        return Shape(tuple(self._axis(pieces, size) for pieces, size in zip(axes, sizes, strict=True)))

    def _axis(self, pieces: Pieces, size: int) -> NamedAxis:
        scrambled = any(isinstance(piece, Part) for piece in pieces)
        return NamedAxis(self._text(pieces), size, scrambled)

    def _text(self, pieces: Pieces) -> str:
        if not pieces:
            return "1"
        texts = [self._piece(piece) for piece in pieces]
        if len(texts) > 1 and not any(isinstance(piece, Part) for piece in pieces):
            total = self.expressions.name(whole(pieces, self._runs))
            # the name of the whole is shorter than halves and unnamed parts, and clearer for copies that are next to
            # their source: key heads that are repeated for the query heads
            is_repeated = isinstance(pieces[-1], Atom) and pieces[-1].is_copied
            if (is_repeated and total.isidentifier()) or any(UNKNOWN in text for text in texts):
                return total
            if total != UNKNOWN and any("//" in text for text in texts):
                return total
        if all(text.isdigit() for text in texts):
            return str(prod(map(int, texts)))
        return multiplied(texts)

    def _piece(self, piece: Piece) -> str:
        if isinstance(piece, Part):
            return f"({' '.join(dict.fromkeys(self._piece(each) for each in unmixed(piece)))})"
        if piece.name:
            return piece.name
        text = self.expressions.name(piece.sizes)
        for slow, fast in piece.halves.values():
            halves = multiplied([self._piece(slow), self._piece(fast)])
            # in the order of the split, where all parts have names; a third of three widths is a width
            if all(word.isidentifier() or (word.isdigit() and "*" not in text) for word in halves.split("*")):
                return halves
            if text == UNKNOWN and UNKNOWN not in halves:
                return halves
        if text == UNKNOWN and piece.joined:
            lengths = [self._text(each) for each in piece.joined]
            if UNKNOWN not in lengths:
                return "+".join(lengths)
        return text

    def _taken(self, number: int, sizes: tuple[Sizes, ...]) -> Axes:
        """The axes of an input: derived, declared, or new where no operation returned the tensor."""
        present = self._axes.get(number)
        if present is not None and len(present) == len(sizes):
            return present
        source = self._source(number)
        declared = self._declared.get(source.name) if source.kind == "argument" else None
        if declared is not None and len(declared) == len(sizes):
            axes = tuple(self._declared_axis(text, size) for text, size in zip(declared, sizes, strict=True))
        else:
            axes = tuple(() if set(size) == {1} else (Atom(size),) for size in sizes)
        self._axes[number] = axes
        return axes

    def _declared_axis(self, text: str, sizes: Sizes) -> Pieces:
        """The pieces of a declared axis, by its symbols: two symbols may have one size."""
        if set(sizes) == {1}:
            return ()
        factors = text.replace(" ", "").split("*")
        factor_sizes = [self._sizes.get(factor) for factor in factors]
        if (
            len(factors) > 1
            and product([factor_size for factor_size in factor_sizes if factor_size is not None], self._runs) == sizes
        ):
            return tuple(Atom(each, name) for name, each in zip(factors, factor_sizes, strict=True) if each is not None)
        return (Atom(sizes, text if text.isidentifier() else ""),)

    def _source(self, number: int) -> Origin:
        return self._followers[0].sources.get(number, Origin("made"))

    def _moves(self, row: Row) -> tuple[Laid | None, ...] | None:
        """The layout of each result over the first input, in all runs; None: the operation is no movement."""
        moves = [follower.moves.get(place) for follower, place in zip(self._followers, row.places, strict=True)]
        if any(move is None for move in moves):
            return None
        return tuple(_digits(each) for each in zip(*[move for move in moves if move is not None], strict=False))


def multiplied(factors: Sequence[str]) -> str:
    """A product as text, with brackets around sums and floored quotients."""
    if len(factors) == 1:
        return factors[0]
    return "*".join(f"({factor})" if _is_sum(factor) or "//" in factor else factor for factor in factors)


def _is_sum(text: str) -> bool:
    """Whether + or - is outside of all brackets."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter in "+-" and depth == 0:
            return True
    return False


def _digits(moves: Sequence[Moved]) -> Laid | None:
    """The digits of one result in all runs; None: they are not of one form."""
    if any(move.axes is None for move in moves):
        return None
    axes = []
    for axis_digits in zip(*[move.axes for move in moves if move.axes is not None], strict=False):
        if len({len(digits) for digits in axis_digits}) > 1:
            return None
        axes.append(
            tuple(
                Digit(tuple(size for size, _ in level), tuple(stride for _, stride in level))
                for level in zip(*axis_digits, strict=True)
            )
        )
    return Laid(tuple(axes), all(move.is_whole for move in moves), tuple(move.start for move in moves))


def _beside(many: Sequence[Sequence[TensorSeen]]) -> Iterator[tuple[TensorSeen, tuple[Sizes, ...]]]:
    """Each tensor of the first run with its sizes in all runs; (): the ranks differ."""
    for together in zip(*many, strict=False):
        ranks = {len(each.shape) for each in together}
        sizes = tuple(zip(*[each.shape for each in together], strict=True)) if len(ranks) == 1 else ()
        yield together[0], sizes


@dataclass(frozen=True)
class Row:
    """One operation in all runs. places: its index in each record; turns: the runs of its site in each record.

    turn: the index among these, from 0.
    """

    operations: tuple[Operation, ...]
    places: tuple[int, ...]
    site: Site
    turns: Sizes
    turn: int = 0

    @property
    def is_last(self) -> bool:
        """Whether it is the last turn of each run, and not the only one."""
        return _is_last(self.turn, self.turns)

    @property
    def first(self) -> Operation:
        """The operation in the first run."""
        return self.operations[0]


def _is_last(turn: int, turns: Sizes) -> bool:
    """Whether a turn is the last that all runs have, and not the only one."""
    return 0 < turn == min(turns) - 1


def aligned(records: Sequence[Record]) -> list[Row]:
    """The operations that all runs have in common; of a loop as many turns, the last one among them."""
    sites = [by_site(record) for record in records]
    rows: list[tuple[int, Row]] = []
    for site, places in sites[0].items():
        everywhere = [run_sites.get(site, []) for run_sites in sites]
        turns = tuple(len(each) for each in everywhere)
        for turn in range(min(turns)):
            # what is left over is in the last turn, whichever that is
            at = tuple(each[-1 if _is_last(turn, turns) else turn] for each in everywhere)
            operations = tuple(record.operations[place] for record, place in zip(records, at, strict=True))
            rows.append((places[turn], Row(operations, at, site, turns, turn)))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def by_site(record: Record) -> dict[Site, list[int]]:
    """The indices of the operations of each site in a record, turn by turn."""
    indices: dict[Site, list[int]] = {}
    for place, operation in enumerate(record.operations):
        indices.setdefault(_site(operation), []).append(place)
    return indices


def _site(operation: Operation) -> Site:
    return operation.chain, operation.span, operation.name
