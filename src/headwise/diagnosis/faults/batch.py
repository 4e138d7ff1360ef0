"""Faults of the batch axis: batch elements that change each other."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import MULTIHEAD, SELF

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        "batch-length-confused", FAULT, "layout",
        MULTIHEAD((", batch_first=True", ""), at="self.attention(x"),
        Words(
            "The batch and token axes are swapped: batch elements attend to each other.",
            "The result of a batch element depends on the rest of the batch.",
            "Declare which axis is the batch, for example with batch_first=True.",
        ),
        Words(
            "批的维度与 token 的维度互换了：样本之间在互相关注。",
            "一个样本的结果取决于同一批里的其他样本。",
            "说明哪一维是批，例如 batch_first=True。",
        ),
        breaks_layout=True, needs_proof="samples", depends_on_layout=True,
    ),
    Fault(
        "sample-leak", FAULT, "law",
        SELF(("self.k_proj(x)", "self.k_proj(x - x.mean(dim=0))")),
        Words(
            "One batch element changes the result of another.",
            "The result of a batch element depends on the rest of the batch.",
            "Keep the batch axis separate in every operation.",
        ),
        Words(
            "一个样本改变了另一个样本的结果。",
            "一个样本的结果取决于同一批里的其他样本。",
            "每一步都不要跨越批的维度。",
        ),
        needs_proof="samples", depends_on_layout=True,
    ),
)  # fmt: skip
