"""x-transformers, timm and torchtune."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import heads, joined, mixed, turned
from headwise.compat.conversion.module_call import CannotAskError, Question
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_steps import BLOCK_COLUMNS, BLOCK_ROWS, PACKED, paired
from headwise.compat.conversion.weight_tables import Ignored, WeightRow, WeightTable
from headwise.errors import ConversionError
from headwise.layer import DotProduct
from headwise.positions import Llama3Scaling, Rotary
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

X_TRANSFORMERS = WeightTable(
    "x_transformers",
    (
        WeightRow("to_q.weight", "q_proj.weight", (BLOCK_ROWS,)),
        WeightRow("to_k.weight", "k_proj.weight"),
        WeightRow("to_v.weight", "v_proj.weight"),
        WeightRow("to_out.weight", "out_proj.weight", (BLOCK_COLUMNS,)),
        WeightRow("attend.head_attn_sink", "sink", (BLOCK_ROWS,), group="sink"),
    ),
)
TIMM = WeightTable(
    "timm",
    (
        WeightRow("qkv.weight", ("q_proj.weight", "k_proj.weight", "v_proj.weight"), (PACKED,)),
        WeightRow("qkv.bias", ("q_proj.bias", "k_proj.bias", "v_proj.bias"), (PACKED,), group="bias of q, k, v"),
        WeightRow("proj.weight", "out_proj.weight"),
        WeightRow("proj.bias", "out_proj.bias", group="bias of the output"),
        *(WeightRow(f"{name}.weight", f"{name}.weight", group="norm") for name in ("q_norm", "k_norm")),
        *(WeightRow(f"{name}.bias", f"{name}.bias", group="bias of the norm") for name in ("q_norm", "k_norm")),
    ),
)
_INTERLEAVED = (paired("interleaved"),)
_FLAGS = Sentence("convert.note.flags_untold")
_LATE_NORM = "it norms queries and keys after their rotation, and the layer before it: it cannot be converted"
TORCHTUNE = WeightTable(
    "torchtune",
    tuple(
        WeightRow(f"{foreign}.{kind}", f"{ours}.{kind}", steps, group="" if kind == "weight" else f"bias of {foreign}")
        for kind in ("weight", "bias")
        for foreign, ours, steps in (
            ("q_proj", "q_proj", _INTERLEAVED),
            ("k_proj", "k_proj", _INTERLEAVED),
            ("v_proj", "v_proj", ()),
            ("output_proj", "out_proj", ()),
        )
    ),
    refused=(Ignored("q_norm.scale", _LATE_NORM), Ignored("k_norm.scale", _LATE_NORM)),
)


def _x_plan(source: ConversionSource) -> LayerPlan:
    shapes = Shapes.of_linears(source, "to_q.weight", "to_k.weight", "to_v.weight", "to_out.weight")
    attend: Any = getattr(source.module, "attend", None)
    learned, zero = "attend.head_attn_sink" in source.weights, getattr(attend, "add_zero_kv", False)
    if learned and zero:
        raise ConversionError("head_learned_sink or add_zero_kv may be on, but both came: the layer has one sink")
    for flag in ("max_attend_past", "sparse_topk"):
        # a proof on short questions would not see these
        number = getattr(source.module, flag, None) or getattr(attend, flag, None)
        if number is not None:
            raise ConversionError(f"{flag} must be None, but {number} came, which masks keys by a rule of its own")
    normed = source.says("qk_norm", otherwise=False)
    score = DotProduct(
        scale=float(source.says("qk_norm_scale")) if normed else None,
        softcap=attend.logit_softclamp_value if getattr(attend, "softclamp_logits", False) else None,
        sink="learned" if learned else "zero" if zero else None,
    )
    mask = "hw.causal()" if source.says("causal", otherwise=False) else ""
    plan = plan_for(shapes, source.heads("heads", "num_heads"), bias=False, score=score, mask=mask)
    dropout = getattr(getattr(attend, "attn_dropout", None), "p", 0.0)
    notes = () if source.module is not None else (_FLAGS,)
    return replace(plan, dropout=dropout, qk_norm="l2" if normed else None, notes=notes)


def _x_ask(module: Any, plan: LayerPlan, question: Question) -> Tensor:
    options: dict[str, Any] = {} if question.is_self else {"context": question.keys}
    if plan.mask:
        if "causal" not in inspect.signature(module.forward).parameters:
            raise CannotAskError("its causal mask cannot be turned off")
        options["causal"] = False
    if question.allowed is not None:
        options["attn_mask"] = question.allowed
    answer = module(question.query, **options)
    output: Tensor = answer[0] if isinstance(answer, tuple) else answer
    return output


def _x_formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    counts = (plan.num_heads, plan.num_kv_heads, plan.num_kv_heads)
    named = zip(question[1:4], ("to_q", "to_k", "to_v"), counts, strict=True)
    q, k, v = (heads(x, w[f"{name}.weight"], None, count) for x, name, count in named)
    if "attend.head_attn_sink" in w:
        raise CannotAskError("the formula has no learned sink")
    return joined(mixed(q, k, v, question.allowed, tiled=True), w["to_out.weight"], None)


def _timm_plan(source: ConversionSource) -> LayerPlan:
    rows, width = source.shape("qkv.weight")
    shape = (rows // 3, width)
    normed = "q_norm.weight" in source.weights
    plan = plan_for(
        Shapes(shape, shape, shape, source.shape("proj.weight")), source.heads(*HEADS),
        bias="qkv.bias" in source.weights or "proj.bias" in source.weights,
    )  # fmt: skip
    dropout = getattr(getattr(source.module, "attn_drop", None), "p", 0.0)
    if not normed:
        return replace(plan, dropout=dropout)
    norm = getattr(source.module, "q_norm", None)
    eps = getattr(norm, "eps", None) if norm is not None else source.says("eps")
    return replace(plan, dropout=dropout, qk_norm="layer" if "q_norm.bias" in source.weights else "rms", eps=eps)


def _timm_ask(module: Any, _: LayerPlan, question: Question) -> Tensor:
    if not question.is_self:
        raise CannotAskError("it takes no other keys")
    if question.allowed is None:
        answer: Tensor = module(question.query)
    elif "attn_mask" in inspect.signature(module.forward).parameters:
        answer = module(question.query, attn_mask=question.allowed)
    else:
        raise CannotAskError("its forward takes no mask")
    return answer


def _timm_formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    if not question.is_self:
        raise CannotAskError("it takes no other keys")
    parts = torch.nn.functional.linear(question.query, w["qkv.weight"], w.get("qkv.bias"))
    q, k, v = parts.unflatten(-1, (3, plan.num_heads, -1)).permute(2, 0, 3, 1, 4)
    if plan.qk_norm:
        eps = 1e-5 if plan.eps is None else plan.eps
        q, k = (_normed(t, w[f"{n}.weight"], w.get(f"{n}.bias"), eps) for n, t in (("q_norm", q), ("k_norm", k)))
    return joined(mixed(q, k, v, question.allowed), w["proj.weight"], w.get("proj.bias"))


def _normed(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    if bias is None:
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _tune_plan(source: ConversionSource) -> LayerPlan:
    names = [f"{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "output_proj")]
    plan = plan_for(Shapes.of_linears(source, *names), source.heads(*HEADS))
    bias = any(name.endswith("_proj.bias") for name in source.weights)
    dropout = source.says("attn_dropout", otherwise=0.0)
    if source.module is not None and getattr(source.module, "pos_embeddings", None) is None:
        return replace(plan, bias=bias, dropout=dropout)
    rope: Any = getattr(source.module, "pos_embeddings", None)
    base = rope.base if rope is not None else source.says("rope_base", why=Sentence("convert.why.base"))
    scaling = None
    if hasattr(rope, "scale_factor"):
        # the numbers of Llama 3.1, where the module does not keep its own; the proof runs against the module
        scaling = Llama3Scaling(
            rope.scale_factor, low_frequency_factor=getattr(rope, "low_freq_factor", 1),
            high_frequency_factor=getattr(rope, "high_freq_factor", 4),
            original_length=getattr(rope, "old_context_len", 8192),
        )  # fmt: skip
    position = Rotary(base=float(base), pairing="interleaved", scaling=scaling)
    return replace(plan, bias=bias, dropout=dropout, position=position)


def _tune_ask(module: Any, _: LayerPlan, question: Question) -> Tensor:
    allowed = question.allowed
    if allowed is None:
        # without a mask it would mask later keys by itself
        allowed = torch.ones(len(question.query), 1, question.query.shape[1], question.keys.shape[1]).bool()
    answer: Tensor = module(question.query, question.keys, mask=allowed[:, 0].to(question.query.device))
    return answer


def _tune_formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    counts = (plan.num_heads, plan.num_kv_heads, plan.num_kv_heads)
    named = zip(question[1:4], ("q_proj", "k_proj", "v_proj"), counts, strict=True)
    q, k, v = (heads(x, w[f"{name}.weight"], w.get(f"{name}.bias"), count) for x, name, count in named)
    if isinstance(plan.position, Rotary):
        frequencies = torch.tensor(plan.position.frequencies(plan.head_dim), dtype=torch.float64)
        q, k = (turned(t, frequencies, 1.0, "interleaved") for t in (q, k))
    return joined(mixed(q, k, v, question.allowed), w["output_proj.weight"], w.get("output_proj.bias"))


CONVENTIONS = (
    Convention(
        "x_transformers", Sentence("convert.about.x_transformers"), X_TRANSFORMERS, _x_plan,
        _x_formula, ask=_x_ask,
        fits=frozenset({"grouped", "head_dim", "v_head_dim", "kdim", "out_dim", "sink learned"}),
    ),
    Convention(
        "timm", Sentence("convert.about.timm"), TIMM, _timm_plan, _timm_formula, ask=_timm_ask,
        fits=frozenset({"head_dim", "qk_norm RMSNorm", "qk_norm LayerNorm"}),
    ),
    Convention(
        "torchtune", Sentence("convert.about.torchtune"), TORCHTUNE, _tune_plan,
        _tune_formula, ask=_tune_ask, fits=frozenset({"grouped", "head_dim", "rotary", "out_dim"}),
        needs=frozenset({"rotary"}), needs_config=True,
    ),
)  # fmt: skip
