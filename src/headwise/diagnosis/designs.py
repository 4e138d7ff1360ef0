"""Designs: the formulas by which weights may come from scores, each with its source; what fits none is not examined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwise.diagnosis.formulas import (
    has_further_terms,
    is_additive,
    is_biased,
    is_capped,
    is_decayed,
    is_definition,
    is_normalised_late,
    is_of_nearest,
    is_pointwise,
    is_relu,
    is_scaled_otherwise,
    is_shared_among_queries,
    is_shared_relu,
    is_sharpened,
    is_sigmoid,
    is_sunk,
    is_unshared,
)
from headwise.diagnosis.head_mixtures import is_mixed
from headwise.diagnosis.observation import Observation
from headwise.diagnosis.token_weights import WeighedSum

__all__ = ["DEFINITION", "DESIGNS", "OWN", "TORCH_LAYER", "TORCH_STEP", "Design", "design_of"]


@dataclass(frozen=True)
class Design:
    """One way from scores to weights. name: as the field calls it. source: who described it. example: the context, made
    of q, k, v and `scores` = q·kᵀ; a test runs it. matches: whether what was observed follows it. has_scores: False:
    values are weighed with no scores of queries and keys.
    """

    name: str
    source: str
    example: str
    matches: Callable[[Any], bool]
    has_scores: bool = True

    def __str__(self) -> str:
        return self.name if self.name == DEFINITION else f"{self.name}, {self.source}"


def design_of(observed: Observation | WeighedSum) -> Design | None:
    """The first design that what was observed follows; None: it follows none of the table."""
    has_scores = isinstance(observed, Observation)
    return next((each for each in DESIGNS if each.has_scores == has_scores and each.matches(observed)), None)


DEFINITION = "softmax(q·kᵀ/√d)"
TORCH_STEP = "torch scaled_dot_product_attention"
TORCH_LAYER = "torch nn.MultiheadAttention"
OWN = "headwise"
DESIGNS = (
    Design(DEFINITION, "arXiv:1706.03762", "(scores * scale).softmax(-1) @ v", is_definition),
    Design("another scale", "arXiv:2203.03466, arXiv:2010.04245", "(scores * temperature).softmax(-1) @ v",
           is_scaled_otherwise),
    Design("scores of the nearest query", "arXiv:1611.01603",
           "((scores * scale).amax(-2, keepdim=True).softmax(-1) @ v).expand_as(v)", is_of_nearest),
    Design("weights sharpened by a power", "arXiv:1410.5401",
           "torch.nn.functional.normalize((scores * scale).softmax(-1) ** 3, p=1, dim=-1) @ v", is_sharpened),
    Design("additive scores", "arXiv:1409.0473",
           "((q[..., :, None, :] + k[..., None, :, :]).tanh() @ weight).softmax(-1) @ v", is_additive),
    Design("bias that inputs do not change", "arXiv:1910.10683, arXiv:2108.12409",
           "(scores * scale + bias).softmax(-1) @ v", is_biased),
    Design("softmax with a sink", "arXiv:2309.17453",
           "torch.cat([scores * scale, sink.expand(scores[..., :1].shape)], -1).softmax(-1)[..., :-1] @ v", is_sunk),
    Design("capped scores", "arXiv:2408.00118", "(2 * (scores * scale / 2).tanh()).softmax(-1) @ v", is_capped),
    Design("scores with further terms", "arXiv:1803.02155, arXiv:1901.02860",
           "((scores + q @ relative.mT) * scale).softmax(-1) @ v", has_further_terms),
    Design("softmax normalised after the weighted sum", "arXiv:1805.02867",
           "(e := (scores * scale).exp()) @ v / e.sum(-1, keepdim=True)", is_normalised_late),
    Design("queries that share keys out", "arXiv:2006.15055",
           "torch.nn.functional.normalize((scores * scale).softmax(-2), p=1, dim=-1) @ v", is_shared_among_queries),
    Design("sums of softmaxes", "arXiv:2003.02436, arXiv:2410.05258",
           "((scores * scale).softmax(-1) - temperature * (q @ v.mT * scale).softmax(-1)) @ v", is_mixed),
    Design("sigmoid attention", "arXiv:2409.04431", "(scores * scale).sigmoid() @ v", is_sigmoid),
    Design("ReLU attention", "arXiv:2309.08586", "scores.relu() / scores.shape[-1] @ v", is_relu),
    Design("squared ReLU attention", "arXiv:2202.10447", "scores.relu() ** 2 @ v",
           lambda observation: is_relu(observation, power=2)),
    Design("pointwise attention", "arXiv:2402.17152",
           "torch.nn.functional.silu(scores * scale + bias) / scores.shape[-1] @ v", is_pointwise),
    Design("normalised ReLU attention", "arXiv:2104.07012",
           "scores.relu() / (scores.relu().sum(-1, keepdim=True) + 1e-6) @ v", is_shared_relu),
    Design("q·kᵀ without a softmax", "arXiv:2102.11174", "scores * scale @ v", is_unshared),
    Design("retention", "arXiv:2307.08621", "scores * decay @ v", is_decayed),
    Design("linear attention", "arXiv:2006.16236, arXiv:1812.01243",
           "(f := q.exp()) @ ((e := k.exp()).mT @ v) / (f @ e.sum(-2).unsqueeze(-1))",
           lambda weighed: weighed.is_read, has_scores=False),
    Design("attention over channels", "arXiv:2106.09681, arXiv:2111.09881",
           "((q.mT @ k * scale).softmax(-1) @ v.mT).mT  # over channels",
           lambda weighed: weighed.is_of_features, has_scores=False),
    Design("attention pooling", "arXiv:1703.03130, arXiv:1802.04712, arXiv:1710.10903",
           "(k[..., :1].softmax(-2) * v).sum(-2, keepdim=True).expand_as(v)",
           lambda weighed: not (weighed.is_read or weighed.is_of_features or weighed.is_raw), has_scores=False),
    Design("pooling by raw weights", "arXiv:1706.06978",
           "(k[..., :1] * v).sum(-2, keepdim=True).expand_as(v)  # weights are not normalised",
           lambda weighed: weighed.is_raw, has_scores=False),
)  # fmt: skip
