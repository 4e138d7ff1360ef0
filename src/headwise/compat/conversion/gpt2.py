"""Hugging Face's GPT-2: weights (in, out), queries, keys and values packed in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import joined, mixed
from headwise.compat.conversion.module_call import CannotAskError, Question
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_steps import PACKED, PACKED_PAIR, TRANSPOSED
from headwise.compat.conversion.weight_tables import Ignored, WeightRow, WeightTable
from headwise.layer import DotProduct
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

_OUT = (WeightRow("c_proj.weight", "out_proj.weight", (TRANSPOSED,)), WeightRow("c_proj.bias", "out_proj.bias"))
_BUFFERS = (
    Ignored("bias", Sentence("convert.why.causal_buffer")),
    Ignored("masked_bias", Sentence("convert.why.hiding_buffer")),
)
GPT2 = WeightTable(
    "gpt2",
    (
        WeightRow("c_attn.weight", ("q_proj.weight", "k_proj.weight", "v_proj.weight"), (TRANSPOSED, PACKED)),
        WeightRow("c_attn.bias", ("q_proj.bias", "k_proj.bias", "v_proj.bias"), (PACKED,)),
        *_OUT,
    ),
    _BUFFERS,
)
GPT2_CROSS = WeightTable(
    "gpt2_cross",
    (
        WeightRow("q_attn.weight", "q_proj.weight", (TRANSPOSED,)),
        WeightRow("q_attn.bias", "q_proj.bias"),
        WeightRow("c_attn.weight", ("k_proj.weight", "v_proj.weight"), (TRANSPOSED, PACKED_PAIR)),
        WeightRow("c_attn.bias", ("k_proj.bias", "v_proj.bias"), (PACKED_PAIR,)),
        *_OUT,
    ),
    _BUFFERS,
)


def _plan(source: ConversionSource) -> LayerPlan:
    width, columns = source.shape("c_attn.weight")
    crosses = "q_attn.weight" in source.weights
    shape = (columns // (2 if crosses else 3), width)
    q = source.shape("q_attn.weight")[::-1] if crosses else shape
    shapes = Shapes(q, shape, shape, source.shape("c_proj.weight")[::-1])
    plan = plan_for(shapes, source.heads(*HEADS), mask="" if crosses else "hw.causal()", dropout=source.dropout)
    usual = plan.head_dim**-0.5
    scale = usual if source.says("scale_attn_weights", otherwise=True) else 1.0
    if source.says("scale_attn_by_inverse_layer_idx", otherwise=False):
        scale /= 1 + (source.layer if source.layer is not None else source.says("layer_idx"))
    return plan if scale == usual else replace(plan, score=DotProduct(scale))


def _formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    if "q_attn.weight" in w:
        q = question.query @ w["q_attn.weight"] + w["q_attn.bias"]
        k, v = (question.keys @ w["c_attn.weight"] + w["c_attn.bias"]).chunk(2, -1)
    elif not question.is_self:
        raise CannotAskError("it takes no other keys")
    else:
        q, k, v = (question.query @ w["c_attn.weight"] + w["c_attn.bias"]).chunk(3, -1)
    q, k, v = (t.unflatten(-1, (plan.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
    return joined(mixed(q, k, v, question.allowed, scale=plan.score.scale), w["c_proj.weight"].mT, w["c_proj.bias"])


CONVENTIONS = (
    Convention("gpt2", Sentence("convert.about.gpt"), GPT2, _plan, _formula,
               modules=("GPT2Attention",)),
    Convention("gpt2_cross", Sentence("convert.about.gpt_cross"), GPT2_CROSS, _plan, _formula),
)  # fmt: skip
