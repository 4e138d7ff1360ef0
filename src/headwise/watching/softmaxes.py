"""Softmaxes: the attention that a model writes by hand, from the product that makes scores to that with the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.watching.axes import Axes
from headwise.watching.contraction import PRODUCTS, Contraction, contraction
from headwise.watching.followed import Followed, Ran
from headwise.watching.handwritten import Softmax, Weights
from headwise.watching.moves import moved_axes, taken_axes
from headwise.watching.record import Record, unreadable
from headwise.watching.scores import Scores, scores_after, scores_of, storage_of

__all__ = ["SOFTMAXES", "Softmaxes"]

aten = torch.ops.aten

# whose results are no weights
NO_WEIGHTS: frozenset[Any] = frozenset(
    {
        F.softmin, F.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax,
        aten.log_softmax.int, aten._log_softmax.default,
    }
)  # fmt: skip
SOFTMAXES: frozenset[Any] = NO_WEIGHTS | {
    F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, aten.softmax.int, aten._softmax.default,
    aten._safe_softmax.default,
}  # fmt: skip
# what leaves weights as they are, but for dropout, rounding, and rows that are NaN
FAITHFUL = frozenset(
    {
        "dropout", "to", "float", "double", "half", "bfloat16", "type", "type_as", "contiguous", "clone", "detach",
        "nan_to_num", "requires_grad",
    }
)  # fmt: skip
# what takes a part of the weights, such as one head or one block of rows
PARTS = frozenset({"__getitem__", "select", "narrow", "unbind", "split", "chunk"})
# what puts weights beside others, or beside zeros, as of a band
WHOLES = frozenset(
    {"pad", "cat", "stack", "expand", "repeat", "as_strided", "repeat_interleave", "concat", "concatenate"}
)
# by which queries and keys meet, beside products
MEETINGS = frozenset({"add", "sub", "subtract", "cdist"})
FOLDS = frozenset({"reshape", "view", "flatten"})
# from a softmax to its product there lie a cast, dropout, axes moved, a band laid out, and the like
LONGEST_WAY = 16


class Tracked(NamedTuple):
    """Scores of queries and keys, or what functions have made of them.

    axes, scores: None where a function has been met that is not known. is_outer: an axis of features is still to be
    summed, as in additive attention. version: of the tensor, None in inference mode.
    """

    axes: Axes | None
    scores: Scores | None
    is_outer: bool
    version: int | None
    way: int


class Softmaxes:
    """The softmaxes of a watched block, where their scores come from, and what becomes of their results.

    add: takes in a call of attention under a name. modules: whose parameters are no keys.
    """

    def __init__(self, add: Callable[[str, Record], None], modules: Iterable[nn.Module]) -> None:
        # each softmax that entered a product and is no map, and why
        self._unread: dict[Softmax, str] = {}
        self._add, self._modules = add, modules
        self._learned: frozenset[int] | None = None
        self._scores: Followed[Tracked] = Followed()
        self._weights: Followed[Weights] = Followed()
        # the batch and heads of a tensor whose first axis is both
        self._folds: Followed[tuple[int, int]] = Followed()

    def close(self) -> dict[str, str]:
        """Let go of everything; name of a module -> why a softmax of its own that enters a product is no map."""
        for followed in (self._scores, self._weights, self._folds):
            followed.clear()
        reasons: dict[str, str] = {}
        for softmax, why in self._unread.items():
            if not softmax.is_seen:
                reasons.setdefault(softmax.name, f"computes a softmax of its own over {softmax.shape}, but {why}")
        return reasons

    def begin(self, name: str, ran: Ran) -> None:
        """A softmax has run."""
        args, options, result = ran.args, ran.options, ran.result
        source = args[0] if args else options.get("input", options.get("self"))
        if not isinstance(result, Tensor) or not isinstance(source, Tensor) or source.shape != result.shape:
            return
        tracked = self._scores.at(source)
        dim = options.get("dim", args[1] if len(args) > 1 else None)
        axes = tracked.axes if tracked is not None and tracked.axes is not None else Axes.of(source.shape)
        key = axes.alone(dim) if isinstance(dim, int) and -source.ndim <= dim < source.ndim else None
        softmax = Softmax(name, tuple(result.shape), axes, key, reason=unreadable(source))
        self._weights.put(result, Weights(softmax, axes))
        if ran.function in NO_WEIGHTS or softmax.reason or tracked is None or tracked.is_outer:
            return
        scores = tracked.scores if _version(source) == tracked.version else None
        with torch.no_grad():
            softmax.hold(source, scores, result)

    def go_on(self, ran: Ran) -> None:
        """Another function has run."""
        if ran.function in PRODUCTS:
            self._multiply(ran)
            return
        if self._scores or self._weights:
            for came in ran.inputs:
                if (tracked := self._scores.at(came)) is not None:
                    self._advance(tracked, came, ran)
                elif (weights := self._weights.at(came)) is not None:
                    self._carry(weights, came, ran)
                else:
                    continue
                break
            if ran.is_in_place and isinstance(ran.args[0], Tensor) and ran.args[0].is_inference():
                self._disturb(ran.args[0])
        self._fold(ran)
        if ran.name in MEETINGS:
            self._combine(ran)

    def _multiply(self, ran: Ran) -> None:
        """A product has run: of weights with values, of queries with keys, or another."""
        product, result = contraction(ran.function, ran.args, ran.options), ran.result
        factors = tuple(ran.inputs) if product is None else product.factors
        for side, factor in enumerate(factors):
            if (weights := self._weights.at(factor)) is not None:
                self._end(weights, product, side)
                return
        for factor in factors:
            if (tracked := self._scores.at(factor)) is not None and tracked.is_outer:
                self._sum_features(tracked, factor, result)
                return
        if product is None or not isinstance(result, Tensor) or unreadable(result):
            return
        axes = Axes.of(result.shape)
        scores = scores_of(product, axes, self._is_learned)
        if scores is None:
            return
        folds = {fold for factor in factors if (fold := self._folds.at(factor)) is not None}
        if len(folds) == 1 and result.ndim == 3:
            # the axis of both is split for all who know it
            axes.reshaped((*folds.pop(), *result.shape[1:]))
        self._scores.put(result, Tracked(axes, scores, False, _version(result), 0))

    def _end(self, weights: Weights, product: Contraction | None, side: int) -> None:
        """Weights have entered a product."""
        softmax = weights.softmax
        if softmax.is_seen:
            return
        if why := weights.why_not(product, side):
            self._unread.setdefault(softmax, why)
        elif product is not None:
            record = weights.record(product, side)
            softmax.let_go()
            self._add(softmax.name, record)

    def _advance(self, tracked: Tracked, came: Tensor, ran: Ran) -> None:
        """A function of scores has run."""
        at = ran.position(came)
        before = tracked.version
        if before is not None and at == 0 and ran.is_in_place:
            before += 1
        scores = tracked.scores if _version(came) == before else None
        for made in ran.results:
            if tracked.is_outer and made.shape in (came.shape[:-1], (*came.shape[:-1], 1)):
                self._sum_features(tracked, came, made)
            if tracked.way >= LONGEST_WAY or not _is_still(came, made, ran.name):
                continue
            axes, after = None, None
            if tracked.axes is not None:
                moved = moved_axes(ran, tracked.axes, made) if at == 0 else None
                if moved is not None:
                    axes, after = moved, scores
                elif made.shape == came.shape:
                    axes = tracked.axes
                    after = None if scores is None else scores_after(scores, axes, at, ran)
            self._scores.put(made, Tracked(axes, after, tracked.is_outer, _version(made), tracked.way + 1))

    def _carry(self, weights: Weights, came: Tensor, ran: Ran) -> None:
        """A function of weights has run."""
        for made in ran.results:
            if weights.way >= LONGEST_WAY or not _is_still(came, made, ran.name):
                continue
            after = weights._replace(way=weights.way + 1)
            is_first = ran.position(came) == 0
            axes = None
            if weights.axes is not None and is_first:
                axes = moved_axes(ran, weights.axes, made) or taken_axes(ran, weights.axes)
            if axes is not None:
                after = after._replace(axes=axes)
            elif ran.name in FAITHFUL and is_first and made.shape == came.shape:
                after = after._replace(is_zeroed=weights.is_zeroed or ran.name == "nan_to_num")
            elif ran.name in PARTS:
                after = after._replace(axes=None)
            elif not after.changed and not _is_equal(came, made):
                after = after._replace(changed=ran.name.strip("_"))
            self._weights.put(made, after)

    def _combine(self, ran: Ran) -> None:
        """Queries and keys that meet in a sum, (.., Lq, 1, D) and (.., 1, Lk, D), or by their distance."""
        result = ran.result
        if len(ran.args) != 2 or not all(isinstance(t, Tensor) for t in ran.args) or not isinstance(result, Tensor):
            return
        if not result.is_floating_point() or self._scores.at(result) is not None or result.ndim < 2:
            return
        first, second = ((1,) * (result.ndim - t.ndim) + tuple(t.shape) for t in ran.args)
        pairs = list(zip(first, second, strict=True))
        is_outer = any(a > b == 1 for a, b in pairs) and any(b > a == 1 for a, b in pairs)
        if is_outer or ran.name == "cdist":
            has_features = ran.name != "cdist" and first[-1] == second[-1] > 1
            self._scores.put(result, Tracked(None, None, has_features, _version(result), 0))

    def _sum_features(self, tracked: Tracked, came: Tensor, made: Any) -> None:
        """The features of queries and keys that met have been summed to one score, or to one a head."""
        if isinstance(made, Tensor) and made.is_floating_point() and made.shape[: came.ndim - 1] == came.shape[:-1]:
            self._scores.put(made, Tracked(None, None, False, _version(made), tracked.way + 1))

    def _fold(self, ran: Ran) -> None:
        """Batch and heads merged in one axis by (B, H, L, D) -> (B·H, L, D), and what is made of that."""
        result = ran.result
        if not isinstance(result, Tensor) or result.ndim != 3 or not ran.args or not isinstance(ran.args[0], Tensor):
            return
        came = ran.args[0]
        fold = self._folds.at(came) if self._folds else None
        if fold is not None and result.shape[0] == came.shape[0]:
            self._folds.put(result, fold)
        elif ran.name in FOLDS and came.ndim == 4 and came.shape[2:] == result.shape[1:]:
            self._folds.put(result, (came.shape[0], came.shape[1]))

    def _disturb(self, written: Tensor) -> None:
        """A tensor without versions has been written: what was read from its storage is known no more."""
        storage = storage_of(written)
        for tensor, tracked in self._scores.items():
            is_view = tensor is not written and storage_of(tensor) == storage
            if tracked.scores is not None and (is_view or tracked.scores.reads(storage)):
                self._scores.put(tensor, tracked._replace(scores=None))

    def _is_learned(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter of the model, or a view of one."""
        if isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter):
            return True
        if self._learned is None:
            parameters = (p for module in self._modules for p in module._parameters.values() if p is not None)
            self._learned = frozenset(storage_of(p) for p in parameters if type(p) is nn.Parameter and p.numel())
        return storage_of(tensor) in self._learned


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _is_still(weights: Tensor, made: Tensor, name: str) -> bool:
    """Whether a function of weights or scores gave such again: not a sum of them, and nothing that they scale."""
    if not made.is_floating_point() or made.is_nested or weights.is_nested:
        return False
    size, before = made.numel(), weights.numel()
    return size > 0 and (size <= before or name in WHOLES) and (2 * size > before or name in PARTS)


def _is_equal(weights: Tensor, made: Tensor) -> bool:
    """Whether a function left every number as it was, as one that hides again what is hidden."""
    return made is not weights and made.shape == weights.shape and torch.equal(made.detach(), weights.detach())
