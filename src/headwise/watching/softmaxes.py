"""Softmaxes: the attention that a model writes by hand, from the product that makes scores to that with the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.watching.attention_functions import FOLDS, MEETINGS, NO_WEIGHTS, beginning, may_meet, never
from headwise.watching.axes import Axes
from headwise.watching.axis_moves import is_still, moved_axes
from headwise.watching.contraction import PRODUCTS, Contraction, contraction
from headwise.watching.handwritten_call import OVERWRITTEN, Softmax, Weights
from headwise.watching.product_layout import ProductLayout
from headwise.watching.provenance import Followed, Ran
from headwise.watching.record import CallRecord, unreadable
from headwise.watching.scores import Scores, scores_after, scores_of, storage_of

__all__ = ["Softmaxes"]

# from a softmax to its product there lie a cast, dropout, axes moved, a band laid out, and the like
LONGEST_WAY = 16


Add = Callable[[str, CallRecord, Tensor, ProductLayout], Tensor]


class Tracked(NamedTuple):
    """Scores of queries and keys, or what functions have made of them.

    axes, scores: None where a function has been met that is not known. is_outer: an axis of features is still to be
    summed, as in additive attention. version: of the tensor, None in inference mode. is_lent: whether others may write
    to its memory.
    """

    axes: Axes | None
    scores: Scores | None
    is_outer: bool
    version: int | None
    way: int
    is_lent: bool = False


class Softmaxes:
    """The softmaxes of a watched block, where their scores come from, and what becomes of their results.

    add: takes in a call of attention under a name, with its product and the layout of that, and gives what the product
    is to give. modules: whose parameters are no keys.
    """

    def __init__(self, add: Add, modules: Iterable[nn.Module]) -> None:
        # each softmax that entered a product and is no map, and why
        self._unread: dict[Softmax, str] = {}
        self._add, self._modules = add, modules
        # whether a function of some arguments may begin what is followed
        self._begins: dict[Any, Callable[[Sequence[Any]], bool]] = {}
        self._learned: frozenset[int] | None = None
        self._scores: Followed[Tracked] = Followed()
        self._weights: Followed[Weights] = Followed()
        # the batch and heads of a tensor whose first axis is both
        self._folds: Followed[tuple[int, int]] = Followed()

    def close(self) -> dict[str, str]:
        """Let go of everything; name of a module -> why a softmax of its own that enters a product is no map."""
        for followed in (self._scores, self._weights, self._folds):
            followed.clear()
        # the session that it belongs to holds these softmaxes
        del self._add
        reasons: dict[str, str] = {}
        for softmax, why in self._unread.items():
            if not softmax.is_seen:
                reasons.setdefault(softmax.name, f"computes a softmax of its own over {softmax.shape}, but {why}")
        return reasons

    @property
    def is_following(self) -> bool:
        """Whether any tensor is followed."""
        return bool(self._scores.facts or self._weights.facts or self._folds.facts)

    def passes(self, function: Any) -> bool:
        """Whether no call of a function can matter while nothing is followed."""
        return self._beginning(function) is never

    def concerns(self, function: Any, args: Sequence[Any]) -> bool:
        """Whether a call of a function can matter now: while nothing is followed, few can."""
        return self.is_following or self._beginning(function)(args)

    def _beginning(self, function: Any) -> Callable[[Sequence[Any]], bool]:
        begins = self._begins.get(function)
        if begins is None:
            self._begins[function] = begins = beginning(function)
        return begins

    def begin(self, name: str, ran: Ran) -> None:
        """A softmax has run."""
        args, options, result = ran.args, ran.options, ran.result
        source = args[0] if args else options.get("input", options.get("self"))
        if not isinstance(result, Tensor) or not isinstance(source, Tensor) or source.shape != result.shape:
            return
        tracked = self._scores.at(source)
        self._disturb(ran)
        dim = options.get("dim", args[1] if len(args) > 1 else None)
        axes = tracked.axes if tracked is not None and tracked.axes is not None else Axes.of(source.shape)
        key = axes.alone(dim) if isinstance(dim, int) and -source.ndim <= dim < source.ndim else None
        softmax = Softmax(name, tuple(result.shape), axes, key, reason=unreadable(source))
        self._weights.put(result, Weights(softmax, axes, version=_version(result)))
        if ran.function in NO_WEIGHTS or softmax.reason or tracked is None or tracked.is_outer:
            return
        storage = storage_of(result)
        # softmax(scores, out=scores) has replaced what it was given
        is_replaced = storage == storage_of(source) != 0
        before = tracked.version + 1 if is_replaced and tracked.version is not None else tracked.version
        scores = tracked.scores if _version(source) == before else None
        if scores is not None and "out" in options and scores.reads(storage):
            scores = None
        with torch.no_grad():
            softmax.hold(result.log() if is_replaced else source, scores, result, is_lent=tracked.is_lent)

    def go_on(self, ran: Ran) -> Any:
        """Another function has run: what it is to give."""
        self._disturb(ran)
        self._lend(ran)
        if ran.function in PRODUCTS:
            return self._multiply(ran)
        if self._scores or self._weights:
            for came in ran.inputs:
                if (tracked := self._scores.at(came)) is not None:
                    self._advance(tracked, came, ran)
                elif (weights := self._weights.at(came)) is not None:
                    self._carry(weights, came, ran)
                else:
                    continue
                break
        self._fold(ran)
        if ran.name in MEETINGS:
            self._combine(ran)
        return ran.result

    def _multiply(self, ran: Ran) -> Any:
        """A product has run: of weights with values, of queries with keys, or another. What it is to give."""
        product, result = contraction(ran.function, ran.args, ran.options), ran.result
        factors = tuple(ran.inputs) if product is None else product.factors
        for side, factor in enumerate(factors):
            if (weights := self._weights.at(factor)) is not None:
                return self._end(weights, factor, product, side, ran)
        for factor in factors:
            if (tracked := self._scores.at(factor)) is not None and tracked.is_outer:
                self._sum_features(tracked, factor, result)
                return result
        if product is None or not isinstance(result, Tensor) or unreadable(result):
            return result
        axes = Axes.of(result.shape)
        scores = scores_of(product, axes, self._is_learned)
        if scores is None:
            return result
        folds = {fold for factor in factors if (fold := self._folds.at(factor)) is not None}
        if len(folds) == 1 and result.ndim == 3:
            # the axis of both is split for all who know it
            axes.reshaped((*folds.pop(), *result.shape[1:]))
        self._scores.put(result, Tracked(axes, scores, False, _version(result), 0))
        return result

    def _end(self, weights: Weights, factor: Tensor, product: Contraction | None, side: int, ran: Ran) -> Any:
        """Weights have entered a product as this factor: what it is to give."""
        softmax, result = weights.softmax, ran.result
        if softmax.is_seen:
            return result
        weights = weights.at(factor)
        why, record, layout = weights.why_not(product, side), None, None
        if not why and product is not None:
            layout = weights.layout(product, side)
            record = weights.record(layout)
        if record is None or layout is None:
            self._unread.setdefault(softmax, why or OVERWRITTEN)
            return result
        softmax.let_go()
        return self._add(softmax.name, record, result, layout)

    def _advance(self, tracked: Tracked, came: Tensor, ran: Ran) -> None:
        """A function of scores has run."""
        at = ran.position(came)
        before = tracked.version
        if before is not None and at == 0 and ran.is_in_place:
            before += 1
        scores = tracked.scores if _version(came) == before else None
        for result in ran.results:
            if tracked.is_outer and result.shape in (came.shape[:-1], (*came.shape[:-1], 1)):
                self._sum_features(tracked, came, result)
            if tracked.way >= LONGEST_WAY or not is_still(came, result, ran.name):
                continue
            axes, after = None, None
            if tracked.axes is not None:
                moved = moved_axes(ran, tracked.axes, result) if at == 0 else None
                if moved is not None:
                    axes, after = moved, scores
                elif result.shape == came.shape:
                    axes = tracked.axes
                    after = None if scores is None else scores_after(scores, axes, at, ran)
            self._scores.put(
                result, Tracked(axes, after, tracked.is_outer, _version(result), tracked.way + 1, tracked.is_lent)
            )

    def _carry(self, weights: Weights, came: Tensor, ran: Ran) -> None:
        """A function of weights has run."""
        results = list(ran.results)
        # what gives its argument again may have written to it once
        weights = weights.at(came, writes=int(any(result is came for result in results)))
        for result in results:
            if weights.way < LONGEST_WAY and is_still(came, result, ran.name):
                self._weights.put(result, weights.after(came, result, ran))

    def _combine(self, ran: Ran) -> None:
        """Queries and keys that meet in a sum, (.., Lq, 1, D) and (.., 1, Lk, D), or by their distance."""
        result = ran.result
        if len(ran.args) != 2 or not all(isinstance(t, Tensor) for t in ran.args) or not isinstance(result, Tensor):
            return
        if not result.is_floating_point() or self._scores.at(result) is not None or result.ndim < 2:
            return
        if not may_meet(ran.args) and ran.name != "cdist":
            return
        first, second = ((1,) * (result.ndim - t.ndim) + tuple(t.shape) for t in ran.args)
        pairs = list(zip(first, second, strict=True))
        is_outer = any(a > b == 1 for a, b in pairs) and any(b > a == 1 for a, b in pairs)
        if is_outer or ran.name == "cdist":
            has_features = ran.name != "cdist" and first[-1] == second[-1] > 1
            self._scores.put(result, Tracked(None, None, has_features, _version(result), 0))

    def _sum_features(self, tracked: Tracked, came: Tensor, result: Any) -> None:
        """The features of queries and keys that met have been summed to one score, or to one a head."""
        is_score = isinstance(result, Tensor) and result.is_floating_point()
        if is_score and result.shape[: came.ndim - 1] == came.shape[:-1]:
            self._scores.put(result, Tracked(None, None, False, _version(result), tracked.way + 1))

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

    def _disturb(self, ran: Ran) -> None:
        """A function has run: what was read from the storage that it wrote to is known no more.

        Versions tell less: inference tensors have none, and `tensor.data` has one of its own.
        """
        if not self._scores and not self._weights:
            return
        for written in ran.written:
            storage = storage_of(written)
            # what is written in place is followed by itself
            followed = None if written is ran.options.get("out") else written
            for tensor, tracked in self._scores.items() if storage else ():
                is_there = tensor is not followed and storage_of(tensor) == storage
                if tracked.scores is not None and (is_there or tracked.scores.reads(storage)):
                    self._scores.put(tensor, tracked._replace(scores=None))
            for tensor, weights in self._weights.items() if storage else ():
                weights.softmax.disturb(storage)
                is_there = tensor is not followed and storage_of(tensor) == storage
                if is_there and not weights.changed and ran.name != "dropout":
                    self._weights.put(tensor, weights._replace(changed=ran.name.strip("_")))

    def _lend(self, ran: Ran) -> None:
        """A function has run: memory that it lent may be written by others, which no version shows."""
        for lent in ran.lent:
            storage = storage_of(lent)
            for tensor, tracked in self._scores.items() if storage else ():
                is_there = storage_of(tensor) == storage
                if is_there or (tracked.scores is not None and tracked.scores.reads(storage)):
                    self._scores.put(tensor, tracked._replace(scores=None, is_lent=tracked.is_lent or is_there))
            for tensor, weights in self._weights.items() if storage else ():
                weights.softmax.lend(storage, tensor if storage_of(tensor) == storage else None)

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
