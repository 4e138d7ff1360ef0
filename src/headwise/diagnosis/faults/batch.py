"""Faults of the batch axis: batch elements that change each other."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import IMPORTS, INIT, MULTIHEAD, SELF

__all__ = ["FAULTS"]

SEGMENTS = Template(
    "SEGMENTS",
    f'''{IMPORTS}{INIT}    def forward(self, x, done):
        """x (B, L, D); done (B, L) bool, true at the last step of each episode."""
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        done = done.long()
        episode = done.cumsum(dim=1) - done
        allowed = (episode[:, :, None] == episode[:, None, :]).tril()[:, None]
        scores = (q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)).masked_fill(~allowed, float("-inf"))
        context = (self.dropout(scores.softmax(dim=-1)) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
''',
)
FAULTS = (
    Fault(
        "batch-length-confused", FAULT, "layout",
        MULTIHEAD((", batch_first=True", "")),
        Words(
            "The batch and token axes are swapped: batch elements attend to each other.",
            "The result of a batch element depends on the rest of the batch.",
            "Declare which axis is the batch, for example with batch_first=True.",
        ),
        Words(
            "批的维度与 token 的维度互换了：样本之间在互相关注。",
            "一个样本的结果取决于同一批里的其他样本。",
            "说明哪一维是批，例如 batch_first=True。",
        ),
        breaks_layout=True, needs_proof="samples", depends_on_layout=True,
    ),
    Fault(
        "sample-leak", FAULT, "law",
        SELF(("self.k_proj(x)", "self.k_proj(x - x.mean(dim=0))")),
        Words(
            "One batch element changes the result of another.",
            "The result of a batch element depends on the rest of the batch.",
            "Keep the batch axis separate in every operation.",
        ),
        Words(
            "一个样本改变了另一个样本的结果。",
            "一个样本的结果取决于同一批里的其他样本。",
            "每一步都不要跨越批的维度。",
        ),
        needs_proof="samples", depends_on_layout=True,
    ),
    Fault(
        "samples-unlike", FAULT, "law",
        SELF(
            (
                "scores = scores / math.sqrt(self.head_dim)",
                "slopes = torch.linspace(1, 2, self.n_heads, device=x.device).repeat_interleave(x.shape[0])\n"
                "        places = torch.arange(x.shape[1], device=x.device)\n"
                "        bias = slopes.view(x.shape[0], -1, 1, 1) * -(places[:, None] - places).abs()\n"
                "        scores = scores / math.sqrt(self.head_dim) + bias",
            ),
            at="scores = scores / math",
        ),
        Words(
            "Samples that hold the same numbers get different results here.",
            "The result of a sample depends on its place in the batch.",
            "Give all samples the same: a tensor of (batch * heads) is batch-major, so what is one for each head is "
            "repeated as a whole, repeat(batch, 1, 1), and not repeat_interleave(batch).",
        ),
        Words(
            "内容相同的样本在这里得到不同的结果。",
            "一个样本的结果取决于它在批里的位置。",
            "让所有样本得到同样的东西：(batch * heads) 的张量批维在前（batch-major），每个头一份的东西要整体重复 "
            "repeat(batch, 1, 1)，而不是 repeat_interleave(batch)。",
        ),
    ),
    Fault(
        "batch-position", FAULT, "layout",
        SELF(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n"
                "        self.places = nn.Parameter(torch.randn(64, 1, d_model))\n",
            ),
            (
                "        q = self.split(self.q_proj(x))\n",
                "        x = x + self.places[: x.shape[0]]\n        q = self.split(self.q_proj(x))\n",
            ),
            at="x = x + self.places",
        ),
        Words(
            "The rows of a table are added to the samples by their places in the batch, not to the tokens by theirs.",
            "All tokens of a sample get the same code, and another one in another batch: order is not told.",
            "Take the rows along the axis of the tokens: of (batch, tokens, features) table[: x.shape[1]].",
        ),
        Words(
            "表的各行按样本在批中的位置加上，而不是按 token 的位置。",
            "一个样本的所有 token 得到同一个编码，换一批又不同：次序没有表达出来。",
            "沿 token 轴取表的行：对（批，token，特征）取 table[: x.shape[1]]。",
        ),
    ),
    Fault(
        "single-sample-raises", FAULT, "law",
        SELF(("(weights @ v).transpose(1, 2)", "(weights @ v).squeeze().transpose(-3, -2)"), at="context = ("),
        Words(
            "With a batch of one the batch axis is removed here, and the call raises.",
            "It runs in training and fails for a single sample, as in inference and in the last batch.",
            "Say which axis is removed: squeeze(-1), not squeeze().",
        ),
        Words(
            "批里只有一个样本时，这里去掉了批的维度，调用随之出错。",
            "训练时能跑，遇到单个样本（推理时，或最后一批）就出错。",
            "说明去掉哪一维：squeeze(-1)，而不是 squeeze()。",
        ),
    ),
    Fault(
        "segment-end-moved", FAULT, "law",
        SEGMENTS(("done.cumsum(dim=1) - done", "done.cumsum(dim=1)")),
        Words(
            "The token that ends a segment, as {name} says, is counted to the next one here.",
            "The last token sees nothing of its own segment, and the next segment sees it.",
            "Take the flag itself away from the running count, cumsum(flags) - flags.",
        ),
        Words(
            "{name} 标记一段的最后一个 token，这里却把它算进了下一段。",
            "最后一个 token 看不到自己的一段，下一段却看得到它。",
            "从累计数里减去标记本身：cumsum(flags) - flags。",
        ),
        has_patch=True,
    ),
)  # fmt: skip
