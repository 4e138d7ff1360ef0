"""Hugging Face: `attn_implementation="headwise"` for the models of transformers.

Found by running 135 kinds of text model of transformers 5.23 and some 15 kinds of vision model: those that ask it for
their attention function run here, T5 too. Those that write a softmax of their own do not, in one of three ways.
* Refused here, since they would add the bool mask to their scores: BigBird, BigBird-Pegasus, Bloom, CANINE, CodeGen,
  ConvBERT, Doge, I-BERT, ImageGPT, LED, Longformer, Megatron-BERT, MPNet, MPT, MVP, Nystromformer, RemBERT, RoFormer,
  SqueezeBERT, TAPAS, VisualBERT, XGLM and others.
* Refused by transformers by a KeyError, since they list the implementations that they have: Data2Vec vision, Falcon,
  GPT-J, GPT-Neo.
* Left as they are by transformers, with their own attention: CPM-Ant, DeBERTa, FlauBERT, FSMT, GPT, XLM, YOSO.
Inkling 2, whose sinks differ from query to query, and sparse attention by indices are refused by the keyword.
"""

from headwise.compat.huggingface.registration import register, unregister

__all__ = ["register", "unregister"]
