"""Token sums: sums over tokens whose weights no scores of queries and keys give, as in linear attention and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow.attention import is_scores, makers
from headwise.dataflow.contractions import is_constant
from headwise.dataflow.marked_operations import MarkedOp
from headwise.dataflow.runner import Run

__all__ = ["SCATTERED", "TOTALS", "TokenSum", "downstream", "reader", "token_sums"]

MULTIPLICATIONS = frozenset({"mul", "__mul__", "multiply", "mul_", "einsum", "matmul"})
TOTALS = frozenset({"sum", "mean", "cumsum"})
# what adds numbers up at the places that an index names: (input, dim, index, source)
SCATTERED = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_"})


@dataclass(frozen=True)
class TokenSum:
    """One sum over tokens. product: the operation that multiplies each value by its weight, or by the features of its
    key; total: the one that adds the products up, which may be the same.
    """

    product: MarkedOp
    total: MarkedOp

    @property
    def is_running(self) -> bool:
        """Whether each token has a sum of its own, over those up to it."""
        return self.total.last == "cumsum"

    @property
    def ends(self) -> Tensor | None:
        """Of each product the place where it is added up, as of messages along the edges of a graph; None: all of a
        row are added up.
        """
        if self.total.last not in SCATTERED:
            return None
        index: Tensor = _argument(self.total, 2, "index")
        return index.movedim(self.axis, 0).flatten(1)[:, 0] if index.ndim > 1 else index

    @property
    def axis(self) -> int:
        """The axis along which products are added up at their ends."""
        return int(_argument(self.total, 1, "dim")) % int(self.total.args[0].ndim)

    @property
    def operands(self) -> list[int]:
        """The places of the two that are multiplied, among the arguments of the product."""
        return [at for at, each in enumerate(self.product.args) if isinstance(each, Tensor)]


def token_sums(run: Run) -> list[TokenSum]:
    """The sums over tokens of a run, in order."""
    return list(run.fact(_token_sums, run))


def downstream(run: Run, entry: MarkedOp) -> Iterator[MarkedOp]:
    """The operations that take what an operation gives, or what follows from it, in order."""
    numbers = set(entry.results)
    for later in run.seen:
        if later.at > entry.at and later.taken & numbers:
            numbers |= later.results | set(later.operation.writes)
            yield later


def reader(run: Run, total: TokenSum) -> MarkedOp | None:
    """The product of queries with a sum over tokens; None: no tokens read it."""
    numbers = set(total.product.results)
    for entry in downstream(run, total.product):
        pairs = zip(entry.inputs, entry.given, strict=True)
        kinds = {(tensor.number in numbers, marks.kind) for tensor, marks in pairs if marks is not None}
        numbers |= entry.results
        is_product = entry.joint is not None or entry.last == "einsum"
        if entry.at > total.total.at and is_product and kinds >= {(True, "state"), (False, "token")}:
            return entry
    return None


def _token_sums(run: Run) -> list[TokenSum]:
    out = []
    for entry in run.seen:
        marks = entry.output_marks[0] if entry.output_marks else None
        is_state = marks is not None and marks.kind == "state" and entry.joint is not None and bool(entry.joint.summed)
        if is_state and is_scores(entry):
            out.append(TokenSum(entry, entry))
        elif entry.last in TOTALS and _adds_tokens(entry):
            product = _product(run, entry, entry.inputs[0].number)
            if product is not None:
                out.append(TokenSum(product, entry))
        elif entry.last in SCATTERED:
            source = _argument(entry, 3, "src" if "scatter" in entry.last else "source")
            at = next((at for at, each in enumerate(entry.tensors) if each is source), None)
            product = None if at is None else _product(run, entry, entry.inputs[at].number)
            if product is not None:
                out.append(TokenSum(product, entry))
    return out


def _adds_tokens(entry: MarkedOp) -> bool:
    """Whether a sum goes over an axis of tokens."""
    marks = entry.given[0] if entry.given else None
    if marks is None or marks.kind not in ("token", "state"):
        return False
    dim = entry.options.get("dim", entry.args[1] if len(entry.args) > 1 else None)
    axes = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, tuple | list) else []
    return any(isinstance(axis, int) and not is_constant(marks.arrays["t"], axis) for axis in axes)


def _argument(entry: MarkedOp, at: int, name: str) -> Any:
    return entry.args[at] if len(entry.args) > at else entry.options.get(name)


def _product(run: Run, total: MarkedOp, number: int) -> MarkedOp | None:
    """The product of two features of each token that is added up; None: what is added up is none."""
    at = total.at
    while maker := next(iter(makers(run, at, number)), None):
        if not maker.is_movement:
            kinds = {marks.kind for marks in maker.given if marks is not None}
            # which tokens a recurrent layer made its states of is not followed, and its values are weighed all the same
            is_marked = "token" in kinds and kinds <= {"token", "lost"} and None not in maker.given
            is_product = maker.last in MULTIPLICATIONS and is_marked and len(maker.given) == 2
            sums_nothing = is_product and bool((maker.joint is None) or not maker.joint.summed)
            return maker if sums_nothing and _are_two(maker) else None
        at, number = maker.at, maker.inputs[0].number
    return None


def _are_two(product: MarkedOp) -> bool:
    """Whether both that are multiplied hold tokens, and are not the same, as in a square."""
    held = (m is not None and (m.kind == "lost" or bool((m.arrays["t"] >= 0).any())) for m in product.given)
    return all(held) and not torch.equal(
        *(tensor.value if tensor.value is not None else torch.empty(0) for tensor in product.inputs)
    )
