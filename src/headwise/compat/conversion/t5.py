"""Hugging Face's T5: no scale, an inner width, and a learned bias of distances in the first layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import heads, joined, mixed
from headwise.compat.conversion.module_call import Question
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_tables import WeightRow, WeightTable
from headwise.layer import DotProduct
from headwise.positions import RelativeBias, relative_buckets
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

T5 = WeightTable(
    "t5",
    (
        WeightRow("q.weight", "q_proj.weight"),
        WeightRow("k.weight", "k_proj.weight"),
        WeightRow("v.weight", "v_proj.weight"),
        WeightRow("o.weight", "out_proj.weight"),
        WeightRow("relative_attention_bias.weight", "position.weight", group="bias of distances"),
    ),
)
_BIAS = "relative_attention_bias.weight"
_SHARED = Sentence("convert.note.shared")


def _plan(source: ConversionSource) -> LayerPlan:
    shapes = Shapes.of_linears(source, "q.weight", "k.weight", "v.weight", "o.weight")
    plan = plan_for(shapes, source.heads(*HEADS), bias=False, score=DotProduct(scale=1.0), dropout=source.dropout)
    if _BIAS not in source.weights:
        return replace(plan, notes=(_SHARED,))
    decodes = _decodes(source)
    position = RelativeBias(
        num_buckets=source.shape(_BIAS)[0],
        max_distance=source.says("relative_attention_max_distance"),
        bidirectional=not decodes,
    )
    return replace(plan, position=position, mask="hw.causal()" if decodes else "")


def _decodes(source: ConversionSource) -> bool:
    """Whether this is a layer of a decoder; the configuration of a whole model does not say which of its two."""
    parts = source.prefix.split(".")
    if source.module is None and ("decoder" in parts) != ("encoder" in parts):
        return "decoder" in parts
    return bool(source.says("is_decoder", why=Sentence("convert.why.buckets")))


def _formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    q, k, v = (
        heads(x, w[f"{name}.weight"], None, plan.num_heads) for x, name in zip(question[1:4], "qkv", strict=True)
    )
    bias = None
    if isinstance(plan.position, RelativeBias):
        spec = plan.position
        i, j = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
        buckets = relative_buckets(
            j - i[:, None], num_buckets=spec.num_buckets, max_distance=spec.max_distance,
            bidirectional=spec.bidirectional,
        )  # fmt: skip
        bias = w[_BIAS][buckets].permute(2, 0, 1)
    return joined(mixed(q, k, v, question.allowed, scale=1.0, bias=bias), w["o.weight"], None)


CONVENTIONS = (
    Convention(
        "t5", Sentence("convert.about.t_five"), T5, _plan, _formula, fits=frozenset({"head_dim", "relative"}),
        aliases=("mt5",), modules=("T5Attention", "MT5Attention"), scale=1.0,
    ),
)  # fmt: skip
