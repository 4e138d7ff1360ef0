"""Product provenance: the marks of results that are computed from tokens: projections, scores, weighted sums."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from headwise.dataflow.contractions import Einsum, is_constant
from headwise.dataflow.provenance import LOST, Marks, beside, numbered, place_of, source_of

__all__ = ["contracted", "entrywise", "looking", "own_tokens"]

# so many blocks of features of two tokens are laid side by side: each of theirs, their difference and their product
MOST_BLOCKS = 4


def contracted(
    joint: Einsum, input_marks: tuple[Marks | None, ...], input_tensors: list[Tensor], shape: tuple[int, ...]
) -> Marks:
    sides = []
    for operand in (joint.a, joint.b):
        place = next((at for at, each in enumerate(input_tensors) if each is operand), None)
        sides.append(None if place is None else input_marks[place])
    a, b = sides
    if any(side is not None and side.kind == "lost" for side in sides):
        return LOST
    if a is not None and b is not None:
        if a.kind == "token" and b.kind == "token":
            return _paired(joint, a, b, shape)
        if {a.kind, b.kind} == {"pair", "token"}:
            return _weighted(joint, a, b, shape)
        if {a.kind, b.kind} == {"state", "token"}:
            # each query reads the state: its token stays, the features are new
            query, other = (a, None) if a.kind == "token" else (None, b)
            return _projected(joint, query, other, shape)
        return LOST
    return _projected(joint, a, b, shape)


def _projected(joint: Einsum, a: Marks | None, b: Marks | None, shape: tuple[int, ...]) -> Marks:
    """The marks of a product with weights: the tokens stay, the features are new."""
    marks, letters, weight, weight_letters = (
        (a, joint.left, joint.b, joint.right) if a is not None else (b, joint.right, joint.a, joint.left)
    )
    if marks is None or marks.kind == "state":
        return LOST
    if marks.kind == "pair":
        # additive scores, relative positions, talking heads
        return marks.through(lambda array: joint.spread(array, letters, shape))
    t = marks.arrays["t"]
    for letter in joint.summed:
        axis = letters.index(letter)
        if not is_constant(t, axis):
            if (pair := _side_by_side(t, axis)) is not None:
                ends = [joint.spread(end, letters, shape) for end in pair]
                heads = joint.spread(torch.zeros_like(t), letters, shape)
                return Marks("pair", {"x": beside(*ends), "y": beside(*ends[::-1]), "h": heads})
            t = torch.full_like(t, -1)
    sizes = [size if each in joint.out else 1 for each, size in zip(weight_letters, weight.shape, strict=True)]
    features = joint.spread(torch.arange(prod(sizes)).reshape(sizes), weight_letters, shape)
    if any(letter in joint.out and not is_constant(marks.arrays["f"], letters.index(letter)) for letter in letters):
        features = numbered(joint.spread(marks.arrays["f"], letters, shape), features)
    return Marks("token", {"t": joint.spread(t, letters, shape), "f": features})


def _side_by_side(t: Tensor, axis: int) -> tuple[Tensor, Tensor] | None:
    """The two tokens whose features lie one after the other along an axis, where one of them is laid beside several, as
    where a score is computed of both (Bahdanau et al. 2014, arXiv:1409.0473), and of their product and difference (Zhou
    et al. 2018, arXiv:1706.06978, section 4.3); None: it is not so.
    """
    first = t.narrow(axis, 0, 1)
    changes = (t != first).movedim(axis, 0).flatten(1).any(dim=1)
    other = t.narrow(axis, int(changes.int().argmax()), 1)
    is_of_two = bool(((t == first) | (t == other)).all()) and int((t.diff(dim=axis) != 0).sum(axis).max()) < MOST_BLOCKS
    sides = [(a, b, rest) for a, b in ((first, other), (other, first)) for rest in range(t.ndim) if rest != axis]
    if not is_of_two or not any(is_constant(a, rest) and not is_constant(b, rest) for a, b, rest in sides):
        return None
    return first.expand_as(t), other.expand_as(t)


def _paired(joint: Einsum, a: Marks, b: Marks, shape: tuple[int, ...]) -> Marks:
    """The marks of a product of tokens with tokens: pairs, if the summed axes are features, and the tokens differ."""
    x, y = joint.spread(a.arrays["t"], joint.left, shape), joint.spread(b.arrays["t"], joint.right, shape)
    features = [joint.spread(m.arrays["f"], letters, shape) for m, letters in ((a, joint.left), (b, joint.right))]
    # where each has tokens of its own besides, pairs add up over tokens, as in tied rows of an alignment
    are_tied = own_tokens(joint, a, joint.left, joint.right) and own_tokens(joint, b, joint.right, joint.left)
    for marks, letters in () if are_tied else ((a, joint.left), (b, joint.right)):
        for letter in joint.summed:
            axis = letters.index(letter)
            if not is_constant(marks.arrays["t"], axis) and is_constant(marks.arrays["f"], axis):
                # summed over tokens, as in linear attention
                return Marks("state", {"t": torch.full_like(x, -1), "f": numbered(*features)})
    operands = ((joint.left, joint.right), (joint.right, joint.left))
    has_own = [bool(set(joint.out) & set(rows) - set(columns)) for rows, columns in operands]
    if torch.equal(x, y) and not all(has_own):
        return Marks("token", {"t": x, "f": numbered(*features)})
    if torch.equal(x, y) and not joint.summed:
        # features of a token with others of it, to be added up
        return Marks("state", {"t": x, "f": numbered(*features)})
    return Marks("pair", {"x": beside(x, y), "y": beside(y, x), "h": features[0]})


def own_tokens(joint: Einsum, marks: Marks, letters: str, others: str) -> list[str]:
    """The axes of a product that are of tokens of one operand alone."""
    t, f = marks.arrays["t"], marks.arrays["f"]
    axes = [(letter, letters.index(letter)) for letter in letters if letter in joint.out and letter not in others]
    return [letter for letter, axis in axes if is_constant(f, axis) and not is_constant(t, axis)]


def _weighted(joint: Einsum, a: Marks, b: Marks, shape: tuple[int, ...]) -> Marks:
    """The marks of a product of weights and values: each entry belongs to the query token; where rows share weights, to
    that of the row of its value.
    """
    pair, letters, value, value_letters = (
        (a, joint.left, b, joint.right) if a.kind == "pair" else (b, joint.right, a, joint.left)
    )
    looked = looking(pair, [letters.index(axis) for axis in joint.summed])
    heads = joint.spread(pair.arrays["h"], letters, shape)
    features = joint.spread(value.arrays["f"], value_letters, shape)
    t, values = joint.spread(pair.arrays[looked], letters, shape), value.arrays["t"]
    for letter in own_tokens(joint, value, value_letters, letters) if bool((values >= 0).all()) else ():
        t = t + joint.spread(values - values.narrow(value_letters.index(letter), 0, 1), value_letters, shape)
    return Marks("token", {"t": t, "f": numbered(heads, features)})


def looking(pair: Marks, axes: list[int]) -> str:
    """The array of a pair that is the query token. axes: those of the keys."""
    if all(is_constant(pair.arrays["x"], axis) for axis in axes):
        return "x"
    return "y" if all(is_constant(pair.arrays["y"], axis) for axis in axes) else "x"


def entrywise(input_marks: tuple[Marks | None, ...], shape: tuple[int, ...], *, is_sum: bool) -> Marks | None:
    """The marks of an elementwise operation, or of one that keeps the shape of its first input. is_sum: it adds, as an
    additive score adds a query, laid beside all keys, to these.
    """
    operands = [marks for marks in input_marks if marks is not None and marks.kind != "lost"]
    if not operands or (len(operands) > 1 and any(operand.kind == "state" for operand in operands)):
        return LOST
    fits = []
    for marks in operands:
        if len(marks.shape) <= len(shape):
            try:
                fits.append(marks.through(lambda array: array.expand(shape)))
            except RuntimeError:
                continue
    if not fits:
        return LOST
    pairs = [marks for marks in fits if marks.kind == "pair"]
    if pairs:
        return _of_this_step(pairs[0], [marks.arrays["t"] for marks in fits if marks.kind == "token"])
    first = fits[0]
    for own, marks in zip(operands[1:], fits[1:], strict=False):
        a, b = first.arrays["t"], marks.arrays["t"]
        if torch.equal(a, b) and shape not in (own.shape, operands[0].shape):
            # features of a token with others of it
            return Marks("state", {"t": a, "f": numbered(first.arrays["f"], marks.arrays["f"])})
        if bool(((place_of(a) != place_of(b)) & (a >= 0) & (b >= 0)).any()):
            is_alike = tuple(operands[0].shape) == shape == tuple(own.shape)
            if is_alike and not (is_sum and _is_laid_beside(a, b)):
                # a residual or a gate: it has several tokens
                return first
            return Marks("pair", {"x": beside(a, b), "y": beside(b, a), "h": first.arrays["f"]})
    return first


def _is_laid_beside(a: Tensor, b: Tensor) -> bool:
    """Whether one token of a is laid beside several of b along an axis."""
    return any(is_constant(a, axis) and not is_constant(b, axis) for axis in range(a.ndim))


def _of_this_step(pair: Marks, tokens: list[Tensor]) -> Marks:
    """Pairs of one query that attended to the keys in an earlier step: where a later query is added, they are pairs of
    that one, and what was attended to is a feature of the keys (See et al. 2017, arXiv:1704.04368, equation 11).
    """
    for t in tokens:
        for query, key in (("x", "y"), ("y", "x")):
            before, others = pair.arrays[query], pair.arrays[key]
            is_later = (t >= 0) & (source_of(t) == source_of(before)) & (place_of(t) > place_of(before))
            is_of_one = place_of(before).unique().numel() == 1
            if is_of_one and bool(is_later.all()) and _is_laid_beside(t, others):
                return Marks("pair", {**pair.arrays, query: beside(t, others)})
    return pair
