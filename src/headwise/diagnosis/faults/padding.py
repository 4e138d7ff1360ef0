"""Faults of padding: rows and tokens that hold none."""

from headwise.diagnosis.faults.fault import WARNING, Fault, Words
from headwise.diagnosis.faults.templates import CROSS

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        "mask-empty-row", WARNING, "law",
        CROSS(("torch.finfo(scores.dtype).min", 'float("-inf")'), at="scores.softmax"),
        Words(
            "A query whose keys are all masked becomes NaN here.",
            "One such row, which padding produces, turns the loss into NaN.",
            "Where rows can be empty, set their weights to 0 after the softmax.",
        ),
        Words(
            "所有键都被遮住的查询，在这里变成 NaN。",
            "填充就会产生这样的行，使整个损失变成 NaN。",
            "若可能有空行，在 softmax 之后把它的权重设为 0。",
        ),
        general="mask-nan",
    ),
)  # fmt: skip
