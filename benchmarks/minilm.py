"""Cases of the pretrained model that comes with headwise: all-MiniLM-L6-v2, 6 layers of 12 heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.harness import Absent, Case
from headwise.pages.models import embedded_folder, is_installed, quiet
from headwise.wording import Refusal, say

# makes a case of the model, the ids (1, L) of its input, and what the case says of their shape
Make = Callable[[nn.Module, Tensor, str], Case]


def of_minilm(make: Make, name: str, beside: str, *, tokens: int) -> Case | Absent:
    """The case that `make` builds of the model and as many random tokens, or one line on what is not installed."""
    shape = f"MiniLM, B=1 L={tokens}"
    if not is_installed("transformers"):
        return Absent(name, beside, shape, f"not installed: {say('install.extra', extra='models')}")
    try:
        folder = embedded_folder()
    except Refusal as error:
        return Absent(name, beside, shape, str(error))
    from transformers import AutoModel

    with quiet():
        model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    ids = torch.randint(1000, model.config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(0))
    return make(model, ids, shape)
