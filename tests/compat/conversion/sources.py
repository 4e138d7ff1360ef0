"""One small module of each convention, its weights drawn anew, and what its state_dict leaves open."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from tests.compat.conversion import own_classes as own

COMMON = {
    "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 17, "vocab_size": 50,
}  # fmt: skip
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 10, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIDES = {
    "d_model": 24, "encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17, "vocab_size": 50, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
KINDS = ["sliding_attention", "full_attention"]


class Made(NamedTuple):
    """build: the module. convention: the name of its table. bare: what convert needs beside its state_dict."""

    build: Callable[[], nn.Module]
    convention: str
    bare: dict[str, Any]


def drawn(module: nn.Module, std: float = 0.4) -> nn.Module:
    """The module with every weight random: fresh biases are zero, and a swap of two zeros would not show."""
    generator = torch.Generator().manual_seed(3)
    for weight in module.parameters():
        nn.init.normal_(weight, std=std, generator=generator)
    return module


def hugging_face(kind: str, path: str, **options: Any) -> Callable[[], nn.Module]:
    """A module of a Hugging Face model: kind "Bert", path "encoder.layer.0.attention"."""

    def build() -> nn.Module:
        import transformers

        model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**options))
        return model.get_submodule(path)

    return build


def decoder(kind: str, layer: int = 1, **options: Any) -> Callable[[], nn.Module]:
    return hugging_face(kind, f"layers.{layer}.self_attn", **{**GROUPED, **options})


def x_transformers(**options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from x_transformers.x_transformers import Attention

        return Attention(24, dim_head=5, **options)

    return build


def t5(path: str) -> Callable[[], nn.Module]:
    sizes = {"d_model": 24, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 17, "vocab_size": 50}
    return hugging_face("T5", path, **sizes)


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 32.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0}
GPT2 = {"n_embd": 24, "n_head": 3, "n_layer": 2, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
MAIN = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 17}
TEXT = {**MAIN, "vocab_size": 50}

INSTALLED = {
    "torch": Made(lambda: nn.MultiheadAttention(12, 3, batch_first=True), "torch", {"num_heads": 3}),
    "torch, length first": Made(lambda: nn.MultiheadAttention(12, 3), "torch", {"num_heads": 3}),
    "torch, no bias": Made(lambda: nn.MultiheadAttention(12, 3, bias=False), "torch", {"num_heads": 3}),
    "torch, widths": Made(lambda: nn.MultiheadAttention(12, 3, kdim=7, vdim=5), "torch_separate", {"num_heads": 3}),
    "first note": Made(lambda: own.FirstNote(12, 3), "vit", {"num_heads": 3, "convention": "note_000"}),
    "second note": Made(lambda: own.SecondNote(12, 3), "d2l", {"num_heads": 3}),
    "d2l": Made(lambda: own.BookMultiHeadAttention(7, 5, 9, 12, 3), "d2l", {"num_heads": 3}),
    "d2l, one width": Made(lambda: own.BookMultiHeadAttention(12, 12, 12, 12, 3), "d2l", {"num_heads": 3}),
    "annotated": Made(lambda: own.MultiHeadedAttention(3, 12), "annotated", {"num_heads": 3}),
    "timm": Made(lambda: own.TimmAttention(12, 3), "timm", {"num_heads": 3}),
    "timm, biased": Made(lambda: own.TimmAttention(12, 3, qkv_bias=True), "timm", {"num_heads": 3}),
    "timm, layer norms": Made(
        lambda: own.TimmAttention(12, 3, norm=nn.LayerNorm), "timm", {"num_heads": 3, "config": {"eps": 1e-3}}
    ),
    "timm, rms norms": Made(
        lambda: own.TimmAttention(12, 3, norm=nn.RMSNorm), "timm", {"num_heads": 3, "config": {"eps": 1e-3}}
    ),
    "torchtune": Made(
        lambda: own.TuneMultiHeadAttention(24, 6, 3, own.InterleavedRotation(500)), "torchtune",
        {"num_heads": 6, "config": {"rope_base": 500}},
    ),
}  # fmt: skip

TRANSFORMERS = {
    "bert": Made(hugging_face("Bert", "encoder.layer.0.attention", **TEXT), "bert", {"num_heads": 3}),
    "roberta": Made(hugging_face("Roberta", "encoder.layer.1.attention", **TEXT), "bert", {"num_heads": 3}),
    "bert, cross": Made(
        hugging_face("Bert", "encoder.layer.0.crossattention", is_decoder=True, add_cross_attention=True, **TEXT),
        "bert", {"num_heads": 3},
    ),
    "gpt2": Made(hugging_face("GPT2", "h.0.attn", **GPT2), "gpt2", {"num_heads": 3}),
    "gpt2, scaled by layer": Made(
        hugging_face("GPT2", "h.1.attn", scale_attn_by_inverse_layer_idx=True, **GPT2), "gpt2",
        {"config": {"n_head": 3, "scale_attn_by_inverse_layer_idx": True, "layer_idx": 1}},
    ),
    "gpt2, cross": Made(
        hugging_face("GPT2", "h.1.crossattention", add_cross_attention=True, **GPT2), "gpt2_cross", {"num_heads": 3}
    ),
    "llama": Made(decoder("Llama"), "llama", {}),
    "llama, biased, llama3": Made(decoder("Llama", attention_bias=True, rope_parameters=LLAMA3), "llama", {}),
    "llama, yarn": Made(decoder("Llama", rope_parameters=YARN), "llama", {}),
    "llama, linear": Made(decoder("Llama", rope_parameters=LINEAR), "llama", {}),
    "mistral": Made(decoder("Mistral", sliding_window=5), "llama", {}),
    "qwen2": Made(decoder("Qwen2"), "qwen2", {}),
    "qwen2, sliding": Made(
        decoder("Qwen2", use_sliding_window=True, sliding_window=3, max_window_layers=1), "qwen2", {}
    ),
    "qwen3": Made(decoder("Qwen3"), "qwen3", {}),
    "gemma": Made(decoder("Gemma"), "gemma", {}),
    "gemma2": Made(decoder("Gemma2", layer_types=KINDS, sliding_window=4), "gemma2", {}),
    "gemma2, sliding": Made(decoder("Gemma2", 0, layer_types=KINDS, sliding_window=4), "gemma2", {}),
    "gemma3": Made(decoder("Gemma3Text", layer_types=KINDS, sliding_window=4), "gemma3", {}),
    "gemma3, sliding": Made(decoder("Gemma3Text", 0, layer_types=KINDS, sliding_window=4), "gemma3", {}),
    "t5": Made(
        t5("encoder.block.0.layer.0.SelfAttention"), "t5",
        {"num_heads": 3, "config": {"relative_attention_max_distance": 128, "is_decoder": False}},
    ),
    "t5, second layer": Made(t5("encoder.block.1.layer.0.SelfAttention"), "t5", {"num_heads": 3}),
    "t5, decoder": Made(
        t5("decoder.block.0.layer.0.SelfAttention"), "t5",
        {"num_heads": 3, "config": {"relative_attention_max_distance": 128, "is_decoder": True}},
    ),
    "t5, cross": Made(t5("decoder.block.0.layer.1.EncDecAttention"), "t5", {"num_heads": 3}),
    "vit": Made(hugging_face("ViT", "layers.0.attention", **MAIN), "vit", {"num_heads": 3, "convention": "vit"}),
    "vit, less bias": Made(
        hugging_face("ViT", "layers.0.attention", qkv_bias=False, **MAIN), "vit", {"num_heads": 3, "convention": "vit"}
    ),
    "clip": Made(hugging_face("CLIPText", "encoder.layers.0.self_attn", **TEXT), "bart", {"num_heads": 3}),
    "bart": Made(hugging_face("Bart", "encoder.layers.0.self_attn", **SIDES), "bart", {"num_heads": 3}),
    "bart, decoder": Made(hugging_face("Bart", "decoder.layers.0.self_attn", **SIDES), "bart", {"num_heads": 4}),
    "bart, cross": Made(hugging_face("Bart", "decoder.layers.0.encoder_attn", **SIDES), "bart", {"num_heads": 4}),
    "whisper": Made(hugging_face("Whisper", "encoder.layers.0.self_attn", **SIDES), "whisper", {"num_heads": 3}),
    "whisper, cross": Made(
        hugging_face("Whisper", "decoder.layers.0.encoder_attn", **SIDES), "whisper", {"num_heads": 4}
    ),
}  # fmt: skip

X_TRANSFORMERS = {
    "tile order": Made(
        x_transformers(heads=6, kv_heads=2, value_dim_head=7, dim_out=11), "x_transformers", {"num_heads": 6}
    ),
    "one key head": Made(x_transformers(heads=6, one_kv_head=True, dim_context=9), "x_transformers", {"num_heads": 6}),
    "causal": Made(x_transformers(heads=6, kv_heads=3, causal=True), "x_transformers", {"num_heads": 6}),
}
# what no weight tells: only the module can be converted
X_MODULES = {
    "zero key": Made(x_transformers(heads=6, kv_heads=3, add_zero_kv=True), "x_transformers", {}),
    "sink": Made(x_transformers(heads=6, kv_heads=3, head_learned_sink=True), "x_transformers", {}),
    "cap": Made(x_transformers(heads=6, softclamp_logits=True, logit_softclamp_value=2.0), "x_transformers", {}),
    "l2": Made(x_transformers(heads=6, kv_heads=2, qk_norm=True), "x_transformers", {}),
}
