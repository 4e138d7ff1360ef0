"""Value axis: whether values are weighed along the axis of the queries, by weights that are right."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.dataflow import AttentionOps, Run
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.inputs import makings
from headwise.diagnosis.checks.projection_names import role_of
from headwise.diagnosis.suspects import Suspect
from headwise.recording import site_of

__all__ = ["is_turned", "weighed_otherwise"]


def is_turned(run: Run, attention: AttentionOps) -> bool:
    """Whether what is taken for keys is queries: by the name of its weights, or as it stands first in the product."""
    made = makings(run, attention)
    if attention.scores is None or attention.scores.joint is None or not {"q", "k"} <= made.keys():
        return False
    names = {} if not isinstance(run.target, nn.Module) else {id(p): n for n, p in run.target.named_parameters()}
    said = {side: role_of(names.get(id(made[side].value), "")) for side in "qk"}
    if any(said.values()):
        return said == {"q": "k", "k": "q"}
    keys = next(each for each in sides(attention) if each.name == "k")
    return keys.operand is attention.scores.joint.a


def weighed_otherwise(attention: AttentionOps) -> Suspect:
    """That the weighted sum goes over the queries; and the same over the keys."""
    entry = attention.context
    function = entry.function
    weights = next(
        (t for t, m in zip(entry.tensors, entry.given, strict=True) if m is not None and m.kind == "pair"), None
    )
    place = next((at for at, each in enumerate(entry.args) if each is weights), None)

    def right(*args: Any, **options: Any) -> Any:
        return function(*(_turned(each) if at == place else each for at, each in enumerate(args)), **options)

    stand_ins = {} if place is None else {site_of(entry.operation): right}
    return Suspect("weights-transposed", entry.operation.span, stand_ins)


def _turned(weights: Tensor) -> Tensor:
    is_square = weights.ndim > 1 and weights.shape[-1] == weights.shape[-2]
    return weights.transpose(-1, -2) if is_square else weights
