"""Models of transformers three times with the same weights: on headwise, eager, and by the formula in float64."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.compat.huggingface import register
from headwise.testing import plain_attention
from tests.watching.families import FAMILIES, text

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "gpt_oss")
SEQ2SEQ = {"t5": "AutoModelForSeq2SeqLM", "bart": "AutoModelForSeq2SeqLM", "whisper": "AutoModelForSpeechSeq2Seq"}


class Three(NamedTuple):
    ours: Any
    eager: Any
    exact: Any


def three(name: str, auto: str = "AutoModel", dtype: torch.dtype = torch.float32) -> Three:
    """A small random model of a family, with weights so loud that no map is nearly uniform."""
    import transformers

    register()
    torch.manual_seed(5)
    config = FAMILIES[name].config(transformers)
    ours = getattr(transformers, auto).from_config(config, attn_implementation="headwise").eval()
    with torch.no_grad():
        for weight_name, weight in ours.named_parameters():
            if weight.ndim > 1:
                weight.mul_(3.0)
            elif weight_name.endswith("sinks"):
                weight.normal_()
    if hasattr(ours, "set_experts_implementation"):
        # the grouped product of experts knows no float64
        ours.set_experts_implementation("eager")
    ours = ours.to(dtype)
    return Three(ours, copied(ours, "eager", dtype), copied(ours, exactly(), torch.float64))


def copied(model: Any, implementation: str, dtype: torch.dtype) -> Any:
    """The same model with another attention."""
    config = type(model.config).from_dict(model.config.to_dict())
    other = type(model)._from_config(config, attn_implementation=implementation).eval()
    other.load_state_dict(model.state_dict())
    if hasattr(other, "set_experts_implementation"):
        other.set_experts_implementation("eager")
    return other.to(dtype)


def exactly() -> str:
    """The name of an implementation by the formula, with the bool masks of transformers.

    Eager attention is no oracle in float64: most families take their softmax in float32 there, where the least number
    of float64 is -inf, so that padding on the left becomes NaN.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def dense_mask(**pieces: Any) -> Tensor | None:
        return sdpa_mask(**{**pieces, "allow_is_causal_skip": False})

    AttentionInterface.register("formula", _formula)
    AttentionMaskInterface.register("formula", dense_mask)
    return "formula"


def _formula(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **rules: Any) -> tuple[Tensor, None]:
    bias = rules.get("position_bias")
    if mask is not None and mask.is_floating_point():
        # a vision model has added its own scores to no mask
        mask, bias = None, mask
    out = plain_attention(q, k, v, allowed=mask, attn_bias=bias, scale=rules.get("scaling"),
                          softcap=rules.get("softcap"), sink=rules.get("s_aux"))  # fmt: skip
    return out.transpose(1, 2), None


def run(model: Any, inputs: dict[str, Tensor], **options: Any) -> Any:
    """The model's output for inputs in its own dtype."""
    dtype = next(model.parameters()).dtype
    return model(**{name: t.to(dtype) if t.is_floating_point() else t for name, t in inputs.items()}, **options)


def padded(side: str) -> dict[str, Tensor]:
    """Two samples of 9 tokens, the second of which has 3 of padding on one side."""
    inputs = text()
    if side == "left":
        inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    return inputs
