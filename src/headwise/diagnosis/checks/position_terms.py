"""Position terms: what is added to scores by distance: whether it tells distances apart, and favours the near ones.

Tables of distances: Raffel et al. 2020, arXiv:1910.10683, sec. 2.1; slopes: Press et al. 2022, arXiv:2108.12409, eq. 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, made_from
from headwise.diagnosis.relative_terms import misplaced, unshifted
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["position_suspects"]

SUMS = frozenset({"+", "+=", "add", "add_", "-", "-="})
PRODUCTS = frozenset({"*", "*=", "mul", "mul_", "multiply", "einsum"})
# what lays all numbers beyond an edge on it
CLAMPS = frozenset(
    {"clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_max", "relu", "minimum", "maximum", "min", "max"}
)
# scores below this are hidden; two numbers within the other are one
HIDDEN, NEAR = -1e3, 1e-9
# a weight above this is one
VISIBLE = 1e-7
# a line has three points
POINTS = 3


def position_suspects(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """A table of distances of which one row is read for all pairs, or for all queries of a key, or whose product with
    one query is added to the scores of another, and a term that grows along a line with distance. rerun: the same run
    with stand-ins.
    """
    if not isinstance(run.target, nn.Module):
        return []
    for attention in attentions(run):
        if (product := unshifted(run, attention, rerun)) is not None:
            return [Suspect("relative-shift-missing", product.span, proved=True)]
        if (product := misplaced(run, attention, rerun)) is not None:
            return [Suspect("relative-shift-wrong", product.span, proved=True)]
        for entry in [op for op in attention.path if op.name in SUMS]:
            if (lookup := _constant_lookup(run, attention, entry)) is not None:
                name = _name_of(run.target, lookup)
                return [Suspect("position-bias-constant", _index_span(run, lookup), values={"name": name}, proved=True)]
            if _favours_distance(run, attention, entry):
                span = entry.span if entry.name.startswith("-") else _slope_span(run, entry)
                return [Suspect("distance-bias-sign", span, proved=True)]
        if attention.fused and _favours_distance(run, attention, attention.context):
            return [Suspect("distance-bias-sign", _slope_span(run, attention.context), proved=True)]
    return []


def _slope_span(run: Run, entry: MarkedOp) -> Span:
    """The last product that makes what an operation adds to scores; the operation itself, where there is none."""
    products = [maker for maker in made_from(run, [entry]) if maker.name in PRODUCTS]
    return max(products, key=lambda product: product.at, default=entry).span


def _constant_lookup(run: Run, attention: AttentionOps, entry: MarkedOp) -> MarkedOp | None:
    """The lookup in a table that makes what is added to scores, where distances that differ were laid on one edge, so
    that all visible pairs read one row; None: none.
    """
    visible = None if attention.weights is None else attention.weights.gt(VISIBLE).any(dim=0)
    for maker in made_from(run, [entry]):
        index = next(
            (tensor.value for tensor in maker.inputs if tensor.value is not None and _is_index(tensor.value)), None
        )
        is_lookup = maker.last == "embedding" and any(isinstance(tensor, nn.Parameter) for tensor in maker.tensors)
        if not is_lookup or index is None or visible is None or index.shape[-2:] != visible.shape:
            continue
        if _is_one(index[..., visible]) and any(_is_clamped(each, visible) for each in made_from(run, [maker])):
            return maker
    return None


def _is_one(numbers: Tensor) -> bool:
    return numbers.numel() > 0 and bool((numbers == numbers.flatten()[0]).all())


def _is_clamped(maker: MarkedOp, visible: Tensor) -> bool:
    """Whether an operation lays distances of visible pairs that differ on one edge."""
    before, after = maker.inputs[0].value if maker.inputs else None, maker.value
    if maker.last not in CLAMPS or before is None or after is None:
        return False
    if before.shape[-2:] != visible.shape or after.shape[-2:] != visible.shape:
        return False
    return int(before[..., visible].unique().numel()) >= POINTS and _is_one(after[..., visible])


def _is_index(t: Tensor) -> bool:
    return t.ndim > 1 and not t.is_floating_point() and t.dtype is not torch.bool


def _name_of(target: nn.Module, lookup: MarkedOp) -> str:
    names = {each.data_ptr(): name for name, each in target.named_parameters()}
    return next((names[tensor.data_ptr()] for tensor in lookup.tensors if tensor.data_ptr() in names), "")


def _index_span(run: Run, lookup: MarkedOp) -> Span:
    """Where the function that looks up gets the rows' numbers, else the lookup itself."""
    for maker in made_from(run, [lookup]):
        for span in (maker.span, *maker.operation.chain):
            if span.function == lookup.span.function and maker.value is not None and _is_index(maker.value):
                return span
    return lookup.span


def _favours_distance(run: Run, attention: AttentionOps, entry: MarkedOp) -> bool:
    """Whether what is added to the scores of each visible key grows along a line with its distance to the query."""
    if any(_is_learned(maker) for maker in made_from(run, [entry])):
        return False
    for tensor in entry.unmarked_inputs:
        value = tensor.value
        if value is None or not value.is_floating_point() or value.ndim < 2 or isinstance(value, nn.Parameter):
            continue
        if value.shape[-1] == value.shape[-2] >= POINTS and (factor := _factor(attention, value)) is not None:
            rows = list(_rows(value.double(), factor))
            if rows and all(_rises(row) for row in rows):
                return True
    return False


def _factor(attention: AttentionOps, term: Tensor) -> float | None:
    """By how much a term enters what the softmax is taken of, which is a sum of it and of the products times a factor
    each; None: it is no such sum.
    """
    softmax, products = attention.softmax, attention.scores
    if attention.fused:
        # torch adds what it is given as it is
        return 1.0
    if softmax is None or products is None or not softmax.inputs or not products.outputs:
        return None
    whole, product = softmax.inputs[0].value, products.outputs[0].value
    if whole is None or product is None or whole.numel() != product.numel():
        return None
    # heads may be folded into the batch where one of them is made
    product = product.reshape(whole.shape)
    try:
        shift = term.double().broadcast_to(whole.shape)
    except RuntimeError:
        return None
    visible = (whole.double() > HIDDEN) & (shift > HIDDEN)
    count = visible.sum(dim=-1, keepdim=True).clamp(min=1)
    # what is the same for all keys of a query changes no weight
    open_scores = [torch.where(visible, scores.double(), 0.0) for scores in (product, shift, whole)]
    centred = [scores - scores.sum(-1, keepdim=True) / count for scores in open_scores]
    columns = torch.stack([scores[visible] for scores in centred], dim=-1)
    factors = torch.linalg.lstsq(columns[:, :2], columns[:, 2:]).solution
    left = (columns[:, :2] @ factors - columns[:, 2:]).abs().max()
    return float(factors[1]) if float(left) <= NEAR + 1e-6 * float(columns[:, 2].abs().max()) else None


def _is_learned(maker: MarkedOp) -> bool:
    return any(isinstance(tensor, nn.Parameter) and tensor.requires_grad for tensor in maker.tensors)


def _rows(value: Tensor, factor: float) -> Iterator[Tensor]:
    """What each query adds to the keys from its own place back, as far as they are visible; rows of POINTS or more."""
    for square in value.reshape(-1, *value.shape[-2:]):
        for place in range(POINTS - 1, square.shape[-1]):
            row = square[place, : place + 1].flip(0)
            length = int((row > HIDDEN).long().cumprod(0).sum())
            if length >= POINTS:
                yield factor * row[:length]


def _rises(row: Tensor) -> bool:
    """Whether numbers grow by the same step, which is no rounding."""
    steps = row.diff()
    return bool(steps[0] > NEAR) and bool(((steps - steps[0]).abs() <= NEAR + 1e-6 * steps[0].abs()).all())
