"""What a map must give: the dense weights of the definition, and every reading as one writes it of a dense tensor."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.maps import AttentionMap, HeadMean, attention_map
from headwise.ops import reference
from headwise.ops.call import checked
from tests.cases import DIFFERENT, Shape, tensors

WIDE = ("q", "k", "attn_bias", "sink", "weight")


def inputs(shape: Shape = DIFFERENT, dtype: torch.dtype = torch.float32, seed: int = 0, **given: Any) -> dict[str, Any]:
    """The keywords of one map: q, k and the rules of the case."""
    q, k, _ = tensors(shape, dtype, seed)
    return {"q": q, "k": k, **{name: value for name, value in given.items() if value is not None}}


def doubled(given: dict[str, Any]) -> dict[str, Any]:
    """The same keywords with all scores in float64."""
    return {name: t.double() if name in WIDE else t for name, t in given.items()}


class Dense:
    """The definition, densely: weights and masked scores (B, Hq, Lq, Lk), lse (B, Hq, Lq)."""

    def __init__(self, *, q: Tensor, k: Tensor, weight: Tensor | None = None, **rules: Any) -> None:
        call = checked(q, k, k, weight=weight, **rules)
        scores, allowed = reference.scores(call), reference.open_pairs(call)
        self.weights = reference.weights(call, scores)
        if allowed is not None:
            scores = torch.where(allowed, scores, float("-inf"))
        self.logits = scores
        self.lse = reference.attention_lse(q, k, weight=weight, **rules)
        # what plain torch makes of the lse of a kernel, which scales first and adds the features in an order of its own
        q, k = (q.to(self.lse.dtype) * call.multiplier).flip(-1), k.to(self.lse.dtype).flip(-1)
        again = replace(call, q=q, k=k, v=k, weight=None if weight is None else weight.flip(-1), scale=1.0, prepared={})
        alone = reference.scores(again).masked_fill(self.logits.isneginf(), float("-inf"))
        self.weights_by_lse = (alone - shown(self.lse)[..., None]).exp()


def entropy(p: Tensor) -> Tensor:
    """-sum p log p over the keys."""
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(-1)


def distance(p: Tensor) -> Tensor:
    """Mean of i - j by weight."""
    Lq, Lk = p.shape[-2:]
    back = torch.arange(Lk - Lq, Lk, dtype=p.dtype)[:, None] - torch.arange(Lk, dtype=p.dtype)
    total = p.sum((-1, -2))
    return (p * back).sum((-1, -2)) / total.masked_fill(total == 0, 1.0)


def pooled(p: Tensor, how: str) -> Tensor:
    """torch's own adaptive pooling to 3 by 4."""
    return F.adaptive_avg_pool2d(p, (3, 4)) if how == "mean" else F.adaptive_max_pool2d(p, (3, 4))


# these are computed by the lse
BY_LSE = ("one column", "scattered", "entropy", "received", "distance")
# each reading of weights: of a map, and of dense weights
OF_WEIGHTS: dict[str, tuple[Callable[[AttentionMap | HeadMean], Tensor], Callable[[Tensor], Tensor]]] = {
    "dense": (lambda m: m.dense(), lambda p: p),
    "one row": (lambda m: m[-1, 0, -1], lambda p: p[-1, 0, -1]),
    "one column": (lambda m: m[..., 3], lambda p: p[..., 3]),
    "scattered": (lambda m: m[:, :, [3, 0, 3], 1::2], lambda p: p[:, :, [3, 0, 3], 1::2]),
    "entropy": (lambda m: m.entropy(), entropy),
    "received": (lambda m: m.received(), lambda p: p.sum(-2)),
    "distance": (lambda m: m.distance(), distance),
    "largest": (lambda m: m.topk(3)[0], lambda p: p.topk(3)[0]),
    "picture": (lambda m: m.pooled(3, 4), lambda p: pooled(p, "mean")),
    "picture of peaks": (lambda m: m.pooled(3, 4, how="max"), lambda p: pooled(p, "max")),
}
# readings of scores: of a map, and of dense ones; an empty row's -inf is 0 here, so that numbers can be compared
OF_SCORES: dict[str, tuple[Callable[[AttentionMap], Tensor], Callable[[Dense], Tensor]]] = {
    "lse": (lambda m: shown(m.lse), lambda d: shown(d.lse)),
    "max_logit": (lambda m: shown(m.max_logit()), lambda d: shown(d.logits.flatten(2).amax(-1))),
    "logits": (lambda m: shown(m.logits.dense()), lambda d: shown(d.logits)),
    "a column of logits": (lambda m: shown(m.logits[:, 1, :, 4]), lambda d: shown(d.logits[:, 1, :, 4])),
}


def shown(values: Tensor) -> Tensor:
    """0 in the place of -inf."""
    return values.masked_fill(values.isneginf(), 0.0)


def made(given: dict[str, Any], *, with_lse: bool = False) -> AttentionMap:
    """The map of these keywords; with_lse: told its lse, as a kernel would."""
    rules = {name: value for name, value in given.items() if name not in ("q", "k")}
    if with_lse:
        rules["lse"] = attention_map(**given).detach().lse
    return attention_map(given["q"], given["k"], **rules)
