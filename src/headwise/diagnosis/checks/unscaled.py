"""Unscaled: designs of attention that have no scale, by what makes their queries, keys and biases."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose, prod
from typing import Any

from torch import nn

from headwise.calls import call_role, callee, parameters
from headwise.dataflow import ADDITIONS, CONVOLUTIONS, MarkedOp, Run, attentions, chain_of, find_pattern, made_from
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.inputs import makings
from headwise.diagnosis.checks.rounded_scale import says_root
from headwise.diagnosis.checks.untaken_branches import has_root_option
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.scale_factors import Scale
from headwise.diagnosis.suspects import Suspect

__all__ = ["attributes_of", "cancels", "is_bucketed", "is_unscaled", "keeps_scale"]

NEAR = 1e-3
# a small number that is added to a sum hides as much of another scale
CANCELLED = 1e-3
# what takes rows of a table
LOOKUPS = frozenset({"embedding", "__getitem__", "index_select"})
# what is drawn has about the spread that it is drawn with
DRAWN = 0.15
# tensors of a projection that has a bias
LINEAR = 3


def is_unscaled(run: Run, scale: Scale) -> bool:
    """Whether it is of a kind that has no scale, or whose scale is an option that is off, as of GPT-2's layers."""
    scores = scale.attention.scores
    is_option = scores is not None and has_root_option(run, scores)
    rules = _is_convolved, _is_bilinear, _is_trilinear, _is_of_values, _is_aligned, _is_of_tables, _is_drawn_so
    return is_option or any(rule(run, scale) for rule in rules)


def _is_convolved(run: Run, scale: Scale) -> bool:
    """Whether queries are made by a convolution, as in attention over pictures, which has no scale."""
    for side in sides(scale.attention):
        if side.name == "q":
            return any(entry.last in CONVOLUTIONS for entry in chain_of(run, side.entry, side.operand))
    return False


def _is_drawn_so(run: Run, scale: Scale) -> bool:
    """Whether the weights of queries are drawn smaller than those of keys by the root of the head width, as those of T5
    are (arXiv:1910.10683), so that the scale stands in them.
    """
    origins = makings(run, scale.attention)
    drawn = [
        tensor.detach().double().std() * tensor.shape[-1] ** 0.5
        for name in "qk" if name in origins and (made := origins[name].projection) is not None
        for tensor in made.tensors if isinstance(tensor, nn.Parameter) and tensor.ndim == len("od")
    ]  # fmt: skip
    if len(drawn) != len("qk") or not float(drawn[0]):
        return False
    return isclose(float(drawn[1] / drawn[0]), scale.width**0.5, rel_tol=DRAWN)


def _is_bilinear(run: Run, scale: Scale) -> bool:
    """Whether a memory is attended to as it is, its own keys and values, as Luong does, who scales nothing; one matrix
    may stand between queries and keys, on either side. What is learned itself, as a query, has any length.
    """
    origins = makings(run, scale.attention)
    if "q" in origins and origins["q"].projection is None and origins["q"].is_learned:
        return True
    if not {"q", "k", "v"} <= origins.keys():
        return False
    q, k, v = (origins[name] for name in "qkv")
    argument, out = run.named.get(k.source or ""), prod(scale.attention.context.operation.outputs[0].shape)
    pattern = find_pattern(scale.attention)
    rows, columns = (1, 1) if pattern is None else pattern.weights.shape[-2:]
    if argument is not None and argument.is_floating_point() and argument.numel() * rows >= len("qkv") * out * columns:
        # all three came beside one another, projected by who calls
        return False
    is_one = k.projection is None or (q.projection is None and q.source != k.source)
    return is_one and v.projection is None and k.source is not None and k.source == v.source


def _is_trilinear(run: Run, scale: Scale) -> bool:
    """Whether numbers that learned weights make of queries alone, and of keys alone, are added to their products, as in
    BiDAF (Seo et al. 2016, arXiv:1611.01603, equation 1), which scales nothing.
    """
    axes: set[int] = set()
    for entry in scale.attention.path:
        for tensor, marks in zip(entry.inputs, entry.given, strict=True) if entry.name in ADDITIONS else ():
            steps = [] if marks is None or marks.kind != "token" else chain_of(run, entry.at, tensor.number)
            made = [each for each in steps if not each.is_movement][-1:]
            if made and _is_learned(made[0]) and len(tensor.shape) > 1:
                # one number for all keys of a query, or for all queries of a key
                axes |= {axis for axis in (-1, -2) if tensor.shape[axis] == 1}
    return len(axes) > 1


def _is_of_values(run: Run, scale: Scale) -> bool:
    """Whether keys are the values themselves, as states of an encoder in a whole model, with at most one matrix between
    queries and keys (Luong et al. 2015, arXiv:1508.04025, equation 8).
    """
    steps = {
        side.name: [each for each in chain_of(run, side.entry, side.operand) if not each.is_movement]
        for side in sides(scale.attention)
    }
    if not all(steps.get(name) for name in "qkv"):
        return False
    made = steps["v"][-1]
    at = next((at for at, each in enumerate(steps["k"]) if each.results & made.results), None)
    # what makes queries or keys too, in one product, gives each a part
    count = next(side.operand.numel() for side in sides(scale.attention) if side.name == "v")
    if at is None or prod(made.outputs[0].shape) != count:
        return False
    between = [each for each in steps["k"][at + 1 :] if _is_learned(each)]
    return not between or (len(between) == 1 and not _is_learned(steps["q"][-1]))


def _is_learned(entry: MarkedOp) -> bool:
    """Whether an operation is a product with weights."""
    return entry.joint is not None and any(isinstance(each, nn.Parameter) for each in entry.tensors)


def _is_aligned(run: Run, scale: Scale) -> bool:
    """Whether one function makes queries and keys of two texts, and these texts are the values, as where the words of
    one are aligned with those of another (Parikh et al. 2016, arXiv:1606.01933, equation 1), who scales nothing.
    """
    chains = {side.name: chain_of(run, side.entry, side.operand) for side in sides(scale.attention)}
    if not {"q", "k", "v"} <= chains.keys():
        return False
    weights, numbers = {}, {}
    for name, chain in chains.items():
        steps = [each for each in chain if not each.is_movement]
        learned = [t for step in steps[-2:] for t in step.tensors if isinstance(t, nn.Parameter)]
        weights[name] = [id(tensor) for tensor in learned if tensor.ndim > 1]
        numbers[name] = {number for step in steps for number in step.results}
    is_shared = bool(set(weights["q"]) & set(weights["k"]))
    return is_shared and numbers["v"] < numbers["k"] and not numbers["q"] & numbers["k"]


def _is_of_tables(run: Run, scale: Scale) -> bool:
    """Whether rows of tables are compared as they are, and others are the values, as in memory networks (Sukhbaatar et
    al. 2015, arXiv:1503.08895, equations 1 and 2), which scale nothing.
    """
    rows: dict[str, set[int]] = {}
    for side in sides(scale.attention):
        chain = chain_of(run, side.entry, side.operand)
        weights = [
            (entry.last, t) for entry in chain for t in entry.tensors if isinstance(t, nn.Parameter) and t.ndim > 1
        ]
        if any(last not in LOOKUPS for last, _ in weights):
            return False
        rows[side.name] = {id(table) for _, table in weights}
    compared = rows.get("q", set()) | rows.get("k", set())
    return all(rows.get(name) for name in "qkv") and not compared & rows["v"]


def is_bucketed(run: Run, scale: Scale) -> bool:
    """Whether a learned bias by buckets of distance is added, as in T5, whose weights are drawn for scores unscaled; or
    left out, where the queries are of another input than the keys.
    """
    scores = scale.attention.scores
    # what one line computes is drawn alike, in the attention to other tokens too, which has no distances
    alike = [each for each in attentions(run) if scores and each.scores and each.scores.span == scores.span]
    # torch's own function is given the bias itself
    added = [op for each in (scale.attention, *alike) for op in ([each.context] if each.fused else each.path)]
    if any(maker.last == "embedding" for maker in made_from(run, added)) or _leaves_table(run, scale):
        return True
    taken = [parameter.name for parameter in parameters(callee(run.plan.target)) if call_role(parameter.name) == "bias"]
    if not taken or says_root(scale) or keeps_scale(run, scale, scale.width**-0.5):
        return False
    # the buckets are of who calls it; T5 projects without a bias
    projections = [each.projection for name, each in makings(run, scale.attention).items() if name in "qk"]
    is_plain = all(projection is not None and len(projection.tensors) < LINEAR for projection in projections)
    return is_plain or any("pos" in name for name in taken)


def _leaves_table(run: Run, scale: Scale) -> bool:
    """Whether the module of scores has a table of a number for each head that a call with two inputs leaves unread."""
    if scale.attention.scores is None or len(run.argument_marks) < 2:
        return False
    tables = [value for value in attributes_of(run, scale.attention.scores).get("_modules", {}).values()
              if isinstance(value, nn.Embedding) and value.embedding_dim == run.sizes.get("H")]  # fmt: skip
    read = {tensor.untyped_storage().data_ptr() for entry in run.seen for tensor in entry.tensors}
    return any(table.weight.untyped_storage().data_ptr() not in read for table in tables)


def attributes_of(run: Run, entry: MarkedOp) -> Mapping[str, Any]:
    """What the module of an operation keeps."""
    modules = dict(run.target.named_modules()) if isinstance(run.target, nn.Module) else {}
    return dict(vars(modules[entry.operation.module])) if entry.operation.module in modules else {}


def keeps_scale(run: Run, scale: Scale, wanted: float) -> bool:
    """Whether the module of the scores keeps the number by which they should be multiplied, or divided."""
    scores = scale.attention.scores
    attributes = {} if scores is None else attributes_of(run, scores)
    numbers = [attribute for attribute in attributes.values() if isinstance(attribute, float)]
    return any(isclose(each, number, rel_tol=NEAR) for each in numbers for number in (wanted, 1 / wanted))


def cancels(exam: Examination, scale: Scale, suspect: Suspect) -> bool:
    """Whether another scale changes nothing, as weights that no softmax made are divided by their own sum."""
    if suspect.kind != "scale-missing" or scale.attention.softmax is not None or not suspect.repair.stand_ins:
        return False
    output, scaled = exam.run(plan=exam.free).output, exam.run(suspect.repair.stand_ins, plan=exam.free).output
    return output is not None and distance(scaled, output) <= CANCELLED * float(output.abs().nan_to_num().max())
