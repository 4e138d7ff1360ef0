"""Keras' MultiHeadAttention and GroupQueryAttention: kernels (in, heads, width), or the Linears of headwise's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from headwise.compat.conversion.classic_layers import four_linears, linears
from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.formulas import mixed
from headwise.compat.conversion.module_call import CannotAskError, Question
from headwise.compat.conversion.source import HEADS, ConversionSource, LayerPlan, Shapes, plan_for
from headwise.compat.conversion.weight_steps import EINSUM_BIAS, EINSUM_KEY, EINSUM_OUT, EINSUM_QUERY, EINSUM_VALUE
from headwise.compat.conversion.weight_tables import Ignored, WeightRow, WeightTable
from headwise.compat.keras.heads import HeadSizes
from headwise.errors import ConversionError
from headwise.wording import Sentence

__all__ = ["CONVENTIONS", "is_keras", "keras_weights", "widened_keras"]

_GATE = "the gate multiplies the output by a function of the query, which the layer has not: it cannot be converted"
KERAS = WeightTable(
    "keras",
    (
        WeightRow("query/kernel", "q_proj.weight", (EINSUM_QUERY,)),
        WeightRow("key/kernel", "k_proj.weight", (EINSUM_KEY,)),
        WeightRow("value/kernel", "v_proj.weight", (EINSUM_VALUE,)),
        WeightRow("attention_output/kernel", "out_proj.weight", (EINSUM_OUT,)),
        *(
            WeightRow(f"{name}/bias", f"{name[0]}_proj.bias", (step,), group="bias")
            for name, step in EINSUM_BIAS.items()
        ),
        WeightRow("attention_output/bias", "out_proj.bias", group="bias"),
    ),
    refused=(Ignored("gate/kernel", _GATE), Ignored("gate/bias", _GATE)),
)
_PARTS = ("query", "key", "value", "attention_output")
KERAS_LINEARS = replace(
    linears("keras_linears", *_PARTS), refused=(Ignored("gate.weight", _GATE), Ignored("gate.bias", _GATE))
)


def is_keras(module: Any) -> bool:
    """Whether a module is a layer of Keras, which under its torch backend is an nn.Module too."""
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__)


def keras_weights(layer: Any) -> dict[str, Tensor]:
    """The weights of a built layer as tensors, named as from the layer itself: query/kernel."""
    if not layer.built:
        raise ConversionError("a Keras layer must have weights, but this one was never built: call it once")
    return {_own_name(layer, weight): _tensor(weight.value) for weight in layer.weights if "seed" not in weight.path}


def widened_keras(layer: Any, widths: tuple[int, int, int]) -> tuple[Any, dict[str, Tensor]]:
    """A float64 copy of a layer for inputs of these widths (query, keys, values), and its variables by their names.

    Only under Keras' torch backend, where gradients can be asked for; else CannotAskError.
    """
    backend = import_module("keras").backend

    if backend.backend() != "torch":
        raise CannotAskError(f"Keras runs on {backend.backend()}, and only on torch can gradients be asked for")
    twin = type(layer).from_config({**layer.get_config(), "dtype": "float64"})
    query, keys, values = ((None, None, width) for width in widths)
    twin.build(query, values, keys)
    for narrow, wide in zip(layer.weights, twin.weights, strict=True):
        wide.assign(narrow.value)
    return twin, {_own_name(twin, weight): weight.value for weight in twin.weights if "seed" not in weight.path}


def _own_name(layer: Any, weight: Any) -> str:
    name: str = weight.path.removeprefix(f"{layer.path or layer.name}/")
    return "/".join(name.split("/")[-2:])


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    import numpy

    return torch.from_numpy(numpy.array(value))


def _plan(source: ConversionSource) -> LayerPlan:
    kernels = [source.weights[f"{name}/kernel"] for name in _PARTS]
    if any(kernel.ndim != 3 for kernel in kernels):
        came = ", ".join(str(tuple(kernel.shape)) for kernel in kernels)
        raise ConversionError(
            f"kernels of Keras must be (in, heads, width) and (heads, width, out), but {came} came: attention over "
            "several axes is not known"
        )
    q, k, v = ((kernel[0].numel(), kernel.shape[0]) for kernel in kernels[:3])
    out = kernels[3]
    shapes = Shapes(q, k, v, (out.shape[2], out.shape[0] * out.shape[1]))
    count = kernels[0].shape[1]
    if source.num_heads not in (None, count):
        raise ConversionError(
            f"num_heads must be the {count} of query/kernel, but {source.num_heads} came: leave it out"
        )
    dropout = source.says("_dropout", "dropout", otherwise=0.0)
    bias = "query/bias" in source.weights
    return plan_for(shapes, count, bias=bias, dropout=dropout, mask=_window(source))


def _window(source: ConversionSource) -> str:
    """What the layer masks by itself, as code."""
    window = source.says("_sliding_window", "sliding_window", otherwise=None)
    return f"hw.window(before={window - 1}, after={window - 1})" if window else ""


def _ask(module: Any, plan: LayerPlan, question: Question) -> Tensor:
    if plan.mask:
        raise CannotAskError("its window cannot be turned off")
    mask = None if question.allowed is None else question.allowed[:, 0]
    answer: Tensor = module(question.query, question.values, question.keys, attention_mask=mask)
    return answer


def _formula(w: Mapping[str, Tensor], _: LayerPlan, question: Question) -> Tensor:
    q, k, v = (
        torch.einsum("bli,ihd->bhld", x, w[f"{name}/kernel"])
        for x, name in zip(question[1:4], ("query", "key", "value"), strict=True)
    )
    if "query/bias" in w:
        q, k, v = (t + w[f"{name}/bias"][:, None] for t, name in ((q, "query"), (k, "key"), (v, "value")))
    out = torch.einsum("bhld,hdo->blo", mixed(q, k, v, question.allowed), w["attention_output/kernel"])
    return out + w["attention_output/bias"] if "attention_output/bias" in w else out


def _linears_plan(source: ConversionSource) -> LayerPlan:
    output = source.says("output_shape", otherwise=())
    if isinstance(output, list | tuple) and len(output) > 1:
        raise ConversionError(f"output_shape must be one width, but {tuple(output)} came: give it one axis")
    shapes = Shapes.of_linears(source, *(f"{name}.weight" for name in _PARTS))
    # headwise's own class has them all
    sizes = getattr(source.module, "heads", None)
    count = sizes.Hq if isinstance(sizes, HeadSizes) and source.num_heads in (None, sizes.Hq) else source.heads(*HEADS)
    bias = "query.bias" in source.weights
    return plan_for(shapes, count, bias=bias, dropout=source.dropout, mask=_window(source))


def _linears_ask(module: Any, _: LayerPlan, question: Question) -> Tensor:
    # the layer has no window of its own, and `module` is a copy
    module.sliding_window = None
    mask = None if question.allowed is None else question.allowed[:, 0]
    answer: Tensor = module(question.query, question.values, question.keys, attention_mask=mask)
    return answer


_FITS = frozenset({"grouped", "head_dim", "v_head_dim", "kdim", "vdim", "out_dim"})
CONVENTIONS = (
    Convention("keras", Sentence("convert.about.keras"), KERAS, _plan, _formula, ask=_ask, fits=_FITS),
    Convention(
        "keras_linears", Sentence("convert.about.keras_linears"), KERAS_LINEARS, _linears_plan,
        four_linears(KERAS_LINEARS)[1], ask=_linears_ask, fits=_FITS,
    ),
)  # fmt: skip
