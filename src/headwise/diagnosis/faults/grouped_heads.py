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
)  # fmt: skip
