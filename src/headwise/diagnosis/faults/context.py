"""Faults of the weighted sum, and of the steps between the scores and the output."""

from headwise.diagnosis.faults.fault import FAULT, WARNING, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, SELF

__all__ = ["FAULTS"]

SUM = "weights @ v"

# a block with two residual connections
BLOCK = Template(
    "BLOCK",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def attend(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out_proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x):
        h = x + self.attend(self.norm_1(x))
        return h + self.mlp(self.norm_2(h))
""",
)

FAULTS = (
    Fault(
        "differs-from-every-formula", WARNING, "formula",
        SELF(("scores.softmax(dim=-1)", "(scores * scores.softmax(dim=-1)).softmax(dim=-1)")),
        Words(
            "No known formula reproduces this step.",
            "Its weights follow neither from softmax(q·kᵀ/√d) nor from a design in the table of designs.",
            "Compare this step with softmax(q·kᵀ/√d)·v.",
        ),
        Words(
            "没有已知的公式能得出这一步的结果。",
            "它的权重既不是由 softmax(q·kᵀ/√d) 得出，也不符合任何已知的设计。",
            "把这一步与 softmax(q·kᵀ/√d)·v 对照。",
        ),
    ),
    Fault(
        "value-changed", FAULT, "law",
        SELF(("scores.softmax(dim=-1)", "scores.abs().softmax(dim=-1)")),
        Words(
            "{name} changes its input on the way from the scores to the output.",
            "Attention takes the scores with their signs, weights that sum to 1, and the values unchanged.",
            "Remove {name}.",
        ),
        Words(
            "从分数到输出的路径上，{name} 改变了它的输入。",
            "注意力要求分数保留符号、权重之和为 1、值原样加权求和。",
            "去掉 {name}。",
        ),
        follows_layout=True, needs_proof="heads",
    ),
    Fault(
        "weights-transposed", FAULT, "formula",
        SELF((SUM, "weights.transpose(-2, -1) @ v")),
        Words(
            "The weighted sum runs over the queries instead of the keys.",
            "The weights that multiply the values do not sum to 1, and each position gets the sum of another.",
            "Contract the key axis of the weights with that of the values.",
        ),
        Words(
            "加权求和沿着查询而不是键。",
            "与值相乘的权重之和不是 1，每个位置得到的是别的位置的结果。",
            "让权重的键维度与值的键维度相乘求和。",
        ),
        follows_layout=True,
    ),
    Fault(
        "contraction-extra-axis", FAULT, "layout",
        SELF(("q @ k.transpose(-2, -1)", 'torch.einsum("bhid,bgjd->bhij", q, k)')),
        Words(
            "This product also sums over an axis that only one of its operands has.",
            "Heads, keys or batch elements that should stay separate are added up.",
            "Give that axis the same letter in both operands, or keep it in the result.",
        ),
        Words(
            "这个乘积还沿只有一个操作数才有的维度求了和。",
            "本该分开的头、键或样本被加在了一起。",
            "让两个操作数用同一个字母表示这一维，或在结果里保留它。",
        ),
        follows_layout=True,
    ),
    Fault(
        "einsum-weights-summed", FAULT, "layout",
        SELF((SUM, 'torch.einsum("bhij,bhid->bhid", weights, v)')),
        Words(
            'The einsum "{name}" sums the weights separately: no value is multiplied by its weight.',
            "No query gets a weighted sum of the values.",
            "Give the keys the same letter in the weights and in the values, and leave it out of the result.",
        ),
        Words(
            'einsum "{name}" 单独对权重求和：没有一个值乘上自己的权重。',
            "没有一个查询得到值的加权和。",
            "权重和值中的键用同一个字母，结果中不写这个字母。",
        ),
        has_patch=True, follows_layout=True, ends_call=True,
    ),
    Fault(
        "key-value-misaligned", FAULT, "layout",
        CROSS((SUM, "weights @ v[:, :, torch.arange(v.shape[2], 0, -1) - 1]")),
        Words(
            "The weight of a key multiplies the value of another token.",
            "Keys and values in another order give another output.",
            "Keep keys and values in the same order.",
        ),
        Words(
            "一个键的权重乘到了另一个 token 的值上。",
            "键和值换一种次序，输出就变了。",
            "让键和值保持相同的次序。",
        ),
        follows_layout=True, depends_on_layout=True,
    ),
    Fault(
        "residual-doubled", FAULT, "layout",
        SELF(
            ("return self.out_proj(context.flatten(2))", "x = self.out_proj(context.flatten(2))\n        return x + x"),
            at="return x + x",
        ),
        Words(
            "What the attention gives is added to itself, not to its input.",
            "The input is lost: there is no residual connection, and the sum is twice the output of the attention.",
            "Keep the input under another name and add it: x = x + attention(x).",
        ),
        Words(
            "注意力的输出加上了它自己，而不是加上它的输入。",
            "输入丢失了：没有残差连接，得到的是注意力输出的两倍。",
            "用另一个名字保留输入，再相加：x = x + attention(x)。",
        ),
    ),
    Fault(
        "attention-unread", FAULT, "layout",
        BLOCK(
            ("h = x + self.attend(self.norm_1(x))", "h = x\n        self.attend(self.norm_1(x))"),
            ("return h +", "return x + self.attend(h) +"), at="self.attend(self.norm_1(x))",
        ),
        Words(
            "Nothing of this attention reaches the output.",
            "It is computed and its parameters are never trained: what follows reads something else.",
            "Hand its result on: in an encoder-decoder the decoder takes what the encoder gives, not the embeddings.",
        ),
        Words(
            "这个注意力的结果没有到达输出。",
            "它被计算了，参数却从不训练：后面读的是别的东西。",
            "把它的结果传下去：在编码器-解码器中，解码器读编码器的输出，而不是嵌入。",
        ),
    ),
    Fault(
        "residual-dropped", FAULT, "layout",
        BLOCK(("return h + self.mlp", "return x + self.mlp")),
        Words(
            "What the attention gives is left out of the second residual connection.",
            "The next part alone reads the sum of the input and the attention; the output adds the input without it.",
            "Add to the sum, not to the input: h = x + attention(x); return h + mlp(h).",
        ),
        Words(
            "第二个残差连接漏掉了注意力的输出。",
            "输入与注意力之和只有下一部分读到，输出加的是没有它的输入。",
            "加到这个和上，而不是加到输入上：h = x + attention(x)；return h + mlp(h)。",
        ),
    ),
    Fault(
        "residual-normed", FAULT, "layout",
        BLOCK(("h = x + self.attend(self.norm_1(x))", "x = self.norm_1(x)\n        h = x + self.attend(x)")),
        Words(
            "The attention is added to the normed input, not to the input.",
            "The next residual connection of the same block adds to what has not been normed. Here the input goes no "
            "further than the norm: no gradient passes a block unchanged, and the scale of the stream is lost.",
            "Norm what the attention reads alone: x = x + attention(norm(x)).",
        ),
        Words(
            "注意力的输出加到了归一化后的输入上，而不是加到输入上。",
            "同一个块的下一个残差连接加到没有归一化的值上。这里输入到归一化为止：没有梯度不变地通过这个块，残差流的尺度也丢失了。",
            "只归一化注意力读的值：x = x + attention(norm(x))。",
        ),
    ),
)  # fmt: skip
