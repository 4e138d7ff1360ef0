"""convert: a layer from the weights or the module of another library, proved; to_state_dict: the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.keras_layers import is_keras, keras_weights
from headwise.compat.conversion.proof import prove
from headwise.compat.conversion.registry import named, recognised
from headwise.compat.conversion.report import Check, Report, Used, used_by
from headwise.compat.conversion.source import ConversionSource, LayerPlan, layout_of
from headwise.compat.conversion.weight_tables import WeightTable, fill
from headwise.errors import ConversionError
from headwise.layer import MultiHeadAttention
from headwise.wording import Sentence

__all__ = ["Conversion", "convert", "to_state_dict"]

Tensors = Mapping[str, Tensor]
# names of the dropout of weights, inside of a layer
WEIGHT_DROPOUTS = ("attention.dropout", "self.dropout", "attn_dropout", "attn_drop", "attend.attn_dropout", "dropout")
BIASES = tuple(f"{name}_proj.bias" for name in ("q", "k", "v", "out"))


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted layer and the report on it, which `print(done.report)` shows in full.

    >>> import torch, headwise as hw
    >>> done = hw.compat.convert(torch.nn.MultiheadAttention(8, 2))
    >>> done.report.proved, done.layer.widths.Hq
    (True, 2)
    """

    layer: MultiHeadAttention
    report: Report

    def __repr__(self) -> str:
        return f"Conversion({self.report.summary})"


def convert(
    source: nn.Module | Mapping[str, Tensor] | Any,
    *,
    convention: str | None = None,
    num_heads: int | None = None,
    config: Any = None,
) -> Conversion:
    """A headwise layer that computes what the source computes, with a report that proves it.

    source: one attention module, or its state_dict, whose keys may share a prefix; a Keras layer too. It stays as it
    is. convention: its name, as `headwise convert --list` shows them; None: recognised by the names of its weights.
    num_heads: query heads; config: the model's configuration, a mapping or an object: both only where a state_dict
    leaves them open. What is unknown, incomplete, ambiguous or cannot be computed raises ConversionError, and so does
    a layer that is further from its source, in float64, than rounding explains.

    >>> import torch, headwise as hw
    >>> theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    >>> ours, x = hw.compat.convert(theirs).layer, torch.randn(3, 5, 8)
    >>> torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-6)
    True
    >>> list(hw.compat.to_state_dict(ours, "d2l"))[:2]
    ['W_q.weight', 'W_k.weight']
    """
    if isinstance(source, MultiHeadAttention):
        raise ConversionError("a source must be another library's, but a headwise layer came: use to_state_dict")
    module = None if isinstance(source, Mapping) else source
    weights = _weights(source)
    fitting, prefix, stripped = recognised(weights, convention, module, config)
    checked_source = ConversionSource(stripped, module, config, num_heads, prefix)
    if len(fitting) == 1:
        return _converted(checked_source, fitting[0], is_named=convention is not None)
    reasons = []
    for candidate in fitting:
        try:
            return _converted(checked_source, candidate, is_named=False)
        except ConversionError as error:
            reasons.append(f"{candidate.name}: {error}")
    raise ConversionError(
        f"a module must compute what one of the conventions with its names does, but {type(module).__name__} computes "
        f"none of {', '.join(candidate.name for candidate in fitting)}: {'; '.join(reasons)}"
    )


def _converted(source: ConversionSource, convention: Convention, *, is_named: bool) -> Conversion:
    """The conversion by one convention. is_named: whether the caller named it."""
    module, prefix, stripped = source.module, source.prefix, source.weights
    _refuse_if_broken(stripped)
    plan = convention.plan(source)
    ours = convention.table.to_headwise(stripped, plan.layout)
    _refuse_if_rounded(convention.table, stripped, ours, plan)
    layer = plan.build(next(iter(ours.values())).device, _one_dtype(ours))
    filled = _fill_biases(layer, ours)
    fill(layer, ours)
    layer.train(bool(getattr(module, "training", True)))
    _freeze_as(layer, convention.table, module, prefix)
    against, checks, notes = prove(source, convention, plan, layer)
    _refuse_unless_equal(convention, against, checks)
    if (
        module is not None
        and against != "the module"
        and not (is_named or convention.is_for(module, None) or is_keras(module))
    ):
        # the formula is what the convention computes, and nothing says that this class computes it
        raise ConversionError(
            f"a module must be run to know what it computes, but {type(module).__name__}, with the names of "
            f"{convention.name!r}, could not be: {notes[0]}; say convention={convention.name!r} if it computes that"
        )
    notes = (*_later_dropouts(module), *notes)
    return Conversion(layer, _report(convention, plan, stripped, filled, against, checks, notes))


def to_state_dict(layer: MultiHeadAttention, convention: str) -> dict[str, Tensor]:
    """The weights of a layer under the names of a convention, packed, turned and ordered as it has them.

    A layer that does what the convention cannot (a rotation, grouped heads, a cap, ...) raises ConversionError; so
    does a bias that it has no room for, unless that is zero. What is no weight there, such as the base of a rotation
    or the eps of a norm, belongs into the other library's configuration. The tensors may share memory with the layer.

    >>> import headwise as hw
    >>> {name: tuple(t.shape) for name, t in hw.compat.to_state_dict(hw.MultiHeadAttention(6, 2), "gpt2").items()}
    {'c_attn.weight': (6, 18), 'c_attn.bias': (18,), 'c_proj.weight': (6, 6), 'c_proj.bias': (6,)}
    """
    return written(layer, convention)[0]


def written(layer: MultiHeadAttention, convention: str) -> tuple[dict[str, Tensor], tuple[Used, ...]]:
    """What `to_state_dict` gives, and of what each of these weights, named with its shape, was made."""
    if not isinstance(layer, MultiHeadAttention):
        raise ConversionError(
            f"the weights of a headwise.MultiHeadAttention are written, but a {type(layer).__name__} came: convert it"
        )
    variants = named(convention)
    reasons = [(candidate, candidate.why_not(layer)) for candidate in variants]
    fitting = [candidate for candidate, why in reasons if not why]
    if not fitting:
        candidate, why = reasons[0][0], "; ".join(reasons[0][1])
        raise ConversionError(
            f"a layer must do what {candidate.name!r} can do, but this one has {why}: choose another convention"
        )
    table = fitting[0].table
    ours = {name: tensor.detach() for name, tensor in layer.state_dict().items()}
    tabled = {name for row in table.rows for name in row.names}
    for name in BIASES:
        if name in ours and name not in tabled:
            largest = ours[name].abs().max().item()
            if largest != 0:
                raise ConversionError(
                    f"{name} must be zero, since {convention!r} has no room for it, but its largest entry is "
                    f"{largest:.3g}: choose a convention with that bias"
                )
            del ours[name]
    groups = {row.group for row in table.rows if any(name in ours for name in row.names)}
    for row in table.rows:
        for name in row.names:
            if name in BIASES and name not in ours and (not row.group or row.group in groups):
                # no bias and a bias of zero compute the same
                weight = ours[name.replace("bias", "weight")]
                ours[name] = weight.new_zeros(weight.shape[0])
    weights = table.from_headwise(ours, layout_of(layer))
    names = {row.theirs: row.names for row in table.rows}
    return weights, tuple(Used(f"{name} {tuple(t.shape)}", names[name]) for name, t in weights.items())


def _weights(source: Any) -> Mapping[str, Tensor]:
    if is_keras(source):
        return keras_weights(source)
    weights = source if isinstance(source, Mapping) else source.state_dict() if isinstance(source, nn.Module) else None
    if weights is None:
        raise ConversionError(
            f"a source must be a module or a state_dict, but a {type(source).__name__} came: give one attention layer"
        )
    return _checked_weights(weights)


def _checked_weights(weights: Mapping[str, Any]) -> Mapping[str, Tensor]:
    if strange := [f"{name} ({type(t).__name__})" for name, t in weights.items() if not isinstance(t, Tensor)]:
        raise ConversionError(
            f"a state_dict must hold tensors, but {', '.join(strange[:4])} came: leave out what is none"
        )
    lazy = [name for name, tensor in weights.items() if is_lazy(tensor)]
    if lazy:
        raise ConversionError(
            f"weights must have values, but {', '.join(lazy[:4])} are lazy still: call the module once, on inputs of "
            "its widths"
        )
    empty = [name for name, tensor in weights.items() if tensor.is_meta]
    if empty:
        raise ConversionError(
            f"weights must have values, but {', '.join(empty[:4])} are on the meta device: load them first"
        )
    return {name: tensor.detach() for name, tensor in weights.items()}


def _one_dtype(ours: dict[str, Tensor]) -> torch.dtype:
    """The dtype that holds every weight without loss."""
    wrong = [f"{name} ({t.dtype})" for name, t in ours.items() if not t.is_floating_point()]
    if wrong:
        raise ConversionError(f"weights must be floating-point, but {', '.join(wrong[:4])} came: dequantise them first")
    return reduce(torch.promote_types, (t.dtype for t in ours.values()))


def _refuse_if_rounded(table: WeightTable, weights: Tensors, ours: Tensors, plan: LayerPlan) -> None:
    """A constant added in halves rounds the weight, where its library adds it in float32."""
    wide = table.to_headwise({name: t.double() for name, t in weights.items()}, plan.layout)
    for row in table.rows:
        for name in row.names if any(step.shifts for step in row.steps) else ():
            weight = ours[name]
            if torch.finfo(weight.dtype).bits < 32 and not torch.equal(weight.double(), wide[name]):
                change = (weight.double() - wide[name]).abs().max().item()
                raise ConversionError(
                    f"1 + {row.theirs} must not be rounded, but in {weight.dtype} it changes by up to {change:.2g}: "
                    "convert the weights in float32, weights = {name: t.float() for ...} or module.float()"
                )


def _fill_biases(layer: MultiHeadAttention, ours: dict[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Zeros for the biases that the layer has and the source has not; what was filled, in words."""
    filled = []
    for name in BIASES:
        if name in layer.state_dict() and name not in ours:
            ours[name] = torch.zeros_like(layer.get_parameter(name))
            filled.append((name, Sentence("convert.why.filled")))
    return tuple(filled)


def _freeze_as(layer: MultiHeadAttention, table: WeightTable, module: Any, prefix: str) -> None:
    """Weights that a module does not train are not trained in the layer either."""
    if isinstance(module, nn.Module):
        frozen = {name for name, weight in module.named_parameters() if not weight.requires_grad}
        for row in table.rows:
            if f"{prefix}{row.theirs}" in frozen:
                for name in row.names:
                    layer.get_parameter(name).requires_grad_(False)


def _later_dropouts(module: Any) -> tuple[str, ...]:
    """What a module drops that are not the weights of attention, in words."""
    inner = module.named_modules() if isinstance(module, nn.Module) else ()
    dropouts = [(name, sub.p) for name, sub in inner if isinstance(sub, nn.Dropout) and sub.p > 0]
    later = [(name, p) for name, p in dropouts if name not in WEIGHT_DROPOUTS]
    return tuple(Sentence("convert.note.dropout", name=name, p=f"{p:g}") for name, p in later)


def _refuse_if_broken(weights: Mapping[str, Tensor]) -> None:
    """With NaN or inf among the weights nothing can be proved."""
    for name, weight in weights.items():
        broken = int((~weight.isfinite()).sum()) if weight.is_floating_point() and not weight.is_meta else 0
        if broken:
            raise ConversionError(
                f"weights must be finite for a proof, but {broken} of the {weight.numel()} entries of {name} are NaN "
                "or inf: load the checkpoint again, or fix them"
            )


def _refuse_unless_equal(convention: Convention, against: str, checks: tuple[Check, ...]) -> None:
    for check in checks:
        if not check.holds:
            names = ("outputs", "gradients of inputs", "gradients of weights")
            rows = zip(names, check.found, check.limits, strict=True)
            over = [
                f"{n} by {d:.3g} where {most:.3g} is rounding" for n, d, most in rows if d is not None and not d <= most
            ]
            raise ConversionError(
                f"a layer must compute what its source computes, but read as {convention.name!r} it differs from "
                f"{against} on {check.question!r}: {', '.join(over)}: the source does something that this "
                "convention does not say, or the heads or config given are not its own"
            )


def _report(
    convention: Convention,
    plan: LayerPlan,
    weights: Mapping[str, Tensor],
    filled: tuple[tuple[str, str], ...],
    against: str,
    checks: tuple[Check, ...],
    notes: tuple[str, ...],
) -> Report:
    account = convention.table.account(weights)
    eps = () if plan.eps is None else (Sentence("convert.note.eps", eps=f"{plan.eps:g}"),)
    return Report(
        convention=convention.name,
        layer=plan.code,
        used=used_by(account.used),
        ignored=tuple((leave.theirs, leave.why) for leave in account.ignored),
        filled=filled,
        against=against,
        checks=checks,
        mask=plan.mask,
        notes=(*plan.notes, *eps, *notes),
    )
