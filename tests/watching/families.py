"""Small random models of many Hugging Face families, with inputs, and the weights that they give themselves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDTHS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
SMALL = {**WIDTHS, "vocab_size": 53, "max_position_embeddings": 41}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 6}
SEQ2SEQ = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 31, "decoder_ffn_dim": 29, "vocab_size": 53,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
BLOCK = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}


class Family(NamedTuple):
    config: Callable[[Any], Any]
    inputs: Callable[[], dict[str, Tensor]]
    # whether F.scaled_dot_product_attention can compute it
    has_sdpa: bool = True


def tokens(length: int = 9) -> Tensor:
    return torch.randint(3, 53, (2, length), generator=torch.Generator().manual_seed(length))


def text() -> dict[str, Tensor]:
    """Two samples, the second with padding at its end."""
    keep = torch.ones(2, 9, dtype=torch.long)
    keep[1, 6:] = 0
    return {"input_ids": tokens(), "attention_mask": keep}


def pairs() -> dict[str, Tensor]:
    return {**text(), "decoder_input_ids": tokens(5)}


def pixels() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))}


def sound() -> dict[str, Tensor]:
    features = torch.randn(2, 8, 22, generator=torch.Generator().manual_seed(1))
    return {"input_features": features, "decoder_input_ids": tokens(5)}


FAMILIES = {
    "bert": Family(lambda t: t.BertConfig(**SMALL), text),
    "roberta": Family(lambda t: t.RobertaConfig(**SMALL), text),
    "electra": Family(lambda t: t.ElectraConfig(**SMALL, embedding_size=17), text),
    "distilbert": Family(
        lambda t: t.DistilBertConfig(vocab_size=53, dim=24, n_layers=2, n_heads=4, hidden_dim=37), text
    ),
    "gpt2": Family(lambda t: t.GPT2Config(vocab_size=53, n_positions=41, n_embd=24, n_layer=2, n_head=4), text),
    "llama": Family(lambda t: t.LlamaConfig(**GROUPED), text),
    "mistral": Family(lambda t: t.MistralConfig(**GROUPED, sliding_window=4), text),
    "qwen2": Family(lambda t: t.Qwen2Config(**SMALL, num_key_value_heads=2), text),
    "qwen3": Family(lambda t: t.Qwen3Config(**GROUPED), text),
    "gemma2": Family(
        lambda t: t.Gemma2Config(
            **GROUPED, sliding_window=4, attn_logit_softcapping=0.3, query_pre_attn_scalar=11
        ),
        text,
        has_sdpa=False,
    ),
    "gemma3": Family(lambda t: t.Gemma3TextConfig(**GROUPED, sliding_window=4, query_pre_attn_scalar=11), text),
    "gpt_oss": Family(
        lambda t: t.GptOssConfig(**GROUPED | {"intermediate_size": 40}, **EXPERTS, sliding_window=4),
        text,
        has_sdpa=False,
    ),
    "t5": Family(
        lambda t: t.T5Config(vocab_size=53, d_model=24, d_kv=7, d_ff=37, num_layers=2, num_heads=4,
                             pad_token_id=0, decoder_start_token_id=0),
        pairs,
    ),
    "bart": Family(lambda t: t.BartConfig(**SEQ2SEQ, max_position_embeddings=41), pairs),
    "whisper": Family(
        lambda t: t.WhisperConfig(**SEQ2SEQ, num_mel_bins=8, max_source_positions=11, max_target_positions=13), sound
    ),
    "vit": Family(lambda t: t.ViTConfig(**BLOCK, image_size=12, patch_size=4), pixels),
    "clip": Family(
        lambda t: t.CLIPConfig(text_config={**SMALL, "eos_token_id": 2}, projection_dim=19,
                               vision_config={**BLOCK, "image_size": 12, "patch_size": 4}),
        lambda: {**text(), **pixels()},
    ),
}  # fmt: skip


def build(name: str, implementation: str) -> Any:
    """The model of a family, in eval mode, with loud random weights, so that no map is nearly uniform."""
    import transformers

    torch.manual_seed(5)
    config = FAMILIES[name].config(transformers)
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(3.0)
            elif "sinks" in dict(model.named_parameters()):
                weight.normal_()
    return model


def twin(model: Any, dtype: torch.dtype) -> Any:
    """The same model with eager attention."""
    import transformers

    config = type(model.config).from_dict(model.config.to_dict())
    other = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    other.load_state_dict(model.state_dict())
    if hasattr(other, "set_experts_implementation"):
        # the grouped product of experts knows no float64
        other.set_experts_implementation("eager")
    return other.to(dtype)


def own_weights(out: Any) -> list[Tensor]:
    """The attentions of a model's output, in running order."""
    if getattr(out, "encoder_attentions", None):
        decoder = [t for two in zip(out.decoder_attentions, out.cross_attentions, strict=True) for t in two]
        return [*out.encoder_attentions, *decoder]
    if getattr(out, "vision_model_output", None):
        return [*out.vision_model_output.attentions, *out.text_model_output.attentions]
    return list(out.attentions)


def first(out: Any) -> Tensor:
    """The tensor by which two runs are compared."""
    return out.logits_per_image if "logits_per_image" in out else out.last_hidden_state
