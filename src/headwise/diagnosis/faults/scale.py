"""Faults of the scale: by what the scores are multiplied before the softmax."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, Fault, Words
from headwise.diagnosis.faults.templates import SELF

__all__ = ["FAULTS"]

SCALED = "scores = scores / math.sqrt(self.head_dim)"
BIASED = """\
positions = torch.arange(x.shape[1], device=x.device)
        distances = (positions[:, None] - positions).clamp(-16, 15) + 16
        scores = scores + self.bias(distances).permute(2, 0, 1)"""

FAULTS = (
    Fault(
        "scale-missing", FAULT, "formula",
        SELF((f"        {SCALED}\n", ""), at="q @ k"),
        Words(
            "The scores are not divided by √head_dim.",
            "The variance of q·k grows with head_dim: the softmax saturates on one key, and its gradients vanish.",
            "Multiply the scores by {wanted} = 1/√head_dim before the softmax.",
        ),
        Words(
            "分数没有除以 √head_dim（每个头的维度的平方根）。",
            "q·k 的方差随 head_dim 增大：softmax 几乎把全部权重给一个键，梯度消失。",
            "在 softmax 之前把分数乘以 {wanted}，即 1/√head_dim。",
        ),
        has_patch=True,
    ),
    Fault(
        "scale-wrong", FAULT, "formula",
        SELF((SCALED, "scores = scores / math.sqrt(x.shape[-1])")),
        Words(
            "The scores are multiplied by {factor}, which is {what}, and not by {wanted} = 1/√head_dim.",
            "The softmax is sharper or flatter than intended, and the difference changes with the sizes.",
            "Divide the scores by √head_dim.",
        ),
        Words(
            "分数乘的是 {factor}，即 {what}，而不是 {wanted}，即 1/√head_dim。",
            "softmax 比预期的更尖锐或更平缓，偏差还随维度变化。",
            "把分数除以 √head_dim。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "scale-inverted", FAULT, "formula",
        SELF((SCALED, "scores = scores * math.sqrt(self.head_dim)")),
        Words(
            "The scores are multiplied by {factor} instead of by {wanted} = 1/√head_dim.",
            "The softmax gives nearly all weight to one key.",
            "Divide the scores by √head_dim.",
        ),
        Words(
            "分数乘的是 {factor}，应当乘以 {wanted}，即 1/√head_dim。",
            "softmax 几乎把全部权重给一个键。",
            "把分数除以 √head_dim。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "scale-floor-division", FAULT, "formula",
        SELF((SCALED, "scores = scores // math.sqrt(self.head_dim)")),
        Words(
            "Floor division or rounding turns the attention scores into integers.",
            "Different scores become equal, and the gradient of rounding is 0.",
            "Divide with / instead of //, and do not round the scores.",
        ),
        Words(
            "注意力分数被 // 或取整操作变成了整数。",
            "不同的分数变得相等，而取整的梯度为 0。",
            "用 / 代替 //，不要对分数取整。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "scale-factor-floored", FAULT, "formula",
        SELF((SCALED, "scores = scores / (self.head_dim**0.5 // 1)")),
        Words(
            "// rounds the factor of the scores down: it is {factor}, and not {wanted} = 1/√head_dim.",
            "The softmax is flatter or sharper than intended; a factor of 0 gives all keys the same weight.",
            "Divide with / instead of //.",
        ),
        Words(
            "// 把分数所乘的系数向下取整了：它是 {factor}，而不是 {wanted}，即 1/√head_dim。",
            "softmax 比预期的更平缓或更尖锐；系数为 0 时，所有键的权重都相同。",
            "用 / 代替 //。",
        ),
        has_patch=True, general="scale-floor-division", removes=True,
    ),
    Fault(
        "scale-zero", FAULT, "formula",
        SELF((SCALED, "scores = scores * 0.0")),
        Words(
            "The scores are multiplied by 0 instead of by {wanted} = 1/√head_dim.",
            "All keys get the same weight, whatever they contain.",
            "Divide the scores by √head_dim.",
        ),
        Words(
            "分数乘上了 0，而不是 {wanted}，即 1/√head_dim。",
            "无论键的内容是什么，所有键的权重都相同。",
            "把分数除以 √head_dim。",
        ),
        has_patch=True, general="scale-wrong", removes=True,
    ),
    Fault(
        "scale-after-softmax", FAULT, "formula",
        SELF(
            (f"        {SCALED}\n", ""),
            ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) / math.sqrt(self.head_dim)"),
        ),
        Words(
            "The scale is applied after the softmax.",
            "The weights no longer sum to 1, and the softmax gets scores that are too large.",
            "Scale the scores before the softmax.",
        ),
        Words(
            "缩放放在了 softmax 之后。",
            "权重之和不再是 1，而 softmax 得到的分数过大。",
            "在 softmax 之前缩放分数。",
        ),
        has_patch=True, needs_proof="scale",
    ),
    Fault(
        "weights-scaled", FAULT, "formula",
        SELF(("scores.softmax(dim=-1)", "scores.softmax(dim=-1) / math.sqrt(self.head_dim)")),
        Words(
            "The weights are multiplied by {factor} after the softmax, although the scores are scaled before it.",
            "The weights of a query no longer sum to 1.",
            "Use the weights as the softmax returns them.",
        ),
        Words(
            "分数在 softmax 之前已经缩放，softmax 之后权重又乘了 {factor}。",
            "每个查询的权重之和不再是 1。",
            "直接使用 softmax 给出的权重。",
        ),
        has_patch=True, general="scale-after-softmax", removes=True, needs_proof="scale",
    ),
    Fault(
        "scale-twice", FAULT, "formula",
        SELF(("q @ k.transpose(-2, -1)", "q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)"), at=SCALED),
        Words(
            "The scores are scaled twice: by {factor} in total, where 1/√head_dim is {wanted}.",
            "The softmax is too flat: every key gets nearly the same weight.",
            "Remove one of the two scales.",
        ),
        Words(
            "分数缩放了两次：一共乘了 {factor}，而 1/√head_dim 是 {wanted}。",
            "softmax 过于平缓，各个键的权重几乎相同。",
            "去掉其中一次缩放。",
        ),
        has_patch=True, removes=True,
    ),
    Fault(
        "scale-as-t5", NOTE, "formula",
        SELF(
            ("        self.dropout = nn", "        self.bias = nn.Embedding(32, n_heads)\n        self.dropout = nn"),
            (SCALED, BIASED),
            at="q @ k",
        ),
        Words(
            "The scores are not divided by √head_dim; a learned bias is added to them, as in T5, which initialises "
            "its weights smaller instead.",
            "This is correct where the initialisation accounts for it.",
            "Initialise the query projection with smaller weights, or divide the scores by √head_dim.",
        ),
        Words(
            "分数没有除以 √head_dim，但加上了可学习的偏置，与 T5 相同；T5 把权重初始化得更小来代替缩放。",
            "只要初始化与之相配，就不是错误。",
            "把查询投影的权重初始化得更小，或者把分数除以 √head_dim。",
        ),
        general="scale-missing",
    ),
    Fault(
        "scale-as-mup", NOTE, "formula",
        SELF((SCALED, "scores = scores / self.head_dim")),
        Words(
            "The scores are divided by head_dim, as in μP, and not by √head_dim.",
            "This is correct where the initialisation accounts for it.",
            "Where μP is not intended, divide by √head_dim.",
        ),
        Words(
            "分数除以了 head_dim（与 μP 相同），而不是 √head_dim。",
            "只要初始化与之相配，就不是错误。",
            "若不是有意采用 μP，就除以 √head_dim。",
        ),
        general="scale-wrong",
    ),
    Fault(
        "norm-over-tokens", FAULT, "layout",
        SELF(
            (
                "scores = q @ k.transpose(-2, -1)",
                "q, k = nn.functional.normalize(q, dim=2), nn.functional.normalize(k, dim=2)\n"
                "        scores = q @ k.transpose(-2, -1)",
            ),
            ("scores = scores / math.sqrt(self.head_dim)", "scores = scores * self.out_proj.bias.abs().sum().exp()"),
            at="q, k = nn.functional",
        ),
        Words(
            "Queries or keys are divided by their norm over the tokens, not over the features.",
            "A query then depends on all tokens, later and padded ones too, and its length is not 1.",
            "Normalize over the features: dim=-1 of (batch, heads, tokens, head_dim).",
        ),
        Words(
            "查询或键除以的是沿 token 轴的范数，而不是沿特征轴的。",
            "这样一个查询取决于所有 token，包括后面的和填充的，它的长度也不是 1。",
            "沿特征归一化：对 (batch, heads, tokens, head_dim) 用 dim=-1。",
        ),
    ),
    Fault(
        "norm-over-heads", FAULT, "layout",
        SELF(
            (
                "scores = q @ k.transpose(-2, -1)",
                "q, k = nn.functional.normalize(q), nn.functional.normalize(k)\n"
                "        scores = q @ k.transpose(-2, -1)",
            ),
            ("scores = scores / math.sqrt(self.head_dim)", "scores = scores * self.out_proj.bias.abs().sum().exp()"),
            at="q, k = nn.functional",
        ),
        Words(
            "Queries or keys are divided by their norm over the heads, not over the features.",
            "No head has vectors of length 1: how large its scores are depends on the other heads.",
            "Normalize over the features: dim=-1 of (batch, heads, tokens, head_dim); F.normalize's own default is 1.",
        ),
        Words(
            "查询或键除以的是沿头的轴的范数，而不是沿特征轴的。",
            "没有哪个头的向量长度是 1：一个头的分数有多大，取决于别的头。",
            "沿特征归一化：对 (batch, heads, tokens, head_dim) 用 dim=-1；F.normalize 默认 dim=1。",
        ),
        general="norm-over-tokens",
    ),
)  # fmt: skip
