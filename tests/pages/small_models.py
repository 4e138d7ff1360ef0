"""Small models with random weights, saved as Hugging Face does: each test reads them from their folder."""

from pathlib import Path

import torch

# heads, layers, width, inner width, positions: all different
BERT = {
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "hidden_size": 24,
    "intermediate_size": 17,
    "max_position_embeddings": 40,
}
GPT2 = {"n_head": 3, "n_layer": 2, "n_embd": 24, "n_positions": 61}
SENTENCE = "the tired animal was it"


def byte_level_tokenizer():
    """A tokenizer whose tokens are bytes and a few words: every text can be read by it."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([SENTENCE] * 9, vocab_size=300, special_tokens=["<s>", "</s>", "<pad>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def save(folder: Path, model: torch.nn.Module, *, tokenizer: bool = True) -> Path:
    model.save_pretrained(folder)
    if tokenizer:
        byte_level_tokenizer().save_pretrained(folder)
    return folder


def build(kind: str, **sizes: object) -> torch.nn.Module:
    """A model of transformers by its name (Bert, GPT2, ...), with weights far enough from zero to tell heads apart."""
    import transformers

    torch.manual_seed(5)
    model = getattr(transformers, f"{kind}Model")(
        getattr(transformers, f"{kind}Config")(**{"vocab_size": 301, **sizes})
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model.eval()
