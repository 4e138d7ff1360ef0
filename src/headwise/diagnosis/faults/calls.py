"""Faults of the call itself: it raises, or returns nothing."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import SELF

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        "raises", FAULT, "constraint",
        SELF(("scores.softmax(dim=-1)", "scores.softmax(dims=-1)")),
        Words(
            "The call raises here: {error}",
            "The module has no output for these arguments.",
            "Make this line fit the shapes of its inputs.",
        ),
        Words(
            "调用在这里报错：{error}",
            "用这样的参数得不到任何输出。",
            "修改这一行，使它适合输入的形状。",
        ),
        ends_call=True,
    ),
    Fault(
        "super-init-missing", FAULT, "constraint",
        SELF(("        super().__init__()\n", ""), at="self.q_proj ="),
        Words(
            "The call raises here: {error}",
            "nn.Module must be initialised before it can hold layers: the module cannot be built.",
            "Call super().__init__() in the first line of __init__.",
        ),
        Words(
            "调用在这里报错：{error}",
            "nn.Module 要先初始化才能存放各层，否则模块无法构造。",
            "在 __init__ 的第一行调用 super().__init__()。",
        ),
        has_patch=True, general="raises", ends_call=True,
    ),
    Fault(
        "returns-none", FAULT, "source",
        SELF(("return self.out_proj", "self.out_proj")),
        Words(
            "forward returns nothing: none of its lines returns a value.",
            "The caller gets None, and the result is lost.",
            "Return the output.",
        ),
        Words(
            "forward 没有返回值：没有一行返回结果。",
            "调用者得到的是 None，算出来的结果丢了。",
            "返回输出。",
        ),
        has_patch=True, ends_call=True,
    ),
    Fault(
        "result-discarded", FAULT, "source",
        SELF(
            (
                "        scores = scores / math.sqrt(self.head_dim)\n",
                "        scores = scores / math.sqrt(self.head_dim)\n        scores.clamp(min=-50.0, max=50.0)\n",
            ),
            at="scores.clamp",
        ),
        Words(
            "The result of {name} is thrown away, and the tensor stays as it was.",
            "{name} returns a new tensor and changes none: the statement does nothing.",
            "Assign the result, as in x = x.{name}(...), or call {name}_, where torch has it.",
        ),
        Words(
            "{name} 的结果被丢掉了，张量还是原来的样子。",
            "{name} 返回新的张量，不改变原来的：这一句什么也没有做。",
            "把结果赋值，如 x = x.{name}(...)；torch 有 {name}_ 时也可以用它。",
        ),
    ),
)  # fmt: skip
