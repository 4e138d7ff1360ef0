"""Rotation as Hugging Face's configurations describe it, in the words of transformers 5 and of older files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.compat.conversion.source import ConversionSource
from headwise.errors import ConversionError
from headwise.positions import LinearScaling, Llama3Scaling, Rotary, RotaryScaling, YarnScaling
from headwise.wording import Sentence

__all__ = ["kind_of_layer", "rotary"]

_BASE = Sentence("convert.why.base")
_YARN = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor")


def kind_of_layer(source: ConversionSource) -> str | None:
    """ "full_attention" or "sliding_attention" where layers differ, None where they do not."""
    kind: str | None = getattr(source.module, "layer_type", None)
    if kind is not None:
        return kind
    kinds = source.says("layer_types", otherwise=None)
    if not kinds:
        return None
    if len(set(kinds)) == 1:
        return str(kinds[0])
    if source.layer is None or source.layer >= len(kinds):
        raise ConversionError(
            f"layers of {len(kinds)} differ here ({', '.join(sorted(set(kinds)))}), so the layer's number must be "
            "known: keep it in the keys, as in model.layers.3.self_attn.q_proj.weight"
        )
    return str(kinds[source.layer])


def rotary(source: ConversionSource, kind: str | None) -> Rotary:
    """The rotation of a layer. One that changes with the length, or is not known, raises ConversionError."""
    parameters: Any = source.says("rope_parameters", otherwise=None)
    if parameters is None:
        parameters = dict(source.says("rope_scaling", otherwise=None) or {})
        parameters["rope_theta"] = source.says("rope_theta", why=_BASE)
        local = source.says("rope_local_base_freq", otherwise=None)
        if local is not None and kind == "sliding_attention":
            parameters = {"rope_theta": local}
    elif kind is not None and isinstance(parameters.get(kind), Mapping):
        parameters = parameters[kind]
    if "rope_theta" not in parameters:
        raise ConversionError(
            f"rope_theta must be known, but {_BASE} and only {sorted(parameters)} came: give it in config="
        )
    part = parameters.get("partial_rotary_factor") or source.says("partial_rotary_factor", otherwise=1.0)
    if part != 1.0:
        raise ConversionError(
            f"every feature of a head must turn, but partial_rotary_factor={part} came: this convention is not known"
        )
    return Rotary(base=float(parameters["rope_theta"]), scaling=_scaling(parameters, source))


def _scaling(parameters: Mapping[str, Any], source: ConversionSource) -> RotaryScaling | None:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(parameters["factor"])
    if kind == "llama3":
        return Llama3Scaling(
            parameters["factor"],
            low_frequency_factor=parameters["low_freq_factor"],
            high_frequency_factor=parameters["high_freq_factor"],
            original_length=parameters["original_max_position_embeddings"],
        )
    unknown = sorted(set(parameters) - {*_YARN, "rope_type", "type", "rope_theta", "partial_rotary_factor"})
    if kind == "yarn" and not unknown:
        length = parameters.get("original_max_position_embeddings") or source.says("max_position_embeddings")
        names = ("beta_fast", "beta_slow", "attention_factor")
        ramp = {name: parameters[name] for name in names if parameters.get(name) is not None}
        return YarnScaling(parameters["factor"], length, **ramp)
    raise ConversionError(
        f"rope_type must be default, linear, llama3 or yarn, but {kind!r} came"
        f"{f' with {unknown}' if unknown else ''}: this way of scaling is not known"
    )
