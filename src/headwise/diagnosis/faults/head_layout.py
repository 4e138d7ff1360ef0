"""Faults of the layout of heads: how axes are split, transposed and merged, so that the right entries meet."""

from headwise.diagnosis.faults.fault import FAULT, WARNING, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, SELF

__all__ = ["FAULTS"]

SPLIT = "x.view(x.shape[0], -1, self.n_heads, self.head_dim).transpose(1, 2)"
CONTEXT = "context = (weights @ v).transpose(1, 2)"
CHECK = """        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
"""

# columns of an image
COLUMNS = Template(
    "COLUMNS",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        # x: (batch, height, width, d_model)
        B, H, W, C = x.shape
        columns = x.transpose(1, 2).reshape(B * W, H, C)
        q, k, v = self.qkv_proj(columns).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.n_heads)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        return x + self.out_proj(context).view(B, W, H, C).transpose(1, 2)
""",
)

FAULTS = (
    Fault(
        "split-without-transpose", FAULT, "layout",
        SELF((SPLIT, "x.view(x.shape[0], self.n_heads, -1, self.head_dim)")),
        Words(
            "The heads are split by a view or reshape that mixes tokens and heads.",
            "The shape is right, but a head contains pieces of several tokens.",
            "Split the last axis into (heads, head_dim) first, then transpose heads and tokens.",
        ),
        Words(
            "用 view 或 reshape 分头时，token 与头混在了一起。",
            "形状是对的，但每个头里是几个 token 的片段。",
            "先把最后一维分成（头数，每个头的维度），再转置头与 token。",
        ),
        has_patch=True, breaks_layout=True, depends_on_layout=True,
    ),
    Fault(
        "attention-over-heads", FAULT, "layout",
        SELF((CONTEXT, "context = weights @ v"), (SPLIT, SPLIT.removesuffix(".transpose(1, 2)"))),
        Words(
            "Attention runs over the heads of one token instead of over the tokens: heads and tokens are not "
            "transposed before the scores.",
            "The shapes fit, but each token attends to its heads only, and no token attends to another.",
            "Transpose heads and tokens after the split, and back before the heads are merged.",
        ),
        Words(
            "注意力是在同一个 token 的各个头之间计算的，而不是在各个 token 之间：求分数之前没有转置头与 token。",
            "形状是对的，但每个 token 只关注自己的各个头，看不到别的 token。",
            "分头之后转置头与 token，合并头之前再转置回来。",
        ),
        has_patch=True, general="split-without-transpose", breaks_layout=True, depends_on_layout=True,
    ),
    Fault(
        "merge-without-transpose", FAULT, "layout",
        SELF((CONTEXT, "context = weights @ v"), ("context.flatten(2)", "context.reshape(x.shape)")),
        Words(
            "The heads are merged while the head axis still stands before the token axis.",
            "The shape is right, but each token contains pieces of other tokens.",
            "Transpose heads and tokens back before the heads are merged.",
        ),
        Words(
            "合并头时，头的维度还在 token 的维度之前。",
            "形状是对的，但每个 token 里是别的 token 的片段。",
            "合并之前先把头与 token 转置回来。",
        ),
        has_patch=True, breaks_layout=True, depends_on_layout=True,
    ),
    Fault(
        "heads-batch-swapped", FAULT, "layout",
        SELF(
            (SPLIT, "x.view(x.shape[0], -1, self.n_heads, self.head_dim).permute(2, 0, 1, 3).flatten(0, 1)"),
            (CONTEXT, "context = (weights @ v).unflatten(0, (x.shape[0], self.n_heads)).transpose(1, 2)"),
        ),
        Words(
            "The batch and head axes are swapped.",
            "A batch element gets the heads of another one.",
            "Keep the batch axis before the head axis, in the split and in the merge.",
        ),
        Words(
            "批的维度与头的维度互换了。",
            "一个样本拿到了另一个样本的头。",
            "分头与合并时都让批的维度在头的维度之前。",
        ),
        breaks_layout=True, depends_on_layout=True,
    ),
    Fault(
        "heads-not-split", FAULT, "layout",
        SELF((SPLIT, "x.unsqueeze(1)")),
        Words(
            "The heads are never split: there is one head of the full model dimension.",
            "The requested number of heads, {factor}, has no effect.",
            "Split the model dimension into (heads, head_dim) before the scores.",
        ),
        Words(
            "没有分头：只有一个维度等于模型维度的头。",
            "指定的头数 {factor} 不起作用。",
            "在求分数之前把模型维度分成（头数，每个头的维度）。",
        ),
    ),
    Fault(
        "key-not-transposed", FAULT, "layout",
        SELF(("k.transpose(-2, -1)", "k.reshape(x.shape[0], self.n_heads, self.head_dim, -1)")),
        Words(
            "The key is not transposed in q @ k.",
            "The product contracts positions instead of features.",
            "Use key.transpose(-2, -1).",
        ),
        Words(
            "求分数时，键没有转置。",
            "查询与键相乘时，求和沿着位置而不是特征。",
            "用 key.transpose(-2, -1)。",
        ),
        has_patch=True, breaks_layout=True, depends_on_layout=True,
    ),
    Fault(
        "scores-transposed", FAULT, "layout",
        CROSS(("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")),
        Words(
            "The scores have keys in their rows and queries in their columns.",
            "The softmax then runs over the queries, and the product with the values fits only where there are as "
            "many keys as queries.",
            "Compute the scores as q·kᵀ, queries in the rows and keys in the last axis.",
        ),
        Words(
            "分数矩阵的行是键、列是查询。",
            "这样 softmax 就沿查询计算，与值相乘也只有在键与查询一样多时才成立。",
            "把分数写成 q·kᵀ：行是查询，最后一维是键。",
        ),
    ),
    Fault(
        "key-uses-query-length", FAULT, "constraint",
        CROSS(
            (
                "self.split(self.k_proj(key))",
                "self.k_proj(key).view(query.shape[0], query.shape[1], self.n_heads, self.head_dim).transpose(1, 2)",
            )
        ),
        Words(
            "Keys or values are reshaped with the length of the queries.",
            "The call raises where there are more or fewer keys than queries, as in cross-attention.",
            "Take the length from the keys, or write -1.",
        ),
        Words(
            "键或值在变形时用了查询的长度。",
            "键与查询的个数不同时（如交叉注意力），调用会报错。",
            "长度取自键，或写 -1。",
        ),
        has_patch=True, breaks_layout=True,
    ),
    Fault(
        "view-noncontiguous", FAULT, "constraint",
        SELF(("context.flatten(2)", "context.view(x.shape[0], x.shape[1], -1)")),
        Words(
            "view needs a contiguous tensor; a transpose, for example, makes it non-contiguous.",
            "Every call that reaches this line raises an error.",
            "Use reshape, or call contiguous() before view.",
        ),
        Words(
            "view 要求张量在内存里连续；转置等操作之后就不连续了。",
            "运行到这一行的调用都会报错。",
            "用 reshape，或在 view 之前调用 contiguous()。",
        ),
        has_patch=True, ends_call=True,
    ),
    Fault(
        "heads-not-divisible", WARNING, "constraint",
        SELF((CHECK, ""), at="d_model // n_heads"),
        Words(
            "The constructor accepts a {name} that {near} does not divide, such as {was} with {factor}; forward then "
            "fails.",
            "The user has to find the reason in an error about shapes.",
            "Check {name} % {near} == 0 in __init__.",
        ),
        Words(
            "构造函数接受不能被 {near} 整除的 {name}，例如 {was} 与 {factor}；之后 forward 才报错。",
            "使用者只能从形状错误里猜原因。",
            "在 __init__ 里检查 {name} % {near} == 0。",
        ),
    ),
    Fault(
        "tokens-regrouped", FAULT, "layout",
        COLUMNS(
            ("x.transpose(1, 2).reshape(B * W, H, C)", "x.reshape(B * W, H, C)"),
            (".view(B, W, H, C).transpose(1, 2)", ".view(B, H, W, C)"),
            at="x.reshape(B * W",
        ),
        Words(
            "This view regroups the entries of several tokens: what attends to each other is no row, column, rectangle "
            "or frame of the input.",
            "A reshape regroups entries in the order of memory, and exchanges no axes.",
            "Transpose the axis of the tokens behind the others before the reshape.",
        ),
        Words(
            "这里的变形把多个 token 的数重新分组：互相关注的不是输入的一行、一列、一个矩形或一帧。",
            "reshape 按内存次序重新分组，不交换轴。",
            "reshape 之前先用 transpose 把 token 的轴换到其他轴之后。",
        ),
    ),
)  # fmt: skip
