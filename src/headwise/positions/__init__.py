"""Where a token is: rotary embeddings, ALiBi and T5's relative bias, as specs from which a layer builds modules.

A spec (`Rotary`, `Alibi`, `RelativeBias`) is a small frozen dataclass: it can be compared, pickled and pasted back. Its
`build` gives the module: `RotaryEmbedding` turns queries and keys, `AlibiBias` and `RelativeBiasTable` give a bias for
the scores. Positions are always the absolute places of tokens, as whole numbers, (L,) for all samples or (B, L).
"""

from headwise.positions.alibi import Alibi, AlibiBias, alibi_slopes
from headwise.positions.relative_bias import RelativeBias, RelativeBiasTable, relative_buckets
from headwise.positions.rope_scaling import LinearScaling, Llama3Scaling, NTKScaling, RotaryScaling, YarnScaling
from headwise.positions.rotary import Rotary, RotaryEmbedding

__all__ = [
    "Alibi",
    "AlibiBias",
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "RelativeBias",
    "RelativeBiasTable",
    "Rotary",
    "RotaryEmbedding",
    "RotaryScaling",
    "YarnScaling",
    "alibi_slopes",
    "relative_buckets",
]
