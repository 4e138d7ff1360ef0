"""Hugging Face's BERT and its kin, ViT's files, CLIP, BART and Whisper: scaled dot products and nothing more."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.compat.conversion.calling import CannotAskError, Question, additive
from headwise.compat.conversion.classic import linears, of_four_linears
from headwise.compat.conversion.mapping import Ignored, Row, Table
from headwise.compat.conversion.source import Plan
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

_NOT_ATTENTION = Sentence("convert.why.not_attention")

BERT = Table(
    "bert",
    rows=(
        Row("self.query.weight", "q_proj.weight"),
        Row("self.query.bias", "q_proj.bias"),
        Row("self.key.weight", "k_proj.weight"),
        Row("self.key.bias", "k_proj.bias"),
        Row("self.value.weight", "v_proj.weight"),
        Row("self.value.bias", "v_proj.bias"),
        Row("output.dense.weight", "out_proj.weight"),
        Row("output.dense.bias", "out_proj.bias"),
    ),
    ignored=(
        Ignored("output.LayerNorm.weight", _NOT_ATTENTION),
        Ignored("output.LayerNorm.bias", _NOT_ATTENTION),
    ),
)

VIT_FILES = linears(
    "vit_files", "attention.query", "attention.key", "attention.value", "output.dense", biased="bias of q, k, v"
)
# in the files of ViT only the biases of q, k and v are a choice
VIT_FILES = Table(
    VIT_FILES.name,
    tuple(Row(row.theirs, row.ours) if row.theirs == "output.dense.bias" else row for row in VIT_FILES.rows),
)
# without biases these are the names of GPT-J, which turns its queries
BART = linears("bart", "q_proj", "k_proj", "v_proj", "out_proj", biased="")
WHISPER = Table("whisper", tuple(Row(row.theirs, row.ours) for row in BART.rows if row.theirs != "k_proj.bias"))


def _ask_bert(module: Any, _: Plan, question: Question) -> Tensor:
    if not question.is_self:
        if not getattr(module, "is_cross_attention", False):
            raise CannotAskError("BERT's self-attention takes no other keys")
        # its mask is the padding of the other keys
        mixed = module.self(question.query, question.keys, additive(question))[0]
    else:
        if getattr(module, "is_cross_attention", False):
            raise CannotAskError("BERT's cross-attention needs other keys")
        mixed = module.self(question.query, attention_mask=additive(question))[0]
    # what follows in `output`, a residual and a norm, is not attention
    dense: nn.Module = module.output.dense
    answer: Tensor = dense(mixed)
    return answer


CONVENTIONS = (
    of_four_linears(
        BERT, Sentence("convert.about.bert"), ask=_ask_bert,
        aliases=("roberta", "xlm-roberta", "camembert", "electra", "ernie"), fits=frozenset({"head_dim"}),
        modules=("BertAttention", "RobertaAttention", "XLMRobertaAttention", "CamembertAttention", "ElectraAttention",
                 "ErnieAttention"),
    ),
    of_four_linears(VIT_FILES, Sentence("convert.about.vit_files"), fits=frozenset({"head_dim"})),
    of_four_linears(
        BART, Sentence("convert.about.bart"), aliases=("clip",),
        modules=("BartAttention", "CLIPAttention"),
    ),
    of_four_linears(
        WHISPER, Sentence("convert.about.whisper"), modules=("WhisperAttention",),
    ),
)  # fmt: skip
