"""Faults of the projections of queries, keys, values and the output."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, Fault, Words
from headwise.diagnosis.faults.templates import SELF

__all__ = ["FAULTS"]

OUT = "        self.out_proj = nn.Linear(d_model, d_model)\n"
RETURN = "return self.out_proj(context.flatten(2))"
PACKED = (
    (
        "        self.q_proj = nn.Linear(d_model, d_model)\n"
        "        self.k_proj = nn.Linear(d_model, d_model)\n"
        "        self.v_proj = nn.Linear(d_model, d_model)\n",
        "        self.qkv_proj = nn.Linear(d_model, 3 * d_model)\n",
    ),
    (
        "        q = self.split(self.q_proj(x))\n"
        "        k = self.split(self.k_proj(x))\n"
        "        v = self.split(self.v_proj(x))\n",
        "        q, k, v = self.qkv_proj(x).chunk(3, dim=-1)\n"
        "        q, k, v = self.split(q), self.split(k), self.split(k)\n",
    ),
)

FAULTS = (
    Fault(
        "projection-shared", FAULT, "law",
        SELF(("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = self.q_proj")),
        Words(
            "{name} share one projection: {near}.",
            "Projections that should be learned separately have the same weights.",
            "Give each its own projection.",
        ),
        Words(
            "{name} 共用一个投影：{near}。",
            "本应分别学习的投影，用了同样的权重。",
            "给它们各自的投影。",
        ),
        has_patch=True,
    ),
    Fault(
        "projection-slice-shared", FAULT, "law",
        SELF(*PACKED, at="q, k, v = self.split(q)"),
        Words(
            "Two of queries, keys and values ({name}) are taken from the same slice of {near}, and another slice is "
            "not used.",
            "Projections that should be learned separately have the same weights.",
            "Take each from its own slice.",
        ),
        Words(
            "查询、键、值中有两个（{name}）取自 {near} 的同一部分，而另一部分没有使用。",
            "本应分别学习的投影，用了同样的权重。",
            "让它们各取自己的那一部分。",
        ),
        general="projection-shared",
    ),
    Fault(
        "projection-reused", FAULT, "law",
        SELF(("self.k_proj(x)", "self.q_proj(x)")),
        Words(
            "{name} are projected with the same weights; {near}, which is registered for one of them, is not used.",
            "Projections that should be learned separately have the same weights.",
            "Call {near} here.",
        ),
        Words(
            "{name} 用同样的权重投影；为其中一个注册的 {near} 没有使用。",
            "本应分别学习的投影，用了同样的权重。",
            "这里应当调用 {near}。",
        ),
        has_patch=True, general="projection-shared",
    ),
    Fault(
        "projection-missing", FAULT, "source",
        SELF(
            (OUT, ""), (RETURN, "# concatenate the heads, then apply the output projection\n"
                        "        return context.flatten(2)"), at="return context",
        ),
        Words(
            "The output projection is missing, although the documentation or a comment mentions it.",
            "The heads are never mixed.",
            "Add a linear layer after the merge.",
        ),
        Words(
            "文档或注释里提到了输出投影，代码里却没有。",
            "各个头从不混合。",
            "在合并之后加一个线性层。",
        ),
    ),
    Fault(
        "no-output-projection", NOTE, "layout",
        SELF((OUT, ""), (RETURN, "return context.flatten(2)")),
        Words(
            "The class has no output projection: it merges the heads and returns them.",
            "Unless a projection follows elsewhere, the heads are never mixed.",
            "Where none follows, add a linear layer after the merge.",
        ),
        Words(
            "这个类没有输出投影：各头合并后直接返回。",
            "除非别处还有投影，否则各个头从不混合。",
            "若别处没有，就在合并之后加一个线性层。",
        ),
        general="projection-missing",
    ),
    Fault(
        "projection-unused", FAULT, "law",
        SELF((RETURN, "return context.flatten(2)")),
        Words(
            "The projection {name} is registered but never used.",
            "Its weights are never trained, and its step is missing from the computation.",
            "Call it here, or remove it from __init__.",
        ),
        Words(
            "投影 {name} 已注册，但从未使用。",
            "它的权重得不到训练，计算里也少了这一步。",
            "在这里调用它，或从 __init__ 里删掉。",
        ),
        has_patch=True,
    ),
    Fault(
        "projection-part-unused", FAULT, "law",
        SELF(
            ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, 2 * d_model)"),
            ("v = self.split(self.v_proj(x))", "v, gate = self.v_proj(x).chunk(2, dim=-1)\n        v = self.split(v)"),
            at="v, gate",
        ),
        Words(
            "A part of what a projection gives, {name}, is never used.",
            "The weights that make it are never trained; where another part stands in its place, the output is wrong.",
            "Use {name} where it belongs, or make the projection smaller.",
        ),
        Words(
            "投影输出中的一部分 {name} 从未使用。",
            "产生它的权重得不到训练；若别的部分占了它的位置，输出就是错的。",
            "在该用的地方用上 {name}，或缩小这个投影。",
        ),
        general="projection-unused",
    ),
    Fault(
        "projection-discarded", FAULT, "law",
        SELF((RETURN, "self.out_proj(context.flatten(2))\n        return context.flatten(2)"), at="self.out_proj(con"),
        Words(
            "The output of {name} is discarded.",
            "Its weights are never trained, and its step is missing from the computation.",
            "Use its output in the next step.",
        ),
        Words(
            "{name} 的输出没有被使用。",
            "它的权重得不到训练，计算里也少了这一步。",
            "在后面使用它的输出。",
        ),
        general="projection-unused",
    ),
)  # fmt: skip
