"""Faults of the causal mask: which earlier and later keys a query attends to."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import CAUSAL

__all__ = ["FAULTS"]

FILL = 'scores = scores.masked_fill(~allowed, float("-inf"))'

FAULTS = (
    Fault(
        "causal-missing", FAULT, "formula",
        CAUSAL((FILL, FILL.removeprefix("scores = ")), at="scores.masked_fill"),
        Words(
            "A query attends to later keys.",
            "In training each token attends to the one that it should predict; in generation that token does not "
            "exist yet.",
            "Mask the keys whose position is greater than that of the query.",
        ),
        Words(
            "查询可以看到它后面的键。",
            "训练时每个 token 都能看到它要预测的下一个；生成时那个 token 还不存在。",
            "遮住位置大于查询位置的键。",
        ),
    ),
    Fault(
        "causal-zeroed", FAULT, "formula",
        CAUSAL((FILL, "scores = scores * allowed")),
        Words(
            "The scores of later keys are set to a constant, which does not mask them in the softmax.",
            "exp(0) is 1: a query attends to later keys.",
            "Fill the scores of later keys with -inf before the softmax; do not multiply by 0.",
        ),
        Words(
            "后面的键的分数被设成了常数，softmax 并不会因此遮住它们。",
            "exp(0) 等于 1：查询仍能看到它后面的键。",
            "在 softmax 之前把后面的键的分数填成 -inf，不要乘以 0。",
        ),
        general="causal-missing",
    ),
    Fault(
        "causal-offset", FAULT, "formula",
        CAUSAL((".tril()", ".tril(1)")),
        Words(
            "The causal mask is off by one.",
            "A query attends to the token that it should predict, or does not attend to itself.",
            "Allow position i to attend to the keys 0 to i.",
        ),
        Words(
            "因果掩码差了一位。",
            "查询看到了它要预测的 token，或者看不到自己。",
            "让位置 i 看到键 0 到 i。",
        ),
        has_patch=True,
    ),
    Fault(
        "causal-inverted", FAULT, "formula",
        CAUSAL((".tril()", ".triu()")),
        Words(
            "A query attends to later keys and not to earlier ones.",
            "Each token attends only to what it should predict.",
            "Mask the keys whose position is greater than that of the query.",
        ),
        Words(
            "查询看到的是后面的键，而不是前面的键。",
            "每个 token 只看到后面的内容，而那正是要预测的。",
            "遮住位置大于查询位置的键。",
        ),
        has_patch=True,
    ),
)  # fmt: skip
