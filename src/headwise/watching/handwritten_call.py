"""Handwritten call: one softmax that a model computes by itself, and the call of attention that it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.score_calls import terms_of
from headwise.watching.axes import Axes, Axis, arranged, merged
from headwise.watching.axis_moves import PARTS, moved_axes, taken_axes
from headwise.watching.contraction import Contraction
from headwise.watching.hugging_face import deviation
from headwise.watching.product_layout import ProductLayout
from headwise.watching.provenance import Ran
from headwise.watching.record import CallRecord
from headwise.watching.scores import Groups, Scores, storage_of, version_of

__all__ = ["OVERWRITTEN", "Softmax", "Weights"]

NO_PRODUCT = (
    "its scores are no product of queries and keys that could be followed: a router, a pooling or a softmax over "
    "features is no attention map"
)
# what leaves weights as they are, but for dropout, rounding, and rows that are NaN
FAITHFUL = frozenset(
    {
        "dropout", "to", "float", "double", "half", "bfloat16", "type", "type_as", "contiguous", "clone", "detach",
        "nan_to_num", "requires_grad",
    }
)  # fmt: skip
LENT = "its numbers have been changed in memory that was lent, as by numpy(), before the product with the values"
OVERWRITTEN = "its scores have been changed in place before their product with the values"


@dataclass(eq=False)
class Softmax:
    """One softmax: the module that ran it, and what it ran on as far as that is attention.

    axes: of its result. key: which of them it runs over, None: not known. source: what it was given, None: not the
    scores of queries and keys. scores: how these were computed, None: not known, or not proved. has_nan: whether rows
    are NaN. reason: why it can be no map, "" where nothing speaks against it. versions: of the source. is_overwritten:
    whether a function has written to the storage of the source. copies: of tensors whose memory others may write to.
    """

    name: str
    shape: tuple[int, ...]
    axes: Axes
    key: Axis | None
    source: Tensor | None = None
    scores: Scores | None = None
    has_nan: bool = False
    reason: str = ""
    is_seen: bool = False
    versions: tuple[tuple[Tensor, int], ...] = ()
    is_overwritten: bool = False
    copies: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def hold(self, source: Tensor, scores: Scores | None, result: Tensor, *, is_lent: bool = False) -> None:
        """Keep what the softmax was given until it meets values; scores are kept where rows of `result` prove them.

        is_lent: whether others may write to the memory of the source.
        """
        self.source, self.versions = _copied(source) if is_lent else source, tuple(version_of(source))
        if self.key is None:
            return
        position = next(n for n in range(source.ndim) if self.axes.alone(n) is self.key)
        if source.numel():
            # a softmax that is NaN anywhere is NaN in all of its row
            self.has_nan = bool(result.select(position, 0).isnan().any())
        keys = None if scores is None else scores.keys(self.key)
        if scores is None or keys is None:
            return
        if keys.is_learned:
            self.reason = "its keys are a parameter, as the classes of a classifier or the entries of a codebook are"
            return
        query = next(f.free for f in scores.factors if f is not keys).leaves()
        if len(query) == 1:
            lead = batch_and_heads([[axis] for axis in self.axes.leaves() if axis not in (query[0], self.key)])
            record = scores.record(query[0], self.key, lead)
            weights = _four(result, self.axes, [*lead, query, [self.key]])
            if self.has_nan:
                weights = weights.nan_to_num()
            if record is not None and not deviation(record, weights, dropout=0.0):
                self.scores = scores

    def disturb(self, storage: int) -> None:
        """A function has written to this storage: what was read from it is known no more."""
        if self.scores is not None and self.scores.reads(storage):
            self.scores = None
        if self.source is not None and storage_of(self.source) == storage:
            self.is_overwritten = True

    def lend(self, storage: int, weights: Tensor | None) -> None:
        """Others may write to this storage from now on, where perhaps weights of this softmax lie."""
        if self.is_seen:
            return
        if self.scores is not None and self.scores.reads(storage):
            self.scores = None
        if self.source is not None and storage_of(self.source) == storage:
            self.source = _copied(self.source)
        if weights is not None:
            self.copies.append((weights, weights.detach().clone()))

    @property
    def is_rewritten(self) -> bool:
        """Whether others have written to memory that was lent."""
        return not all(torch.equal(now.nan_to_num(), before.nan_to_num()) for now, before in self.copies)

    @property
    def is_source_intact(self) -> bool:
        """Whether the source is as the softmax was given it."""
        return not self.is_overwritten and all(tensor._version == version for tensor, version in self.versions)

    def let_go(self) -> None:
        """Its map has been made, or there will be none."""
        self.is_seen, self.source, self.scores = True, None, None
        self.copies.clear()


class Weights(NamedTuple):
    """What has become of the result of a softmax, or of a part of it.

    axes: None: not known. changed: the function that made other numbers of it, "": none has but dropout. is_zeroed:
    whether zeros stand where it was NaN. is_dropped: whether dropout has changed it. way: over how many functions it
    came. version: of the tensor, None in inference mode.
    """

    softmax: Softmax
    axes: Axes | None
    changed: str = ""
    is_zeroed: bool = False
    is_dropped: bool = False
    way: int = 0
    version: int | None = None

    def at(self, tensor: Tensor, *, writes: int = 0) -> Weights:
        """The same, changed where its tensor has been written more often than `writes` since."""
        if self.changed or self.version is None or tensor._version - self.version in (0, writes):
            return self
        return self._replace(changed="a write in place")

    def after(self, came: Tensor, result: Tensor, ran: Ran) -> Weights:
        """What is known of `result`, by a function of `came`, which has these weights."""
        version = None if result.is_inference() else result._version
        after = self._replace(way=self.way + 1, version=version)
        is_first = ran.position(came) == 0
        axes = None
        if self.axes is not None and is_first:
            axes = moved_axes(ran, self.axes, result) or taken_axes(ran, self.axes)
        if axes is not None:
            return after._replace(axes=axes)
        if ran.name in FAITHFUL and is_first and result.shape == came.shape:
            is_dropped = self.is_dropped or (ran.name == "dropout" and _drops(ran))
            return after._replace(is_zeroed=self.is_zeroed or ran.name == "nan_to_num", is_dropped=is_dropped)
        if ran.name in PARTS:
            return after._replace(axes=None)
        if after.changed or _is_equal(came, result):
            return after
        return after._replace(changed=ran.name.strip("_"))

    def why_not(self, product: Contraction | None, side: int) -> str:
        """Why its product is no attention; "" where it is; side: which factor it is."""
        softmax = self.softmax
        if softmax.reason:
            return softmax.reason
        if softmax.source is None:
            return NO_PRODUCT
        if self.changed:
            return f"{self.changed} changes its weights before they meet the values"
        if softmax.is_rewritten:
            return LENT
        if self.axes is None or product is None or softmax.key is None:
            return "its axes could not be followed to the product with the values"
        letters = product.letters[side]
        if len(product.summed) != 1 or any(c not in product.result + product.summed for c in letters):
            return f"a product sums {len(product.summed)} of its axes, where attention sums that of the keys"
        if self.axes.alone(letters.index(product.summed)) is not softmax.key:
            return "it is normalised over another axis than the product with the values sums over"
        free = product.rows[side]
        if len(free) != 1 or self.axes.alone(letters.index(free)) is None:
            return f"{len(free)} of its axes are of queries alone, where a map has 1, as a router's or a pooling's are"
        return ""

    def layout(self, product: Contraction, side: int) -> ProductLayout:
        """Where batch, heads and queries lie in this product, which ends a call of attention."""
        softmax, axes, letters = self.softmax, self.axes, product.letters[side]
        if axes is None or softmax.key is None:
            raise ValueError("weights whose product is no attention have no layout")
        queries = axes.alone(letters.index(product.rows[side]))
        if queries is None:
            raise ValueError("weights whose product is no attention have no layout")
        now = axes.whole()
        groups = [now[n] for n, c in enumerate(letters) if c not in product.summed + product.rows[side]]
        every = [axis for axis in softmax.axes.leaves() if axis not in (queries, softmax.key)]
        if sorted(map(id, every)) != sorted(id(axis) for group in groups for axis in group if axis in every):
            # one head of several, whose softmax was run for all at once
            groups = [(axis,) for axis in every]
        groups = [tuple(axis for axis in group if axis in every) for group in groups]
        places = {c: list(now[n]) for n, c in enumerate(letters)}
        return ProductLayout(product, side, places, batch_and_heads(groups), queries, softmax.key)

    def record(self, layout: ProductLayout) -> CallRecord | None:
        """The call of attention that this product ends; None: its scores have been written since the softmax."""
        softmax = self.softmax
        is_lazy = softmax.scores is not None and (self.is_zeroed or not softmax.has_nan)
        record = None
        if is_lazy and softmax.scores is not None:
            record = softmax.scores.record(layout.queries, layout.key, layout.lead)
        if record is None and softmax.is_source_intact:
            record = self._held(layout.queries, layout.lead)
        if record is None:
            return None
        return replace(record, v=layout.values(), dropout=float(self.is_dropped))

    def _held(self, queries: Axis, lead: Groups) -> CallRecord:
        """The call that has these very scores as a bias, in O(L²) memory: its queries and keys are zeros."""
        softmax = self.softmax
        if softmax.source is None or softmax.key is None:
            raise ValueError("weights whose product is no attention have no record")
        scores = _four(softmax.source, softmax.axes, [*lead, [queries], [softmax.key]])
        if softmax.has_nan:
            # such rows are NaN in the model, or else were made 0 after the softmax
            is_empty = scores.amax(-1, keepdim=True)
            is_empty = is_empty.isnan() | is_empty.isneginf()
            scores = scores.masked_fill(is_empty, -math.inf if self.is_zeroed else math.nan)
        return CallRecord(**terms_of(scores))


def batch_and_heads(groups: Sequence[Sequence[Axis]]) -> tuple[list[Axis], list[Axis]]:
    """Which axes make up the batch, and which the heads, of those that lie beside queries and keys.

    Of two the first is the batch, one alone is the batch of one head; of more the last is the heads, but what a view
    has merged in one of two stays so.
    """
    groups = [group for group in groups if group]
    leaves = [axis for group in groups for axis in group]
    if len(leaves) > 2 and len(groups) == 2:
        return list(groups[0]), list(groups[1])
    if len(leaves) < 2:
        return leaves, []
    return leaves[:-1], leaves[-1:]


def _drops(ran: Ran) -> bool:
    """Whether a call of dropout(input, p, training) changes anything."""
    p = ran.options.get("p", ran.args[1] if len(ran.args) > 1 else 0.5)
    is_on = ran.options.get("training", ran.options.get("train", ran.args[2] if len(ran.args) > 2 else True))
    return bool(is_on) and p != 0


def _copied(tensor: Tensor) -> Tensor:
    """A copy that leads back to what the tensor was made of, where that does."""
    with torch.enable_grad():
        return tensor.clone()


def _is_equal(weights: Tensor, result: Tensor) -> bool:
    """Whether a function left every number as it was, as one that masks again what is masked."""
    return result is not weights and result.shape == weights.shape and torch.equal(result.detach(), weights.detach())


def _four(tensor: Tensor, axes: Axes, groups: Groups) -> Tensor:
    """A whole tensor with these axes, with one dimension for every group."""
    leaves = axes.leaves()
    apart = tensor.reshape([axis.size for axis in leaves])
    return merged(arranged(apart, leaves, [axis for group in groups for axis in group]), groups)
