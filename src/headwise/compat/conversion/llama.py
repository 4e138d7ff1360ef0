"""Hugging Face's Llama, Mistral, Qwen and Gemma: rotation, grouped heads, norms of queries and keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import heads, joined, mixed, turned
from headwise.compat.conversion.module_call import CannotAskError, Question, additive
from headwise.compat.conversion.rope import kind_of_layer, rotary
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_steps import ONE_MORE, paired
from headwise.compat.conversion.weight_tables import WeightRow, WeightStep, WeightTable
from headwise.errors import ConversionError
from headwise.layer import DotProduct
from headwise.positions import Rotary
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

_HALF = (paired("half"),)
_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj")


def _table(name: str, *, biased: Mapping[str, str], norm: tuple[WeightStep, ...] | None = None) -> WeightTable:
    """biased: which projections may have a bias, and the group it belongs to; norm: the steps of the norms' weights."""
    rows = []
    for foreign in _NAMES:
        ours = "out_proj" if foreign == "o_proj" else foreign
        steps = _HALF if foreign in ("q_proj", "k_proj") else ()
        rows.append(WeightRow(f"{foreign}.weight", f"{ours}.weight", steps))
        if foreign in biased:
            rows.append(WeightRow(f"{foreign}.bias", f"{ours}.bias", steps, group=biased[foreign]))
    if norm is not None:
        rows += [WeightRow(f"{name}.weight", f"{name}.weight", norm) for name in ("q_norm", "k_norm")]
    return WeightTable(name, tuple(rows))


def _plan(source: ConversionSource) -> LayerPlan:
    shapes = Shapes.of_linears(source, *(f"{name}.weight" for name in _NAMES))
    count = source.heads(*HEADS)
    plan = plan_for(shapes, count, head_dim=source.says("head_dim", otherwise=None), dropout=source.dropout)
    kind = kind_of_layer(source)
    spec = rotary(source, kind)
    scalar = source.says("query_pre_attn_scalar", otherwise=None)
    scale = None if scalar is None or scalar == plan.head_dim else scalar**-0.5
    softcap = source.says("attn_logit_softcapping", otherwise=None)
    normed = "q_norm.weight" in source.weights
    plan = replace(
        plan,
        bias=any(name.endswith("_proj.bias") for name in source.weights),
        score=DotProduct(scale, softcap),
        position=spec,
        qk_norm="rms" if normed else None,
        eps=source.says("rms_norm_eps") if normed else None,
        mask=_mask(source, kind),
    )
    _check_against_source(source, plan, kind)
    return plan


def _mask(source: ConversionSource, kind: str | None) -> str:
    if source.says("use_bidirectional_attention", otherwise=False):
        return ""
    keys = source.says("sliding_window", otherwise=None)
    slides = kind == "sliding_attention" if kind is not None else source.says("use_sliding_window", otherwise=True)
    return f"hw.causal() & hw.window(keys={keys})" if keys and slides else "hw.causal()"


def _check_against_source(source: ConversionSource, plan: LayerPlan, kind: str | None) -> None:
    """The angles that the library itself makes of a module's configuration must be those of the plan."""
    home = sys.modules.get(type(source.module).__module__)
    name = type(source.module).__name__.replace("Attention", "RotaryEmbedding")
    embedding_class = getattr(home, name, None)
    spec = plan.position
    if source.module is None or not isinstance(spec, Rotary):
        return
    if embedding_class is None:
        raise ConversionError(f"the angles of a rotation must be checked, but the library has no {name} to ask")
    embedding = embedding_class(source.module.config)
    prefix = f"{kind}_" if hasattr(embedding, f"{kind}_inv_freq") else ""
    angles = getattr(embedding, f"{prefix}inv_freq").double().cpu()
    amplitude = getattr(embedding, f"{prefix}attention_scaling")
    wanted = torch.tensor(spec.frequencies(plan.head_dim), dtype=torch.float64)
    ours = 1.0 if spec.scaling is None else spec.scaling.amplitude
    same = angles.shape == wanted.shape and bool(((angles - wanted).abs() <= 1e-5 * wanted).all())
    if not same or abs(amplitude - ours) > 1e-6 * ours:
        raise ConversionError(
            f"the angles of {spec} must be those of {name}, but the slowest is {wanted[-1]:g} in place of "
            f"{angles[-1]:g} and the amplitude {ours:g} in place of {amplitude:g}: this way of scaling is not known"
        )


def _ask(module: Any, plan: LayerPlan, question: Question) -> Tensor:
    if not question.is_self or not isinstance(plan.position, Rotary):
        raise CannotAskError("its forward takes no other keys")
    x, spec = question.query, plan.position
    frequencies = torch.tensor(spec.frequencies(plan.head_dim), dtype=x.dtype, device=x.device)
    angles = (torch.arange(x.shape[1], dtype=x.dtype, device=x.device)[:, None] * frequencies).repeat(1, 2)[None]
    amplitude = 1.0 if spec.scaling is None else spec.scaling.amplitude
    tables = (angles.cos() * amplitude, angles.sin() * amplitude)
    answer: Tensor = module(x, position_embeddings=tables, attention_mask=additive(question))[0]
    return answer


def _formula_with(more: float) -> Any:
    """The formula, with `more` added to the weight of a norm."""

    def formula(w: Mapping[str, Tensor], plan: LayerPlan, question: Question) -> Tensor:
        x, spec = question.query, plan.position
        counts = (plan.num_heads, plan.num_kv_heads, plan.num_kv_heads)
        q, k, v = (heads(x, w[f"{n}.weight"], w.get(f"{n}.bias"), c) for n, c in zip(_NAMES, counts, strict=False))
        if plan.qk_norm:
            eps = 0.0 if plan.eps is None else plan.eps
            q, k = (
                t * (t.square().mean(-1, keepdim=True) + eps).rsqrt() * (w[f"{n}.weight"] + more)
                for n, t in (("q_norm", q), ("k_norm", k))
            )
        if isinstance(spec, Rotary):
            angles = torch.tensor(spec.frequencies(plan.head_dim), dtype=torch.float64)
            amplitude = 1.0 if spec.scaling is None else spec.scaling.amplitude
            q, k = (turned(t, angles, amplitude, spec.pairing) for t in (q, k))
        out = mixed(q, k, v, question.allowed, scale=plan.score.scale, softcap=plan.score.softcap)
        return joined(out, w["o_proj.weight"], w.get("o_proj.bias"))

    return formula


_ALL = dict.fromkeys(_NAMES, "bias")
_FITS = frozenset({"grouped", "head_dim", "rotary"})
_GEMMA = _FITS | {"scale", "softcap"}
_NORM = "qk_norm RMSNorm"


def _family(
    table: WeightTable, about: Sentence, classes: str, *, fits: frozenset[str] = _FITS, **more: Any
) -> Convention:
    formula = _formula_with(1.0 if any(ONE_MORE in row.steps for row in table.rows) else 0.0)
    modules = tuple(f"{name}Attention" for name in classes.split())
    return Convention(
        table.name, about, table, _plan, formula, fits=fits, modules=modules, needs=frozenset({"rotary"}),
        needs_config=True, ask=_ask, **more,
    )  # fmt: skip


CONVENTIONS = (
    _family(_table("llama", biased=_ALL), Sentence("convert.about.llama"), "Llama Mistral", aliases=("mistral",)),
    _family(
        _table("qwen2", biased=dict.fromkeys(_NAMES[:3], "")), Sentence("convert.about.qwen_two"), "Qwen2"
    ),
    _family(
        _table("qwen3", biased=_ALL, norm=_HALF), Sentence("convert.about.qwen_three"), "Qwen3",
        fits=_FITS | {_NORM},
    ),
    _family(_table("gemma", biased=_ALL), Sentence("convert.about.gemma"), "Gemma"),
    _family(
        _table("gemma2", biased=_ALL), Sentence("convert.about.gemma_two"), "Gemma2", fits=_GEMMA
    ),
    _family(
        _table("gemma3", biased=_ALL, norm=(ONE_MORE, *_HALF)), Sentence("convert.about.gemma_three"),
        "Gemma3", fits=_GEMMA | {_NORM}, aliases=("gemma3_text",),
    ),
)  # fmt: skip
