"""Faults of dropout and of other random numbers."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import SELF

__all__ = ["FAULTS"]

DROPPED = "self.dropout(scores.softmax(dim=-1))"

FAULTS = (
    Fault(
        "dropout-in-eval", FAULT, "law",
        SELF((DROPPED, "nn.functional.dropout(scores.softmax(dim=-1), 0.1)")),
        Words(
            "Dropout is active in eval mode.",
            "Two calls with the same input give different outputs.",
            "Pass training=self.training, or use nn.Dropout.",
        ),
        Words(
            "dropout 在 eval 模式下仍然生效。",
            "同样的输入两次调用结果不同。",
            "传入 training=self.training，或用 nn.Dropout。",
        ),
        has_patch=True, stops_training=True,
    ),
    Fault(
        "dropout-before-softmax", FAULT, "law",
        SELF((DROPPED, "self.dropout(scores).softmax(dim=-1)")),
        Words(
            "Dropout is applied to the scores, before the softmax.",
            "A dropped score becomes 0, which the softmax turns into a positive weight, for a masked key too.",
            "Apply dropout to the weights, after the softmax.",
        ),
        Words(
            "dropout 用在了分数上，在 softmax 之前。",
            "被丢弃的分数变成 0，经 softmax 仍是正的权重，被遮住的键也可能重新出现。",
            "把 dropout 放在 softmax 之后，用在权重上。",
        ),
        has_patch=True, stops_training=True,
    ),
    Fault(
        "dropout-twice", FAULT, "law",
        SELF((DROPPED, "self.dropout(self.dropout(scores.softmax(dim=-1)))")),
        Words(
            "Dropout is applied twice in a row.",
            "In training more is dropped than the rate says.",
            "Keep one of the two.",
        ),
        Words(
            "连续做了两次 dropout。",
            "训练时丢弃的比设定的比例多。",
            "两次里只留一次。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "dropout-discarded", FAULT, "law",
        SELF((f"weights = {DROPPED}", "weights = scores.softmax(dim=-1)\n        self.dropout(weights)"),
             at="self.dropout(weights)"),
        Words(
            "The output of dropout is discarded.",
            "In training nothing is dropped: the next step takes the input of dropout.",
            "Keep the result: x = dropout(x).",
        ),
        Words(
            "dropout 的输出被丢掉了。",
            "训练时什么也没有丢弃：后面用的仍是 dropout 的输入。",
            "保留结果：x = dropout(x)。",
        ),
    ),
    Fault(
        "random-in-eval", FAULT, "law",
        SELF(("scores.softmax(dim=-1)", "(scores + 0.1 * torch.randn_like(scores)).softmax(dim=-1)")),
        Words(
            "{name} draws new random numbers at each call in eval mode.",
            "Two calls with the same input give different outputs.",
            "Draw them in training only (if self.training), or use their mean.",
        ),
        Words(
            "在 eval 模式下，{name} 每次调用都重新取随机数。",
            "同样的输入两次调用结果不同。",
            "只在训练时取随机数（if self.training），评估时用其期望。",
        ),
    ),
)  # fmt: skip
