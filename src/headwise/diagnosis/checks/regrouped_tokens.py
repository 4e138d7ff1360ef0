"""Regrouped tokens: whether tokens of a grid that attend to each other lie in one row, column or rectangle of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

import torch
from torch import Tensor

from headwise.dataflow import CONVOLUTIONS, MarkedOp, Run, attentions, chain_of, is_constant, place_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.suspects import Suspect

__all__ = ["regrouped_tokens"]

VIEWS = frozenset({"view", "reshape", "flatten", "unflatten"})
# axes of what holds groups of tokens: groups, tokens, features
GROUPED = 3


def regrouped_tokens(run: Run) -> list[Suspect]:
    """A view that names the axes of an image or a video in another order, or takes the channels of a convolution for
    its places; and as many tokens as a side of the grid has, counted on past the ends of its rows, that attend to each
    other.
    """
    scores = min(((each.scores or each.context).at for each in attentions(run)), default=0)
    is_image = {"h", "w"} <= set(run.plan.call.get("_layout", ""))
    for view in (op for op in run.seen[:scores] if op.last in VIEWS and op.inputs and op.outputs):
        is_mixed = (is_image or _is_convolved(run, view)) and _mixes_channels(view)
        if (
            is_mixed
            or _mixes_features(view)
            or (is_image and _is_of_grid(view) and _reorders(view.inputs[0].shape, view.outputs[0].shape))
        ):
            return [Suspect("tokens-regrouped", view.span, proved=True)]
    grid = _grid(run)
    if grid is None:
        return _in_runs(run) or _taken_apart(run)
    for attention in attentions(run):
        for side in sides(attention):
            if side.name != "k" or not _are_scattered(place_of(side.t[:, :, 0]), grid):
                continue
            chain = chain_of(run, side.entry, side.operand)
            entry = next((each for each in chain if _scatters(each, grid)), None)
            if entry is not None:
                return [Suspect("tokens-regrouped", entry.span, proved=True)]
    return _taken_apart(run)


def _taken_apart(run: Run) -> list[Suspect]:
    """The first view that names axes in another order than they lie in."""
    views = (op for op in run.seen if op.last in VIEWS and op.inputs and op.outputs)
    return next(([Suspect("tokens-regrouped", op.span)] for op in views if _takes_apart(run, op)), [])


def _in_runs(run: Run) -> list[Suspect]:
    """Two attentions over tokens of two axes that lie in one, each over tokens that follow one another: as many groups
    of one as the other has tokens in a group, so that one of them is along no axis (arXiv:2102.05095, section 3).
    """
    met: list[tuple[int, int, MarkedOp]] = []
    for attention in attentions(run):
        for side in (each for each in sides(attention) if each.name == "k"):
            places = place_of(side.t[:, :, 0])
            views = [op for op in chain_of(run, side.entry, side.operand) if _groups(op, places.shape[1])]
            if views and _follow_one_another(places):
                met.append((places.shape[1], places.unique().numel(), views[-1]))
    sizes = {run.sizes[text] for text in run.plan.init.values() if isinstance(text, str) and text in run.sizes}
    for (a, count, first), (b, _, second) in combinations(met, 2):
        if a != b and a * b == count:
            entry = second if b in sizes and a not in sizes else first
            return [Suspect("tokens-regrouped", entry.span, proved=True)]
    return []


def _follow_one_another(places: Tensor) -> bool:
    """Whether groups of places, (groups, tokens), each go on from where they begin, one group after another."""
    size = places.shape[1]
    is_told = size > 1 and not bool((places < 0).any())
    return is_told and not bool((places.diff(dim=1) != 1).any() | (places[:, 0] % size != 0).any())


def _groups(entry: MarkedOp, size: int) -> bool:
    """Whether a view makes groups of so many tokens."""
    marks = entry.output_marks[0] if entry.output_marks else None
    if entry.last not in VIEWS or marks is None or marks.kind != "token" or len(marks.shape) != GROUPED:
        return False
    return marks.shape[1] == size and _follow_one_another(place_of(marks.arrays["t"])[..., 0])


def _takes_apart(run: Run, view: MarkedOp) -> bool:
    """Whether a view of tokens names axes in another order than they lie in, other than those of heads."""
    marks, before, after = view.given[0], view.inputs[0].shape, view.outputs[0].shape
    if marks is None or marks.kind != "token":
        return False
    if len(before) == len(after) <= GROUPED:
        # tokens and features that change places, and are not transposed
        swapped = (after[0], after[2], after[1])
        # whole parts of features may be heads that stand beside the samples, or come back from there
        is_part = max(before[2], after[2]) % min(before[2], after[2]) == 0
        return len(before) == len({*before, 1} - {1}) == GROUPED and tuple(before) == swapped and not is_part
    f, heads = marks.arrays["f"], {run.sizes[name] for name in ("H", "Hkv") if name in run.sizes}
    has_heads = any(size in heads and not is_constant(f, axis) for axis, size in enumerate(before))
    if has_heads or len({*before}) < len(before) or prod(before[1:]) == prod(after[1:]):
        return False
    # two that only change places are told as samples that were taken for tokens
    blocks = [(a, b) for a, b in _blocks(before, after) if len(a) > 1 and len(b) > 1 and sorted(a) != sorted(b)]
    return any(_is_made_of(a, b) or _is_made_of(b, a) for a, b in blocks)


def _is_of_grid(entry: MarkedOp) -> bool:
    """Whether an operation takes tokens that lie along several axes beside those of samples and features."""
    marks = entry.given[0] if entry.given else None
    return marks is not None and marks.kind == "token" and len(marks.shape) >= len("bchw") and bool(entry.outputs)


def _is_convolved(run: Run, view: MarkedOp) -> bool:
    """Whether what is viewed comes of a convolution, whose channels stand before its places."""
    return any(entry.last in CONVOLUTIONS for entry in chain_of(run, view.at, view.inputs[0].number))


def _mixes_channels(view: MarkedOp) -> bool:
    """Whether a view makes as many rows as an image has places, as wide as it has channels, though its channels stand
    before its places: it cuts these into rows that hold neither one place nor one channel.
    """
    marks = view.given[0]
    if marks is None or marks.kind != "token" or bool((marks.arrays["t"] < 0).any()):
        return False
    t, f = marks.arrays["t"], marks.arrays["f"]
    axes = [axis for axis in range(f.ndim) if not is_constant(f, axis)]
    if len(axes) != 1 or not is_constant(t, axes[0]) or not t.numel():
        return False
    axis = axes[0]
    before, after = tuple(t.shape[axis:]), view.outputs[0].shape[axis:]
    count = prod(before[1:])
    are_places = all(row.unique().numel() == count for row in t.select(axis, 0).reshape(-1, count))
    if tuple(t.shape[:axis]) != view.outputs[0].shape[:axis] or not are_places:
        return False
    is_like_tokens = any(prod(after[:at]) == count and prod(after[at:]) == before[0] for at in range(1, len(after)))
    return is_like_tokens and any(len(a) > 1 and len(b) > 1 for a, b in _blocks(before, after))


def _mixes_features(view: MarkedOp) -> bool:
    """Whether a view makes as many channels as tokens have features, each with as many places as there are tokens,
    though the features stand behind the tokens: it cuts these into channels of neither one place nor one feature.
    """
    marks = view.given[0]
    if marks is None or marks.kind != "token" or len(marks.shape) < 2:
        return False
    t, f = marks.arrays["t"], marks.arrays["f"]
    axis, (count, width) = len(marks.shape) - 2, marks.shape[-2:]
    is_last = all(is_constant(f, each) for each in range(axis + 1)) and f.unique().numel() == width
    after = tuple(view.outputs[0].shape)
    is_image = len(after) > axis + 2 and after[: axis + 1] == (*marks.shape[:axis], width)
    is_other = width not in (count, after[-1]) and prod(after[axis + 1 :]) == count == place_of(t).unique().numel()
    return is_image and is_last and is_other


def _reorders(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether the sizes of a view are those of what is viewed, some joined and some taken apart, in another order."""
    sizes = [size for size in before if size != 1]
    if len(set(sizes)) < len(sizes):
        return False
    return any(len(a) > 1 and len(b) > 1 and _is_made_of(a, b) for a, b in _blocks(before, after))


def _blocks(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The shortest runs of sizes of two shapes that have equal products, in order; none where a shape is empty."""
    left, right = ([size for size in sizes if size != 1] for sizes in (before, after))
    if 0 in left or prod(left) != prod(right):
        return
    while left and right:
        i = j = 1
        while (a := prod(left[:i])) != (b := prod(right[:j])):
            i, j = (i + 1, j) if a < b else (i, j + 1)
        yield left[:i], right[:j]
        left, right = left[i:], right[j:]


def _is_made_of(sizes: Sequence[int], products: Sequence[int]) -> bool:
    """Whether sizes can be shared out so that each product is of some of them, or several in a row are of one."""
    if not products:
        return not sizes
    for count in range(2, len(products) + 1):
        if (whole := prod(products[:count])) in sizes:
            at = sizes.index(whole)
            if _is_made_of([*sizes[:at], *sizes[at + 1 :]], products[count:]):
                return True
    for count in range(1, len(sizes) + 1):
        for places in combinations(range(len(sizes)), count):
            if prod(sizes[at] for at in places) == products[0]:
                rest = [size for at, size in enumerate(sizes) if at not in places]
                if _is_made_of(rest, products[1:]):
                    return True
    return False


def _grid(run: Run) -> tuple[int, int] | None:
    """The rows and columns of the first input whose tokens lie in a grid, counted row by row; None: there is none."""
    for name in run.sources:
        marks = run.marks_of(name)
        if marks is None or marks.kind != "token":
            continue
        places = place_of(marks.arrays["t"])
        axes = [axis for axis in range(places.ndim) if bool((places.diff(dim=axis) != 0).any())]
        if len(axes) != len("hw"):
            continue
        rows, columns = (places.shape[axis] for axis in axes)
        index = [0] * places.ndim
        index[axes[0]], index[axes[1]] = slice(None), slice(None)  # type: ignore[call-overload]
        if torch.equal(places[tuple(index)], torch.arange(rows * columns).view(rows, columns)):
            return rows, columns
    return None


def _are_scattered(places: Tensor, grid: tuple[int, int]) -> bool:
    """Whether groups of places, (groups, tokens), are as long as a side and no rectangles."""
    # what was transposed or rolled first does not go on from where it begins
    if places.shape[1] not in grid or not _follow_one_another(places):
        return False
    return any(not _is_rectangle(place.unique(), grid[1]) for place in places)


def _is_rectangle(places: Tensor, columns: int) -> bool:
    rows_taken, columns_taken = (places // columns).unique(), (places % columns).unique()
    return bool(places.numel() == rows_taken.numel() * columns_taken.numel())


def _scatters(entry: MarkedOp, grid: tuple[int, int]) -> bool:
    """Whether a view is the one that makes such groups."""
    marks = entry.output_marks[0] if entry.output_marks else None
    if entry.last not in VIEWS or marks is None or marks.kind != "token" or len(marks.shape) != GROUPED:
        return False
    return _are_scattered(place_of(marks.arrays["t"])[..., 0], grid)
