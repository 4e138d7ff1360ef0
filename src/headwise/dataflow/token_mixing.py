"""Token mixing: how tokens are combined in code without softmax attention between tokens."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.dataflow.attention import chain_of, is_scores, operand_marks
from headwise.dataflow.contractions import is_constant
from headwise.dataflow.marked_operations import SOFTMAXES, MarkedOp
from headwise.dataflow.runner import Run
from headwise.dataflow.sums_over_tokens import TokenSum, downstream, reader, token_sums

__all__ = ["feature_sums", "mixing_of"]


def mixing_of(run: Run) -> tuple[str, MarkedOp] | None:
    """The way in which tokens are combined, and the operation; None: no known way.

    "features": a softmax of products of features that are summed over tokens; "state": such products without a softmax,
    as in linear attention; "pooling": a softmax over tokens, of one score each.
    """
    states = [entry for entry in run.seen if _is_state(entry)]
    softmaxes = [entry for entry in run.seen if entry.last in SOFTMAXES]
    over_features = _over_features(run, states)
    if over_features:
        return "features", over_features[0]
    pooled = [entry for entry in softmaxes if _is_over_tokens(entry)]
    weights = {entry.at for entry in pooled if _has_one_score(entry)}
    # a sum of tokens by weights of their own is no state
    mixed = [state for state in states if not weights & set(_makers(run, state))]
    mixed += [entry.total for entry in token_sums(run) if entry.is_running and reader(run, entry) is not None]
    if mixed:
        return "state", mixed[0]
    return ("pooling", pooled[0]) if pooled else None


def _over_features(run: Run, states: list[MarkedOp]) -> list[MarkedOp]:
    """The softmaxes of products of features that were summed over tokens."""
    of_tokens = {state.at for state in states}
    softmaxes = [entry for entry in run.seen if entry.last in SOFTMAXES]
    return [
        softmax
        for softmax in softmaxes
        if of_tokens & {step.at for step in chain_of(run, softmax, softmax.inputs[0].number)}
    ]


def feature_sums(run: Run) -> list[TokenSum]:
    """The sums over features by weights of a softmax of products that were summed over tokens, as in attention over
    channels (El-Nouby et al. 2021, arXiv:2106.09681, equation 2); none where such weights are in no product.
    """
    softmaxes = _over_features(run, [entry for entry in run.seen if _is_state(entry)])
    products = [next((op for op in downstream(run, entry) if op.joint is not None), None) for entry in softmaxes]
    return [] if None in products else [TokenSum(product, product) for product in products if product is not None]


def _makers(run: Run, entry: MarkedOp) -> Iterator[int]:
    """The operations that what an operation takes was made by."""
    return (op.at for tensor in entry.inputs for op in chain_of(run, entry, tensor.number))


def _is_state(entry: MarkedOp) -> bool:
    """Whether a product of tokens with tokens is summed over tokens, and not over features."""
    if entry.joint is None or not is_scores(entry):
        return False
    sides = zip(operand_marks(entry), (entry.joint.left, entry.joint.right), strict=True)
    return any(
        marks is not None
        and not is_constant(marks.arrays["t"], letters.index(letter))
        and is_constant(marks.arrays["f"], letters.index(letter))
        for marks, letters in sides
        for letter in entry.joint.summed
    )


def _is_over_tokens(softmax: MarkedOp) -> bool:
    """Whether a softmax normalises over a token axis."""
    marks = softmax.given[0]
    dim = softmax.options.get("dim", softmax.args[1] if len(softmax.args) > 1 else None)
    if marks is None or marks.kind != "token" or not isinstance(dim, int):
        return False
    return not is_constant(marks.arrays["t"], dim)


def _has_one_score(softmax: MarkedOp) -> bool:
    """Whether what is normalised is one number of each token, and not one of each of its features."""
    marks = softmax.given[0]
    return marks is not None and all(is_constant(marks.arrays["f"], axis) for axis in range(marks.arrays["f"].ndim))
