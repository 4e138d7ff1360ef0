"""Classic layers: torch's nn.MultiheadAttention, d2l, the Annotated Transformer, and plain q, k, v, o projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import heads, joined, mixed
from headwise.compat.conversion.module_call import Question
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_steps import PACKED
from headwise.compat.conversion.weight_tables import Ignored, WeightRow, WeightTable
from headwise.layer import DotProduct
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

_QKV = ("q_proj", "k_proj", "v_proj")
_APPENDED = "a learned key and value that every query sees is nothing the layer has: it cannot be converted"
_TORCH_OUT = (
    WeightRow("out_proj.weight", "out_proj.weight"),
    WeightRow("out_proj.bias", "out_proj.bias", group="bias"),
)
_TORCH_BIAS = WeightRow("in_proj_bias", tuple(f"{name}.bias" for name in _QKV), (PACKED,), group="bias")
_REFUSED = (Ignored("bias_k", _APPENDED), Ignored("bias_v", _APPENDED))

TORCH = WeightTable(
    "torch",
    (WeightRow("in_proj_weight", tuple(f"{name}.weight" for name in _QKV), (PACKED,)), _TORCH_BIAS, *_TORCH_OUT),
    refused=_REFUSED,
)
TORCH_SEPARATE = WeightTable(
    "torch_separate",
    (*(WeightRow(f"{name}_weight", f"{name}.weight") for name in _QKV), _TORCH_BIAS, *_TORCH_OUT),
    refused=_REFUSED,
)


def linears(name: str, q: str, k: str, v: str, out: str, *, biased: str = "bias", ignored: Any = ()) -> WeightTable:
    """A table of four Linears under their names. biased: the group of the biases, "": they are always there."""
    pairs = list(zip((q, k, v, out), (*_QKV, "out_proj"), strict=True))
    rows = tuple(WeightRow(f"{foreign}.weight", f"{ours}.weight") for foreign, ours in pairs)
    return WeightTable(
        name,
        rows + tuple(WeightRow(f"{foreign}.bias", f"{ours}.bias", group=biased) for foreign, ours in pairs),
        ignored,
    )


def _torch_plan(source: ConversionSource) -> LayerPlan:
    count = source.heads(*HEADS)
    out = source.shape("out_proj.weight")
    if "in_proj_weight" in source.weights:
        rows, width = source.shape("in_proj_weight")
        q = k = v = (rows // 3, width)
    else:
        q, k, v = (source.shape(f"{name}_weight") for name in _QKV)
    score = DotProduct(sink="zero") if source.says("add_zero_attn", otherwise=False) else DotProduct()
    notes = () if score.sink is None else (Sentence("convert.note.zero_sink"),)
    if source.module is None:
        notes = (Sentence("convert.note.zero_untold"),)
    bias = "out_proj.bias" in source.weights
    return plan_for(Shapes(q, k, v, out), count, bias=bias, dropout=source.dropout, score=score, notes=notes)


def _torch_ask(module: Any, plan: LayerPlan, question: Question) -> Tensor:
    allowed = question.allowed
    blocked = None if allowed is None else ~allowed.expand(-1, plan.num_heads, -1, -1).flatten(0, 1)
    inputs = question[1:4] if module.batch_first else tuple(t.transpose(0, 1) for t in question[1:4])
    out: Tensor = module(*inputs, attn_mask=blocked, need_weights=False)[0]
    return out if module.batch_first else out.transpose(0, 1)


def _torch_formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
    weights = w["in_proj_weight"].chunk(3) if "in_proj_weight" in w else [w[f"{name}_weight"] for name in _QKV]
    biases = w["in_proj_bias"].chunk(3) if "in_proj_bias" in w else (None, None, None)
    q, k, v = (heads(x, m, b, plan.num_heads) for x, m, b in zip(question[1:4], weights, biases, strict=True))
    out = mixed(q, k, v, question.allowed, zero_sink=plan.score.sink == "zero")
    return joined(out, w["out_proj.weight"], w.get("out_proj.bias"))


def four_linears(table: WeightTable) -> tuple[Any, Any]:
    """The plan and the formula of four Linears in the order query, key, value, output, biased or not."""
    names = [row.theirs.removesuffix(".weight") for row in table.rows if row.theirs.endswith(".weight")]

    def plan(source: ConversionSource) -> LayerPlan:
        shapes = Shapes.of_linears(source, *(f"{name}.weight" for name in names))
        bias = any(row.theirs in source.weights for row in table.rows if row.theirs.endswith(".bias"))
        return plan_for(shapes, source.heads(*HEADS), bias=bias, dropout=source.dropout)

    def formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
        counts = (plan.num_heads, plan.num_kv_heads, plan.num_kv_heads)
        q, k, v = (
            heads(x, w[f"{name}.weight"], w.get(f"{name}.bias"), count)
            for x, name, count in zip(question[1:4], names, counts, strict=False)
        )
        out = mixed(q, k, v, question.allowed)
        return joined(out, w[f"{names[3]}.weight"], w.get(f"{names[3]}.bias"))

    return plan, formula


D2L = linears("d2l", "W_q", "W_k", "W_v", "W_o")
ANNOTATED = linears("annotated", *(f"linears.{n}" for n in range(4)))
VIT = WeightTable(
    "vit",
    (
        *(WeightRow(f"{name}.weight", f"{name}.weight") for name in _QKV),
        WeightRow("o_proj.weight", "out_proj.weight"),
        *(WeightRow(f"{name}.bias", f"{name}.bias", group="bias of q, k, v") for name in _QKV),
        WeightRow("o_proj.bias", "out_proj.bias"),
    ),
)


def of_four_linears(table: WeightTable, about: Sentence, **more: Any) -> Convention:
    plan, formula = four_linears(table)
    return Convention(table.name, about, table, plan, formula, **more)


CONVENTIONS = (
    Convention(
        "torch", Sentence("convert.about.torch"), TORCH, _torch_plan, _torch_formula,
        fits=frozenset({"sink zero"}), modules=("MultiheadAttention",), ask=_torch_ask,
    ),
    Convention(
        "torch_separate", Sentence("convert.about.torch_separate"), TORCH_SEPARATE, _torch_plan, _torch_formula,
        fits=frozenset({"sink zero", "kdim", "vdim"}), modules=("MultiheadAttention",), ask=_torch_ask,
    ),
    of_four_linears(D2L, Sentence("convert.about.book"), aliases=("note_002", "note_003"),
                fits=frozenset({"kdim", "vdim", "head_dim", "out_dim"})),
    of_four_linears(ANNOTATED, Sentence("convert.about.annotated"),
                aliases=("note_004",), modules=("MultiHeadedAttention",)),
    of_four_linears(VIT, Sentence("convert.about.vit"), aliases=("note_000",),
                    fits=frozenset({"head_dim"}), modules=("ViTAttention",)),
)  # fmt: skip
