"""Faults of the softmax: the axis over which the weights of a query sum to 1, and what stands instead of a softmax."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, INIT, SELF

__all__ = ["FAULTS"]

# a mask of keys
ALLOWED = {"_mask": {"argument": "mask", "means": "attend", "shape": ["B", 1, 1, "S"]}}
SOFTMAX = "scores.softmax(dim=-1)"

# tokens that attend to each other, then weighted into one
POOLED = Template(
    "POOLED",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        tokens = self.out_proj(context.flatten(2))
        shares = self.pool(tokens).softmax(dim=1)
        return (shares * tokens).sum(dim=1)
""".replace("self.dropout = nn.Dropout(0.1)", "self.pool = nn.Linear(d_model, 1)"),
)

# linear attention: each token reads a running sum of products of keys with values
LINEAR = Template(
    "LINEAR",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        shape = (*x.shape[:2], self.n_heads, self.head_dim)
        q = nn.functional.elu(self.q_proj(x).view(shape)) + 1
        k = nn.functional.elu(self.k_proj(x).view(shape)) + 1
        v = self.v_proj(x).view(shape)
        state = torch.einsum("blhd,blhe->blhde", k, v).cumsum(dim=1)
        context = torch.einsum("blhd,blhde->blhe", q, state)
        normaliser = (q * k.cumsum(dim=1)).sum(dim=-1, keepdim=True)
        return self.out_proj((context / normaliser).flatten(2))
""",
)

EDGES = Template(
    "EDGES",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.proj = nn.Linear(d_model, d_model)
        self.source_score, self.target_score = nn.Linear(d_model, 1), nn.Linear(d_model, 1)

    def share(self, scores, index, n_nodes):
        exponentials = (scores - scores.max()).exp()
        return exponentials / scores.new_zeros(n_nodes).index_add(0, index, exponentials)[index]

    def forward(self, x, edge_index):
        # x: (nodes, d_model); edge_index: (2, edges), the node where each begins and the node where it ends
        source, target = edge_index
        h = self.proj(x)
        scores = nn.functional.leaky_relu(self.source_score(h)[source] + self.target_score(h)[target]).squeeze(-1)
        weights = self.share(scores, target, len(x))
        return torch.zeros_like(h).index_add(0, target, h[source] * weights.unsqueeze(-1))
""",
)

# a softmax over blocks of keys, which carries the largest score and both sums from block to block
BLOCKS = Template(
    "BLOCKS",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        q = self.split(self.q_proj(x)) / math.sqrt(self.head_dim)
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
        total, context = torch.zeros_like(largest), torch.zeros_like(q)
        for start in range(0, k.shape[2], self.block_size):
            block = slice(start, start + self.block_size)
            scores = q @ k[:, :, block].transpose(-2, -1)
            larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
            weights, rescale = (scores - larger).exp(), (largest - larger).exp()
            total = total * rescale + weights.sum(dim=-1, keepdim=True)
            context = context * rescale + weights @ v[:, :, block]
            largest = larger
        return self.out_proj((context / total).transpose(1, 2).flatten(2))
""".replace("self.dropout = nn.Dropout(0.1)", "self.block_size = block_size").replace(
        "d_model, n_heads):", "d_model, n_heads, block_size=64):"
    ),
)

FAULTS = (
    Fault(
        "softmax-axis", FAULT, "formula",
        SELF((SOFTMAX, "scores.softmax(dim=-2)")),
        Words(
            "The softmax runs over another axis than that of the keys.",
            "The weights of a query do not sum to 1 over its keys.",
            "Apply the softmax along the key axis, dim={axis}.",
        ),
        Words(
            "softmax 没有沿键的维度计算，而是沿别的维度。",
            "每个查询对各个键的权重之和不是 1。",
            "沿键的维度计算 softmax，dim={axis}。",
        ),
        has_patch=True, depends_on_layout=True,
    ),
    Fault(
        "softmax-axis-merged", FAULT, "formula",
        SELF((SOFTMAX, "scores.flatten(2).softmax(dim=-1).view_as(scores)")),
        Words(
            "The softmax runs over an axis in which the keys are merged with another axis.",
            "The weights of a query do not sum to 1 over its keys.",
            "Apply the softmax along the key axis before it is merged with another.",
        ),
        Words(
            "softmax 所沿的维度里，键与别的维度合并在了一起。",
            "每个查询对各个键的权重之和不是 1。",
            "在与别的维度合并之前，只沿键的维度计算 softmax。",
        ),
        general="softmax-axis", depends_on_layout=True,
    ),
    Fault(
        "softmax-single-entry", FAULT, "law",
        POOLED(("self.pool(tokens).softmax(dim=1)", "self.pool(tokens).softmax(dim=-1)")),
        Words(
            "The softmax runs over an axis that has one entry.",
            "Each weight is 1, whatever the scores are.",
            "Apply the softmax along the axis of the tokens that are weighted.",
        ),
        Words(
            "softmax 所沿的维度只有一个元素。",
            "无论分数是多少，每个权重都是 1。",
            "沿着被加权的那些 token 的维度计算 softmax。",
        ),
        general="softmax-axis",
    ),
    Fault(
        "normaliser-wrong", FAULT, "law",
        LINEAR(("k.cumsum(dim=1)", "k.cumsum(dim=2)")),
        Words(
            "The sum over tokens is not divided by the sum of its weights.",
            "The weights of a query do not sum to 1: where all values are 1, the result is not.",
            "Divide by the queries times {name} of the keys that weigh the values.",
        ),
        Words(
            "对 token 的加权和除以的不是权重之和。",
            "一个查询的权重之和不是 1：所有的值都是 1 时，结果并不是 1。",
            "除以查询与（给值加权的那些）键的 {name} 之积。",
        ),
    ),
    Fault(
        "softmax-blocks", FAULT, "law",
        BLOCKS(("context = context * rescale", "context = context")),
        Words(
            "The online softmax over blocks of keys gives another result for blocks of another size.",
            "The sums of earlier blocks are still relative to an older running maximum of the scores.",
            "Rescale both sums by exp(old maximum - new maximum) in each block, before the block is added.",
        ),
        Words(
            "按键分块的在线 softmax，换一个块大小结果就不同。",
            "之前各块的累加值仍以旧的累积最大分数（running max）为准。",
            "每处理一块，先把两个累加值都乘以 exp(old - new)（old、new 为更新前后的最大值），再加上这一块。",
        ),
    ),
    Fault(
        "softmax-edges", FAULT, "law",
        EDGES(("self.share(scores, target, len(x))", "self.share(scores, source, len(x))")),
        Words(
            "The softmax over edges goes over those that leave a node; their messages are added up where they enter.",
            "The weights of what a node receives do not sum to 1.",
            "Share the scores out among the edges that enter the same node.",
        ),
        Words(
            "边上的 softmax 对离开同一节点的边做归一化，而消息却在边到达的节点处求和。",
            "一个节点收到的消息的权重之和不是 1。",
            "对进入同一节点的边做 softmax。",
        ),
    ),
    Fault(
        "softmax-missing", FAULT, "formula",
        SELF((SOFTMAX, "scores"), at="scores = scores"),
        Words(
            "No softmax is applied: the scores themselves weight the values.",
            "The weights can be negative and do not sum to 1.",
            "Apply softmax along the key axis, dim={axis}, before the weights multiply the values.",
        ),
        Words(
            "没有做 softmax：直接用分数对值加权。",
            "权重可能为负，之和也不是 1。",
            "在权重与值相乘之前，沿键的维度做 softmax，dim={axis}。",
        ),
        has_patch=True,
    ),
    Fault(
        "softmax-replaced", FAULT, "formula",
        CROSS(
            ("torch.finfo(scores.dtype).min", "-1e4"),
            (SOFTMAX, "nn.functional.normalize(scores, dim=-1)"),
            call=ALLOWED,
        ),
        Words(
            "The weights come from {name} instead of a softmax: those of a query do not sum to 1.",
            "The weights can be negative, and a score of -inf, which a softmax turns into 0, becomes NaN.",
            "Apply softmax along the key axis, dim={axis}.",
        ),
        Words(
            "权重由 {name} 得出，而不是 softmax：每个查询的权重之和不是 1。",
            "权重可能为负；分数 -inf 经 softmax 得 0，在这里却变成 NaN。",
            "沿键的维度（dim={axis}）做 softmax。",
        ),
        has_patch=True, general="softmax-missing",
    ),
    Fault(
        "softmax-alternative", NOTE, "formula",
        SELF((SOFTMAX, "scores.sigmoid()")),
        Words(
            "The weights come from {name} instead of a softmax: those of a query need not sum to 1.",
            "This is another kind of attention, and correct as such.",
            "Where softmax attention is intended, apply a softmax along the key axis.",
        ),
        Words(
            "权重由 {name} 得出，而不是 softmax：每个查询的权重之和不一定是 1。",
            "这是另一种注意力，本身不是错误。",
            "若要的是 softmax 注意力，就沿键的维度做 softmax。",
        ),
        general="softmax-missing",
    ),
    Fault(
        "softmax-twice", FAULT, "formula",
        SELF((SOFTMAX, "scores.softmax(dim=-1).softmax(dim=-1)")),
        Words(
            "A softmax is applied to the output of another softmax.",
            "Weights lie between 0 and 1, so that the second softmax makes them almost equal.",
            "Apply the softmax once, to the scores.",
        ),
        Words(
            "对 softmax 的输出又做了一次 softmax。",
            "权重在 0 与 1 之间，第二次 softmax 会使它们几乎相等。",
            "只对分数做一次 softmax。",
        ),
    ),
    Fault(
        "softmax-log", FAULT, "formula",
        SELF((SOFTMAX, "scores.log_softmax(dim=-1)")),
        Words(
            "The weights are the logarithms of a softmax, none of which is above 0.",
            "The values are multiplied by negative numbers that do not sum to 1.",
            "Use softmax; log_softmax is for losses.",
        ),
        Words(
            "权重是 softmax 的对数，都不大于 0。",
            "值被乘以负数，这些数之和也不是 1。",
            "改用 softmax；log_softmax 用于损失函数。",
        ),
    ),
    Fault(
        "softmax-unnormalised", FAULT, "formula",
        SELF((SOFTMAX, "(scores - scores.amax(dim=-1, keepdim=True)).exp()")),
        Words(
            "The weights are the exponentials of the scores, not divided by their sum.",
            "The weights of a query do not sum to 1: the output grows with the number of keys.",
            "Divide by the sum over the keys, or use softmax(dim={axis}).",
        ),
        Words(
            "权重是分数的指数，没有除以它们的和。",
            "每个查询的权重之和不是 1：键越多，输出越大。",
            "除以沿键求的和，或用 softmax(dim={axis})。",
        ),
    ),
)  # fmt: skip
