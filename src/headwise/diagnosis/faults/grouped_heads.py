"""Faults of grouped heads: which query heads share a key head."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import ROTARY

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        "groups-tiled", FAULT, "layout",
        ROTARY(("k.repeat_interleave(group, dim=1)", "k.repeat(1, group, 1, 1)")),
        Words(
            "Key and value heads are tiled (0 1 0 1); neighbouring query heads should share one (0 0 1 1).",
            "Query heads attend to the keys of another group; pretrained weights do not fit.",
            "Use repeat_interleave on the head axis.",
        ),
        Words(
            "键和值的头是整体重复的（0 1 0 1），而相邻的查询头应当共用一个（0 0 1 1）。",
            "查询头关注了别的组的键；预训练的权重也对不上。",
            "在头的维度上用 repeat_interleave。",
        ),
        has_patch=True,
    ),
    Fault(
        "groups-raise", FAULT, "constraint",
        ROTARY(
            ("d_model, n_heads, n_kv_heads):", "d_model, n_heads=8, n_kv_heads=2):"),
            (
                "self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim)",
                "self.k_proj = nn.Linear(d_model, d_model)",
            ),
            at="context = (weights",
        ),
        Words(
            "With fewer {name} than {near} it raises: {error}",
            "By default there are fewer: it runs only where each head has keys of its own.",
            "Make and split keys and values by the number of key heads.",
        ),
        Words(
            "{name} 比 {near} 少时报错：{error}",
            "默认就比较少：只有每个头都有自己的键时才能运行。",
            "键和值按键的头数来生成和拆分。",
        ),
    ),
)  # fmt: skip
