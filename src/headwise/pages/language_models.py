"""Language models: a model with the head by which it predicts tokens, and the probability of a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwise.pages.models import LoadedModel, Progress, load, one_stack
from headwise.wording import refusal

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["load_predicting", "log_probability"]

# the loaders of transformers, by how the names of their architectures end
LOADERS = {
    "ForCausalLM": "AutoModelForCausalLM", "LMHeadModel": "AutoModelForCausalLM", "ForMaskedLM": "AutoModelForMaskedLM",
}  # fmt: skip


def load_predicting(model: str | os.PathLike[str] | None, progress: Progress) -> LoadedModel:
    """A model that predicts tokens; a Refusal where it has no head for that."""
    return load(model, progress, loader=_loader)


def _loader(name: str, config: Any) -> str:
    """The loader of transformers for a model's own architecture."""
    one_stack(name, config)
    architectures = list(getattr(config, "architectures", None) or [type(config).__name__])
    loaders = [
        loader for architecture in architectures for ending, loader in LOADERS.items() if architecture.endswith(ending)
    ]
    if not loaders:
        raise refusal("refuse.no_predictions", model=name, architecture=architectures[0])
    return loaders[0]


def log_probability(loaded: LoadedModel, ids: Tensor, word: str) -> Callable[[Any], Tensor]:
    """What gives the log-probability of a word from the output of a model that reads `ids` (1, L).

    Of a masked language model at its mask token, of any other after the last token. A word that is no single token, and
    a text without one mask token, raise a Refusal.
    """
    token = _token(loaded, word)
    place = -1
    if type(loaded.model).__name__.endswith("ForMaskedLM"):
        mask = loaded.tokenizer.mask_token_id
        places = (ids[0] == mask).nonzero().flatten().tolist()
        if len(places) != 1:
            raise refusal("refuse.one_mask", mask=str(loaded.tokenizer.mask_token), count=len(places))
        place = places[0]

    def metric(out: Any) -> Tensor:
        probabilities: Tensor = out.logits[0, place].float().log_softmax(-1)
        return probabilities[token]

    return metric


def _token(loaded: LoadedModel, word: str) -> int:
    """The one token of a word, with a space before it where vocabularies have it so."""
    encodings = [loaded.tokenizer(form, add_special_tokens=False).input_ids for form in (f" {word}", word)]
    single = [ids[0] for ids in encodings if len(ids) == 1]
    if not single:
        names = loaded.tokenizer.convert_ids_to_tokens(encodings[0])
        raise refusal(
            "refuse.word_tokens", model=loaded.name, word=word, count=len(names), tokens=" ".join(map(str, names))
        )
    return int(single[0])
