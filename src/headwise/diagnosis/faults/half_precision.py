"""Faults that show in float16 only."""

from headwise.diagnosis.faults.fault import WARNING, Fault, Words
from headwise.diagnosis.faults.templates import CROSS, SELF

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        "half-overflow", WARNING, "law",
        SELF(("scores.softmax(dim=-1)", "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))")),
        Words(
            "In float16 this step overflows for scores as large as those of trained models.",
            "The output becomes NaN or infinite in float16.",
            "Subtract the largest score before exp, or compute this step in float32.",
        ),
        Words(
            "分数达到训练后模型常有的大小时，这一步在 float16 下溢出。",
            "float16 下输出变成 NaN 或无穷。",
            "在 exp 之前减去最大的分数，或者这一步用 float32 计算。",
        ),
    ),
    Fault(
        "mask-half-overflow", WARNING, "law",
        CROSS(("torch.finfo(scores.dtype).min", "-1e9")),
        Words(
            "In float16 this line raises: {was} is outside the range of float16.",
            "No mask can be used in half precision.",
            'Fill with float("-inf"), or with torch.finfo(scores.dtype).min.',
        ),
        Words(
            "在 float16 下这一行会报错：{was} 超出了 float16 的范围。",
            "半精度下无法使用掩码。",
            '用 float("-inf") 或 torch.finfo(scores.dtype).min 填充。',
        ),
        general="mask-raises",
    ),
)  # fmt: skip
