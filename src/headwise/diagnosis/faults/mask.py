"""Faults of a mask: which keys it lets a query attend to, and how it meets the scores."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, WARNING, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, INIT, SELF

__all__ = ["FAULTS"]

FILL = "scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)"
MASKED = f"        if mask is not None:\n            {FILL}\n"
DROPOUT = "        weights = self.dropout"
# each token sees the others alone
OTHERS = (
    "        own = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)\n"
    "        scores = scores.masked_fill(own, float('-inf'))\n"
)
# heads in the batch axis
MERGED = Template(
    "MERGED",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2).flatten(0, 1)

    def forward(self, query, key, value, mask=None):
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(key))
        v = self.split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            mask = mask.repeat_interleave(self.n_heads, dim=0)
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        context = scores.softmax(dim=-1) @ v
        context = context.unflatten(0, (-1, self.n_heads)).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)
# torch's whole attention
FUSED = Template(
    "FUSED",
    f"""{IMPORTS}{INIT}    def forward(self, x, mask=None):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(context.transpose(1, 2).flatten(2))
""".replace("        self.dropout = nn.Dropout(0.1)\n", ""),
)
ALLOWED = {"_mask": {"argument": "mask", "means": "attend", "shape": ["B", 1, 1, "S"]}}

FAULTS = (
    Fault(
        "mask-inverted", FAULT, "formula",
        CROSS(("mask == 0", "mask == 1"), call=ALLOWED),
        Words(
            "The mask is inverted: it masks the allowed keys and leaves the masked ones.",
            "Masked keys get up to {leak} of the weight of a query.",
            "Invert the condition.",
        ),
        Words(
            "掩码的条件反了：允许的键被遮住，该遮的键却留下了。",
            "该遮的键最多占一个查询 {leak} 的权重。",
            "把条件取反。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "mask-after-softmax", FAULT, "formula",
        CROSS(
            (MASKED, ""),
            (
                "        context = (weights @ v)",
                "        if mask is not None:\n"
                "            weights = weights.masked_fill(mask == 0, 0.0)\n"
                "        context = (weights @ v)",
            ),
            at="weights.masked_fill",
        ),
        Words(
            "The mask is applied after the softmax.",
            "Masked keys already took part in the softmax, so the remaining weights sum to less than 1.",
            "Fill the scores of masked keys with -inf before the softmax.",
        ),
        Words(
            "掩码用在了 softmax 之后。",
            "被遮住的键已经参与了 softmax，所以剩下的权重之和小于 1。",
            "在 softmax 之前用 -inf 填充被遮住的键的分数。",
        ),
        has_patch=True, needs_proof="mask",
    ),
    Fault(
        "mask-weak-fill", FAULT, "formula",
        CROSS(("torch.finfo(scores.dtype).min", "1e-9")),
        Words(
            "Masked scores are filled with a number that is too large for the softmax to turn it into 0.",
            "Masked keys get up to {leak} of the weight of a query.",
            'Fill with float("-inf"), or with torch.finfo(scores.dtype).min.',
        ),
        Words(
            "给被遮住的键填的分数不够小，经过 softmax 不会变成 0。",
            "被遮住的键最多占一个查询 {leak} 的权重。",
            '用 float("-inf") 或 torch.finfo(scores.dtype).min 填充。',
        ),
        has_patch=True,
    ),
    Fault(
        "mask-bounded", FAULT, "law",
        SELF((DROPOUT, f"{OTHERS}        scores = 5 * torch.tanh(scores / 5)\n{DROPOUT}"), at="torch.tanh"),
        Words(
            "Scores that were masked are bounded here, so that the softmax does not turn them into 0.",
            "Masked keys get up to {leak} of the weight of a query.",
            "Bound the scores first, and mask them after that.",
        ),
        Words(
            "掩码之后的分数在这里又被限制了范围，经过 softmax 不会变成 0。",
            "被遮住的键最多占一个查询 {leak} 的权重。",
            "先限制分数的范围，再加掩码。",
        ),
        general="mask-weak-fill",
    ),
    Fault(
        "mask-multiplied", FAULT, "formula",
        CROSS((FILL, "scores = scores * mask")),
        Words(
            "The scores are multiplied by the mask: masked scores become 0, not -inf.",
            "exp(0) is 1: masked keys get up to {leak} of the weight of a query.",
            'Fill masked scores with float("-inf") before the softmax instead of multiplying.',
        ),
        Words(
            "分数乘以了掩码：被遮住的分数变成 0，而不是 -inf。",
            "exp(0) 等于 1：被遮住的键最多占一个查询 {leak} 的权重。",
            '在 softmax 之前把被遮住的分数填成 float("-inf")，不要相乘。',
        ),
        has_patch=True, general="mask-weak-fill",
    ),
    Fault(
        "mask-ignored", FAULT, "formula",
        CROSS((FILL, FILL.removeprefix("scores = "))),
        Words(
            "The mask has no effect.",
            "Masked keys get up to {leak} of the weight of a query.",
            "Pass the masked scores to the softmax; masked_fill returns a new tensor and leaves its input unchanged.",
        ),
        Words(
            "掩码没有起作用。",
            "该遮的键最多占一个查询 {leak} 的权重。",
            "把掩码之后的分数交给 softmax；masked_fill 返回新的张量，输入不变。",
        ),
        has_patch=True,
    ),
    Fault(
        "mask-broadcast", FAULT, "formula",
        CROSS(("mask == 0", "mask[:1] == 0")),
        Words(
            "The mask broadcasts along the wrong axes of the scores.",
            "It masks other keys than intended.",
            "Give the mask the shape (batch, 1, 1 or queries, keys).",
        ),
        Words(
            "掩码沿分数的错误维度广播。",
            "被遮住的并不是该遮的键。",
            "把掩码的形状变成（批，1，1 或查询，键）。",
        ),
    ),
    Fault(
        "mask-shifted", FAULT, "formula",
        CROSS(("mask == 0", "mask.roll(1, dims=-1) == 0")),
        Words(
            "The mask is off by some keys: each key is masked where the mask says so of another.",
            "Padding is attended to, and as many real keys are masked.",
            "Add entries to the mask on the side, and as many, where keys are added; shift it nowhere else.",
        ),
        Words(
            "掩码错开了几个键：每个键按另一个键的掩码被遮住。",
            "填充被关注，而同样多的真实键被遮住。",
            "在哪一侧添加键，就在掩码的同一侧补上同样多的项；别处不要移动它。",
        ),
    ),
    Fault(
        "mask-repeat-order", FAULT, "formula",
        MERGED(("mask.repeat_interleave(self.n_heads, dim=0)", "mask.repeat(self.n_heads, 1, 1)")),
        Words(
            "The mask is repeated in another order than the batch elements and heads of the scores.",
            "A batch element gets the mask of another one.",
            "Use repeat_interleave where heads are merged into the batch axis.",
        ),
        Words(
            "掩码重复的顺序与分数中样本和头的顺序不同。",
            "一个样本用了另一个样本的掩码。",
            "头并入批的维度时，用 repeat_interleave。",
        ),
    ),
    Fault(
        "mask-axis", FAULT, "formula",
        CROSS(("mask == 0", "mask.transpose(-2, -1) == 0")),
        Words(
            "The mask of the keys is applied along the query axis.",
            "Whole queries are masked, and padded keys stay allowed.",
            "Give the mask the shape (batch, 1, 1, keys).",
        ),
        Words(
            "键的掩码用在了查询的维度上。",
            "整个查询被遮住，而填充的键仍然可见。",
            "把掩码的形状变成（批，1，1，键）。",
        ),
    ),
    Fault(
        "mask-raises", FAULT, "constraint",
        CROSS(("mask == 0", "mask[..., :-1] == 0")),
        Words(
            "A call with a mask raises an error.",
            "The module has no output as soon as a mask is passed.",
            "Give the mask a shape that broadcasts to the scores: (batch, 1, 1 or queries, keys).",
        ),
        Words(
            "带掩码的调用会报错。",
            "一传入掩码就得不到输出。",
            "把掩码变成能广播到分数的形状：（批，1，1 或查询，键）。",
        ),
        ends_call=True, follows_layout=True,
    ),
    Fault(
        "mask-nan", FAULT, "formula",
        CROSS((FILL, 'scores = scores + (1.0 - mask) * float("-inf")')),
        Words(
            "The mask turns the scores of queries that have allowed keys into NaN.",
            "0 × ∞ and ∞ − ∞ are NaN, and one NaN among the scores of a query makes all its weights NaN.",
            'Use masked_fill(mask == 0, float("-inf")); do not multiply a mask by infinity.',
        ),
        Words(
            "有键可看的查询，分数被掩码变成了 NaN。",
            "0 × ∞ 与 ∞ − ∞ 都是 NaN；一个查询的分数里只要有一个 NaN，它的权重就全是 NaN。",
            '用 masked_fill(mask == 0, float("-inf"))，不要把掩码乘以无穷大。',
        ),
    ),
    Fault(
        "mask-polarity", NOTE, "source",
        CROSS(("mask == 0", "mask != 0")),
        Words(
            "True masks a key in {name}, as in nn.MultiheadAttention; in scaled_dot_product_attention and most "
            "tutorials True allows it.",
            "The code uses it consistently, which is correct; a mask of the other convention masks the wrong keys.",
            "Document the convention where the argument is described.",
        ),
        Words(
            "{name} 里 True 表示遮住，与 nn.MultiheadAttention 相同；scaled_dot_product_attention 和多数教程里 True "
            "表示允许。",
            "代码里前后一致，不是错误；但传入另一种约定的掩码会遮错键。",
            "在说明这个参数的地方写明约定。",
        ),
        general="mask-inverted",
    ),
    Fault(
        "mask-beside-is-causal", FAULT, "source",
        FUSED(("attn_mask=mask)", "attn_mask=mask, is_causal=True)")),
        Words(
            "scaled_dot_product_attention takes attn_mask and is_causal=True in one call.",
            "torch documents an error where both are set: some backends raise, others apply both.",
            "Combine the two in one attn_mask, or pass is_causal=True without a mask.",
        ),
        Words(
            "scaled_dot_product_attention 的一次调用同时传入了 attn_mask 和 is_causal=True。",
            "torch 的文档规定两者同时设置是错误：有的后端会报错，有的两者都用。",
            "把两者合成一个 attn_mask，或者不传掩码、只用 is_causal=True。",
        ),
        general="mask-raises",
    ),
    Fault(
        "mask-default-raises", WARNING, "constraint",
        CROSS(("if mask is not None:", "if mask.ndim:")),
        Words(
            "A call without {name} raises an error here, although its default is None: {error}",
            "None has no shape and no methods: the default cannot be used.",
            "Check that {name} is not None before it is used, or make it a required argument.",
        ),
        Words(
            "不传 {name} 的调用在这里报错，而它的默认值是 None：{error}",
            "None 没有形状，也没有方法：这个默认值不能用。",
            "使用 {name} 之前先检查它不是 None，或者把它改成必需的参数。",
        ),
        general="raises",
    ),
)  # fmt: skip
