"""Hugging Face's BERT and its kin, ViT's files, CLIP, BART and Whisper: scaled dot products and nothing more."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.compat.conversion.classic_layers import linears, of_four_linears
from headwise.compat.conversion.module_call import CannotAskError, Question, additive
from headwise.compat.conversion.source import LayerPlan
from headwise.compat.conversion.weight_tables import Ignored, WeightRow, WeightTable
from headwise.wording import Sentence

__all__ = ["CONVENTIONS"]

_NOT_ATTENTION = Sentence("convert.why.not_attention")

BERT = WeightTable(
    "bert",
    rows=(
        WeightRow("self.query.weight", "q_proj.weight"),
        WeightRow("self.query.bias", "q_proj.bias"),
        WeightRow("self.key.weight", "k_proj.weight"),
        WeightRow("self.key.bias", "k_proj.bias"),
        WeightRow("self.value.weight", "v_proj.weight"),
        WeightRow("self.value.bias", "v_proj.bias"),
        WeightRow("output.dense.weight", "out_proj.weight"),
        WeightRow("output.dense.bias", "out_proj.bias"),
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
VIT_FILES = WeightTable(
    VIT_FILES.name,
    tuple(WeightRow(row.theirs, row.ours) if row.theirs == "output.dense.bias" else row for row in VIT_FILES.rows),
)
# without biases these are the names of GPT-J, which turns its queries
BART = linears("bart", "q_proj", "k_proj", "v_proj", "out_proj", biased="")
WHISPER = WeightTable(
    "whisper", tuple(WeightRow(row.theirs, row.ours) for row in BART.rows if row.theirs != "k_proj.bias")
)


def _ask_bert(module: Any, _: LayerPlan, question: Question) -> Tensor:
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
