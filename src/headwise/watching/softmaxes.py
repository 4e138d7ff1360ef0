"""Softmaxes: the attention that a model writes by hand, from the product that makes scores to that with the values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.watching.axes import Axes
from headwise.watching.contraction import PRODUCTS, contraction
from headwise.watching.handwritten import Softmax, Weights
from headwise.watching.moves import moved_axes, taken_axes
from headwise.watching.record import Record
from headwise.watching.scores import Scores, scores_after, scores_of, storage_of

__all__ = ["SOFTMAXES", "Softmaxes"]

T = TypeVar("T")

aten = torch.ops.aten

# whose results are no weights
LOGS: frozenset[Any] = frozenset(
    {
        F.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax, aten.log_softmax.int,
        aten._log_softmax.default,
    }
)  # fmt: skip
SOFTMAXES: frozenset[Any] = LOGS | {
    F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, F.softmin, aten.softmax.int,
    aten._softmax.default, aten._safe_softmax.default,
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

    def begin(self, name: str, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any) -> None:
        """A softmax has run."""
        source = args[0] if args else options.get("input", options.get("self"))
        if not isinstance(result, Tensor) or not isinstance(source, Tensor) or source.shape != result.shape:
            return
        tracked = self._scores.at(source)
        dim = options.get("dim", args[1] if len(args) > 1 else None)
        axes = tracked.axes if tracked is not None and tracked.axes is not None else Axes.of(source.shape)
        key = axes.alone(dim) if isinstance(dim, int) and -source.ndim <= dim < source.ndim else None
        softmax = Softmax(name, tuple(result.shape), axes, key)
        self._weights.put(result, Weights(softmax, axes, "log_softmax" if function in LOGS else ""))
        if function in LOGS or function is F.softmin or tracked is None or tracked.is_outer:
            return
        scores = tracked.scores if _version(source) == tracked.version else None
        with torch.no_grad():
            softmax.hold(source, scores, result, self._is_learned)

    def go_on(self, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], result: Any) -> None:
        """Another function has run."""
        if function in PRODUCTS:
            self._multiply(function, args, options, result)
            return
        name = getattr(function, "__name__", "")
        if name == "__setitem__":
            result = args[0]
        if self._scores or self._weights:
            for came in _tensors((*args, *options.values())):
                if (tracked := self._scores.at(came)) is not None:
                    self._advance(tracked, came, function, args, options, result)
                elif (weights := self._weights.at(came)) is not None:
                    self._carry(weights, came, function, args, options, result)
                else:
                    continue
                break
            if args and isinstance(args[0], Tensor) and _is_in_place(name) and args[0].is_inference():
                self._disturb(args[0])
        self._fold(name, args, result)
        if name in ("add", "sub", "subtract", "cdist"):
            self._combine(name, args, result)

    def _multiply(self, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any) -> None:
        """A product has run: of weights with values, of queries with keys, or another."""
        product = contraction(function, args, options)
        tensors = product.factors if product is not None else tuple(_tensors((*args, *options.values())))
        for side, tensor in enumerate(tensors):
            weights = self._weights.at(tensor)
            if weights is not None:
                if not weights.softmax.is_seen:
                    self._end(weights, product, side)
                return
        for tensor in tensors:
            tracked = self._scores.at(tensor)
            if tracked is not None and tracked.is_outer:
                self._sum_features(tracked, tensor, result)
                return
        if product is None or not isinstance(result, Tensor) or not result.is_floating_point():
            return
        axes = Axes.of(result.shape)
        scores = scores_of(product, axes, self._is_learned)
        if scores is None:
            return
        folds = {fold for factor in product.factors if (fold := self._folds.at(factor)) is not None}
        if len(folds) == 1 and result.ndim == 3:
            axes.reshaped((*folds.pop(), *result.shape[1:]))
        self._scores.put(result, Tracked(axes, scores, False, _version(result), 0))

    def _end(self, weights: Weights, product: Any, side: int) -> None:
        """Weights have entered a product."""
        softmax = weights.softmax
        if why := weights.why_not(product, side):
            self._unread.setdefault(softmax, why)
            return
        record = weights.record(product, side)
        softmax.let_go()
        self._add(softmax.name, record)

    def _advance(
        self, tracked: Tracked, came: Tensor, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any
    ) -> None:
        """A function of scores has run."""
        name = _plain(function)
        at = next((n for n, value in enumerate(args) if value is came), -1)
        is_written = _is_in_place(getattr(function, "__name__", "")) and at == 0
        before = tracked.version if not is_written or tracked.version is None else tracked.version + 1
        scores = tracked.scores if _version(came) == before else None
        for made in _tensors(result if isinstance(result, tuple | list) else (result,)):
            if tracked.is_outer and made.shape in (came.shape[:-1], (*came.shape[:-1], 1)):
                self._sum_features(tracked, came, made)
            elif tracked.way < LONGEST_WAY and _is_still(came, made, name):
                axes, after = None, None
                if tracked.axes is not None and at == 0 and (moved := moved_axes(function, tracked.axes, args, options, made)):
                    axes, after = moved, scores
                elif tracked.axes is not None and made.shape == came.shape:
                    axes = tracked.axes
                    after = None if scores is None else scores_after(name, scores, axes, at, args, options)
                self._scores.put(made, Tracked(axes, after, tracked.is_outer, _version(made), tracked.way + 1))

    def _carry(
        self, weights: Weights, came: Tensor, function: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any
    ) -> None:
        """A function of weights has run."""
        name = _plain(function)
        for made in _tensors(result if isinstance(result, tuple | list) else (result,)):
            if weights.way >= LONGEST_WAY or not _is_still(came, made, name):
                continue
            after = weights._replace(way=weights.way + 1)
            is_first = bool(args) and args[0] is came
            moved = taken = None
            if weights.axes is not None and is_first:
                moved = moved_axes(function, weights.axes, args, options, made)
                taken = None if moved is not None else taken_axes(function, weights.axes, args, options)
            if moved is not None or taken is not None:
                after = after._replace(axes=taken if moved is None else moved)
            elif name in FAITHFUL and is_first and made.shape == came.shape:
                after = after._replace(is_zeroed=weights.is_zeroed or name == "nan_to_num")
            elif name in PARTS:
                after = after._replace(axes=None)
            elif not after.changed and not _is_equal(came, made):
                after = after._replace(changed=name.strip("_"))
            self._weights.put(made, after)

    def _combine(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Queries and keys that meet otherwise than in a product: (.., Lq, 1, D) with (.., 1, Lk, D), or by distance."""
        if len(args) != 2 or not all(isinstance(t, Tensor) for t in args) or not isinstance(result, Tensor):
            return
        if not result.is_floating_point() or self._scores.at(result) is not None or result.ndim < 2:
            return
        first, second = ((1,) * (result.ndim - t.ndim) + tuple(t.shape) for t in args)
        is_outer = any(a > b == 1 for a, b in zip(first, second, strict=True)) and any(
            b > a == 1 for a, b in zip(first, second, strict=True)
        )
        if name == "cdist" or is_outer:
            has_features = name != "cdist" and first[-1] == second[-1] > 1
            self._scores.put(result, Tracked(None, None, has_features, _version(result), 0))

    def _sum_features(self, tracked: Tracked, came: Tensor, made: Any) -> None:
        """The features of queries and keys that met have been summed to one score, or to one a head."""
        if isinstance(made, Tensor) and made.is_floating_point() and made.shape[: came.ndim - 1] == came.shape[:-1]:
            self._scores.put(made, Tracked(None, None, False, _version(made), tracked.way + 1))

    def _fold(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Batch and heads merged in one axis by (B, H, L, D) -> (B·H, L, D), and what is made of that."""
        if not isinstance(result, Tensor) or result.ndim != 3 or not args or not isinstance(args[0], Tensor):
            return
        came = args[0]
        fold = self._folds.at(came) if self._folds else None
        if fold is not None and result.shape[0] == came.shape[0]:
            self._folds.put(result, fold)
        elif name in FOLDS and came.ndim == 4 and came.shape[2:] == result.shape[1:]:
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


class Followed(Generic[T]):
    """What is known of some tensors, for as long as they live."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], T]] = {}

    def at(self, tensor: Any) -> T | None:
        """What is known of a tensor."""
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def put(self, tensor: Tensor, known: T) -> None:
        """Take in what is known of a tensor."""
        number = id(tensor)
        self._known[number] = (weakref.ref(tensor, lambda _: self._known.pop(number, None)), known)

    def items(self) -> list[tuple[Tensor, T]]:
        """The tensors that live, and what is known of them."""
        found = ((ref(), known) for ref, known in list(self._known.values()))
        return [(tensor, known) for tensor, known in found if tensor is not None]

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def __bool__(self) -> bool:
        return bool(self._known)


def _plain(function: Any) -> str:
    """The name of a function, that of `masked_fill_` without its sign."""
    name = str(getattr(function, "__name__", ""))
    return name if name.startswith("__") else name.rstrip("_")


def _is_in_place(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


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


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some values, and in the lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from (each for each in value if isinstance(each, Tensor))
