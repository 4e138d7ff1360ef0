"""Token weights: the weights by which a sum over tokens takes its values, measured by its answers to other values."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import (
    SOFTMAXES,
    MarkedOp,
    Marks,
    Run,
    TokenSum,
    allowed_by,
    attentions,
    chain_of,
    downstream,
    feature_sums,
    place_of,
    reader,
    sample_of,
    token_sums,
    value_of,
)
from headwise.recording import Site
from headwise.source import Span

__all__ = ["NOTHING", "StandIns", "WeighedSum", "hidden_share", "is_in_order", "says_raw", "weighed", "weighed_sums"]

# what is added to a divisor so that it is not 0 keeps the sum of the weights this near 1
NEAR = 1e-3
# and a share of the weights that is none
NOTHING = 1e-5
# that features attend to features is meant
OVER_FEATURES = re.compile(
    r"channel|\bxc|XC[AI]|cross.?covariance|transposed.?attention|spectral|\bMDTA\b|通道", re.IGNORECASE
)
# that weights are meant to be as they are, and to tell how much there is of an interest
RAW = re.compile(
    r"un-?normali[sz]ed|not\W+normali[sz]ed|no\s+softmax|without\s+(?:a\s+)?(?:softmax|normali[sz]|normali[sz]ation)|"
    r"(?:use|with|apply)_?softmax|weight_normali[sz]ation|intensity|[不未]做?归一化|无归一化",
    re.IGNORECASE,
)
Change = Callable[[Tensor, Marks], Tensor]
StandIns = Mapping[Site, Callable[..., Any]]


@dataclass(frozen=True)
class WeighedSum:
    """A sum over tokens by weights that sum to 1, or are raw. values: the place of its values among the arguments of
    the product; context: the operation that gives what was weighed; is_read: whether queries read it, as in linear
    attention; is_of_features: whether the features of a token are weighed, and not tokens; is_raw: whether each token
    has one weight that no softmax gives, and its file says so.
    """

    total: TokenSum
    values: int
    context: MarkedOp
    is_read: bool
    is_of_features: bool = False
    is_raw: bool = False


@dataclass(frozen=True, eq=False)
class _Asked:
    """Calls a function with one of its arguments changed."""

    function: Callable[..., Any]
    place: int
    change: Callable[[Tensor], Tensor]

    def __call__(self, *args: Any, **options: Any) -> Any:
        changed = (self.change(argument) if at == self.place else argument for at, argument in enumerate(args))
        return self.function(*changed, **options)


def weighed_sums(run: Run, rerun: Callable[..., Run]) -> list[WeighedSum]:
    """The sums over tokens of a run that has no attention; none where the weights of one neither sum to 1 nor are raw.

    rerun: repeats the run with stand-ins.
    """
    return run.fact(_weighed_sums, run, rerun)


def _weighed_sums(run: Run, rerun: Callable[..., Run]) -> list[WeighedSum]:
    if run.failure is not None or attentions(run):
        return []
    over_features = [total for total in feature_sums(run) if _is_meant(total)]
    sums = [weighed(run, rerun, total) or _raw(run, total) for total in over_features or token_sums(run)]
    found = [replace(total, is_of_features=bool(over_features)) for total in sums if total is not None]
    return found if len(found) == len(sums) and not any(map(_is_mean, found)) else []


def _is_meant(total: TokenSum) -> bool:
    """Whether the file of a sum over features says that these attend to each other, and no transpose is amiss."""
    return _says(total, OVER_FEATURES)


def _says(total: TokenSum, words: re.Pattern[str]) -> bool:
    """Whether the file of a sum has some of these words."""
    span = total.product.span
    return span is not None and words.search("".join(linecache.getlines(span.file))) is not None


def says_raw(span: Span | None) -> bool:
    """Whether the file of a place says that weights are not normalised on purpose."""
    return span is not None and RAW.search("".join(linecache.getlines(span.file))) is not None


def _raw(run: Run, total: TokenSum) -> WeighedSum | None:
    """A sum by one raw weight of each token; None: it is none."""
    if reader(run, total) is not None or not says_raw(total.product.span):
        return None
    have_features = [
        marks is not None and marks.shape[-1:] != (1,) and len(marks.arrays["f"].unique()) > 1
        for marks in total.product.given
    ]
    if sorted(have_features) != [False, True]:
        return None
    values = total.operands[have_features.index(True)]
    number = total.product.inputs[have_features.index(False)].number
    makers = chain_of(run, total.product, number)
    if any(maker.last in SOFTMAXES for maker in makers):
        return None
    return WeighedSum(total, values, total.total, is_read=False, is_raw=True)


def _is_mean(of: WeighedSum) -> bool:
    """Whether all tokens have one weight, or none, as in a mean of those that are there."""
    product = of.total.product
    weights = [value_of(product, product.args[at]) for at in of.total.operands if at != of.values]
    return not of.is_read and all(len(weight.unique()) <= 2 for weight in weights)


def weighed(run: Run, rerun: Callable[..., Run], total: TokenSum, more: StandIns | None = None) -> WeighedSum | None:
    """A sum whose context is 1 where all values are 1; None: it is not. more: stand-ins with which it is asked."""
    reading = reader(run, total)
    first = total.total if reading is None else reading
    before = {entry.at: entry for entry in run.seen}
    for place in total.operands:
        answer = _answer(run, rerun, total, place, more or {})
        later = [] if answer.failure is not None else [total.total, *downstream(answer, total.product)]
        met = [product.at for product in later if product.at >= first.at
               and _is_one(_at(answer, product.at), total, before.get(product.at))]  # fmt: skip
        if met and not _is_one(before[met[0]], total):
            return WeighedSum(total, place, before[met[0]], reading is not None)
    return None


def _answer(run: Run, rerun: Callable[..., Run], total: TokenSum, place: int, more: StandIns) -> Run:
    """The run where all values are 1; one answers for all turns of a line. more: stand-ins with which it is asked."""
    asked = _asked(total, place, lambda values, _: torch.ones_like(values))
    if more:
        return rerun({**asked, **more})
    answers, key = run.fact(_answers), (total.product.site, place, bool(asked))
    if key not in answers:
        answers[key] = rerun(asked)
    return answers[key]


def _answers() -> dict[tuple[Site, int, bool], Run]:
    """The answers of a run, by the line and the place of the values."""
    return {}


def share(rerun: Callable[..., Run], of: WeighedSum, chosen: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    """The share of some tokens in the weights of each query, as the context is laid out; None: the run fails.

    chosen: of samples and places, which tokens are meant.
    """

    def values(tensor: Tensor, marks: Marks) -> Tensor:
        t = marks.arrays["t"]
        return chosen(sample_of(t), place_of(t)).to(tensor).expand(tensor.shape)

    answer = rerun(_asked(of.total, of.values, values))
    entry = None if answer.failure is not None else _at(answer, of.context.at)
    return None if entry is None else entry.value


def is_in_order(rerun: Callable[..., Run], of: WeighedSum) -> bool:
    """Whether no query takes anything from a later token."""
    marks = of.context.output_marks[0]
    if marks is None or marks.kind != "token":
        return False
    places = place_of(marks.arrays["t"])
    for last in places.unique().tolist()[:-1]:
        later = share(rerun, of, partial(_is_after, last))
        if later is None or bool((later.abs() > NEAR)[places == last].any()):
            return False
    return bool((places >= 0).all())


def _is_after(last: int, _: Tensor, places: Tensor) -> Tensor:
    return places > last


def hidden_share(
    run: Run, rerun: Callable[..., Run], of: WeighedSum, shown: Tensor | None = None
) -> tuple[float, float] | None:
    """The largest share of hidden tokens in the weights of any query, and of those that are shown; None: it is not
    known which these are.

    shown: (batch, tokens), which are; None: those that the mask of the plan shows.
    """
    if of.is_of_features:
        return None
    if shown is None:
        length = next((run.sizes[letter] for letter in ("S", "L") if letter in run.sizes), 0)
        allowed = allowed_by(run, run.sizes.get("B", 0), 1, length)
        if allowed is None or bool(allowed.all()):
            return None
        shown = allowed[:, 0]

    def at(table: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda sample, place: table[sample.clamp(0), place.clamp(0)]

    shares = [share(rerun, of, at(tokens)) for tokens in (~shown, shown)]
    if any(part is None for part in shares):
        return None
    hidden, seen = (float(part.abs().max()) for part in shares if part is not None)
    return hidden, seen


def _asked(total: TokenSum, place: int, change: Change) -> dict[Site, Callable[..., Any]]:
    """Stand-ins with which a sum takes other values. change: makes them of its own, and of their marks."""
    product = total.product
    marks = product.given[total.operands.index(place)]
    if marks is not None and marks.kind == "lost":
        # the weights tell of the same tokens
        marks = next((marks for marks in product.given if marks is not None and marks.kind == "token"), None)
    if marks is None:
        return {}
    return {product.site: _Asked(product.function, place, lambda values: change(values, marks))}


def _at(run: Run, at: int) -> MarkedOp | None:
    return next((entry for entry in run.seen if entry.at == at), None)


def _is_one(entry: MarkedOp | None, total: TokenSum, before: MarkedOp | None = None) -> bool:
    """Whether an operation gives nothing but 1, where a sum adds anything up.

    before: the same, of other values: a query that takes nothing from any, as one that is padding, gives 0 in both.
    """
    value = None if entry is None else entry.value
    if value is None or not value.is_floating_point() or value.numel() < 2:
        return False
    if (ends := total.ends) is not None:
        if value.ndim <= total.axis or value.shape[total.axis] <= int(ends.max()):
            return False
        value = value.index_select(total.axis, ends)
    ones, was = (value - 1).abs() < NEAR, None if before is None else before.value
    is_empty = torch.zeros_like(ones) if was is None or was.shape != value.shape else (value == 0) & (was == 0)
    return bool(ones.any()) and bool((ones | is_empty).all())
