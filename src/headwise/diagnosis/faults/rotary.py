"""Faults of positions: what is rotated, how often, and by which angles, and what is added to scores by distance."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import CAUSAL, IMPORTS, ROTARY, SELF

__all__ = ["FAULTS"]

ROTATED = "[low * cos - high * sin, high * cos + low * sin]"
QUERIES = "        q = self.rotate(q, first)\n"
KEYS = "        k = self.rotate(k, first)\n"

# a window with a bias for each offset of two tokens
OFFSETS = Template(
    "OFFSETS",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads, window=4):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, n_heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        offsets = places[:, :, None] - places[:, None, :] + window - 1
        index = offsets[0] * (2 * window - 1) + offsets[1]
        self.register_buffer("index", index)
        self.qkv, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim) + self.table[self.index].permute(2, 0, 1)
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
""",
)

FAULTS = (
    Fault(
        "rotary-wrong", FAULT, "law",
        ROTARY((ROTATED, "[low * cos + high * sin, high * cos + low * sin]")),
        Words(
            "The rotation by position is inconsistent: scores depend on more than the distance.",
            "Relative positions are lost.",
            "Rotate queries and keys, and only these, with the same pairs and positions.",
        ),
        Words(
            "旋转位置编码前后不一致：分数不只取决于距离。",
            "相对位置信息丢失。",
            "只旋转查询与键，用同样的配对与位置。",
        ),
        has_patch=True, needs_proof="rotation",
    ),
    Fault(
        "rotary-axis", FAULT, "law",
        ROTARY(
            ("first + x.shape[2]", "first + x.shape[1]"),
            ("positions[:, None] * 10000.0", "positions[:, None, None] * 10000.0"),
            at="q = self.rotate(q, first)", call={"x": ["B", "L", "D"]},
        ),
        Words(
            "The rotation turns each head by another angle, and all positions of a head by the same.",
            "The scores do not depend on how far apart two tokens are.",
            "Count positions along the axis of the tokens: rotate before the heads are moved in front of them, or take "
            "the other axis.",
        ),
        Words(
            "旋转的角度随头而变，同一个头的所有位置却转同样的角度。",
            "分数与两个 token 相距多远无关。",
            "沿 token 的维度数位置：在把头移到 token 前面之前旋转，或者换成另一个维度。",
        ),
    ),
    Fault(
        "rotary-on-values", FAULT, "law",
        ROTARY((KEYS, f"{KEYS}        v = self.rotate(v, first)\n"), at="v = self.rotate(v"),
        Words(
            "The values are rotated by position too.",
            "What a token contributes to another depends on its absolute position.",
            "Rotate queries and keys only.",
        ),
        Words(
            "值也按位置做了旋转。",
            "一个 token 对另一个 token 的贡献取决于它的绝对位置。",
            "只旋转查询与键。",
        ),
        has_patch=True, general="rotary-wrong", removes=True,
    ),
    Fault(
        "rotary-keys-missing", FAULT, "law",
        ROTARY((KEYS, ""), at="q = self.rotate"),
        Words(
            "The queries are rotated by position, the keys are not.",
            "A score depends on the position of the query, not on its distance to the key.",
            "Rotate the keys as the queries are rotated.",
        ),
        Words(
            "查询按位置做了旋转，键没有。",
            "分数取决于查询的位置，而不是它与键的距离。",
            "像旋转查询那样旋转键。",
        ),
        general="rotary-wrong",
    ),
    Fault(
        "rotary-queries-missing", FAULT, "law",
        ROTARY((QUERIES, ""), at="k = self.rotate"),
        Words(
            "The keys are rotated by position, the queries are not.",
            "A score depends on the position of the key, not on its distance to the query.",
            "Rotate the queries as the keys are rotated.",
        ),
        Words(
            "键按位置做了旋转，查询没有。",
            "分数取决于键的位置，而不是它与查询的距离。",
            "像旋转键那样旋转查询。",
        ),
        has_patch=True, general="rotary-wrong",
    ),
    Fault(
        "rotary-twice", FAULT, "law",
        ROTARY((QUERIES, "        q = self.rotate(self.rotate(q, first), first)\n")),
        Words(
            "Queries or keys are rotated by position more often than the other.",
            "Scores depend on more than the distance between query and key.",
            "Rotate queries and keys once each.",
        ),
        Words(
            "查询或键按位置旋转的次数比另一方多。",
            "分数不只取决于查询与键的距离。",
            "查询与键各旋转一次。",
        ),
        has_patch=True, general="rotary-wrong", removes=True,
    ),
    Fault(
        "position-cache", FAULT, "law",
        ROTARY((KEYS, "        k = self.rotate(k)\n")),
        Words(
            "With a cache, the positions of new tokens start at the wrong number.",
            "The distances between new and cached tokens are wrong.",
            "Count the positions of the new tokens from the end of the cache.",
        ),
        Words(
            "有缓存时，新 token 的位置从错误的数开始。",
            "新的 token 与缓存的 token 之间的距离是错的。",
            "新 token 的位置从缓存的末尾数起。",
        ),
        general="rotary-wrong",
    ),
    Fault(
        "distance-bias-sign", FAULT, "law",
        SELF(
            (
                "scores = scores / math.sqrt(self.head_dim)",
                "place = torch.arange(x.shape[1])\n"
                "        far = (place[:, None] - place).abs()\n"
                "        scores = scores / math.sqrt(self.head_dim) + 0.5 * far",
            ),
            at="+ 0.5 * far",
        ),
        Words(
            "What is added to the scores grows with the distance of a key: far keys are favoured.",
            "A linear bias of distances (ALiBi) is to take from the scores of far keys, and this one adds to them.",
            "Subtract the slope times the distance.",
        ),
        Words(
            "加到分数上的量随键的距离增大：远处的键被偏爱。",
            "线性的距离偏置（ALiBi）应当减小远处键的分数，这里却增大了。",
            "减去斜率与距离的乘积。",
        ),
    ),
    Fault(
        "relative-shift-wrong", FAULT, "law",
        CAUSAL(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n        self.far = nn.Linear(self.head_dim, self.head_dim)\n",
            ),
            (
                "scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)",
                "places = torch.arange(x.shape[1] - 1, -1, -1.0)[:, None]\n"
                "        table = self.far((places * 0.1 ** torch.arange(self.head_dim)).sin())\n"
                "        by_place = q @ table.transpose(0, 1)\n"
                "        padded = nn.functional.pad(by_place, (1, 0)).flatten(2).unflatten(2, (-1, x.shape[1]))\n"
                "        by_place = padded[:, :, :-1]\n"
                "        scores = (q @ k.transpose(-2, -1) + by_place) / math.sqrt(self.head_dim)",
            ),
            at="by_place = q",
        ),
        Words(
            "The shift of the product of the queries and a table gives visible pairs the numbers of other queries.",
            "The term of a pair is not that of its own query and distance.",
            "Pad a zero in front of each row, view the result with one row more than before, and drop the first row "
            "(arXiv:1901.02860, app. B).",
        ),
        Words(
            "查询与距离表的乘积移位之后，可见的查询和键得到的是别的查询的数。",
            "这一项不是由该查询自己和它与键的距离得出的。",
            "在每一行前面补一个零，把结果看成比原来多一行，再去掉第一行（arXiv:1901.02860，附录 B）。",
        ),
    ),
    Fault(
        "relative-shift-missing", FAULT, "law",
        SELF(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n        self.far = nn.Linear(self.head_dim, self.head_dim)\n",
            ),
            (
                "scores = scores / math.sqrt(self.head_dim)",
                "count = x.shape[1]\n"
                "        place = torch.arange(count - 1, -count, -1.0)[:, None]\n"
                "        table = self.far((place * 0.1 ** torch.arange(self.head_dim)).sin())\n"
                "        by_place = q @ table.transpose(0, 1)\n"
                "        scores = (scores + by_place[..., :count]) / math.sqrt(self.head_dim)",
            ),
            at="by_place = q",
        ),
        Words(
            "The product of the queries and a table with a row for each distance is added unshifted: for a key all "
            "queries read the same row.",
            "The term depends on the place of the key alone, not on its distance to the query.",
            "Shift row i of the product so that key j reads the row of the distance i - j (arXiv:1901.02860, app. B).",
        ),
        Words(
            "查询与距离表（每个距离一行）的乘积没有移位就加上了：对同一个键，所有查询读的是同一行。",
            "这一项只取决于键的位置，与它到查询的距离无关。",
            "把乘积的第 i 行移位，使键 j 读到距离 i - j 的那一行（arXiv:1901.02860，附录 B）。",
        ),
    ),
    Fault(
        "position-constant", FAULT, "law",
        SELF(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n"
                "        self.positions = nn.Parameter(torch.randn(1, 64, d_model))\n",
            ),
            (
                "        q = self.split(self.q_proj(x))\n",
                "        x = x + self.positions[:, x.shape[1]]\n        q = self.split(self.q_proj(x))\n",
            ),
            at="x = x + self.positions",
        ),
        Words(
            "One row of {name}, that of the number of tokens, is added to all tokens, and not to each token its own.",
            "What is the same for all tokens tells no order, and another length takes another row.",
            "Take as many rows as there are tokens: {name}[:, :length] of (1, positions, features).",
        ),
        Words(
            "{name} 中与 token 数对应的一行加到了所有 token 上，而不是每个 token 加自己的一行。",
            "对所有 token 都相同的量不表达次序，长度不同时取的又是另一行。",
            "有多少个 token 就取多少行：对（1，位置，特征）取 {name}[:, :length]。",
        ),
    ),
    Fault(
        "offsets-share-bias", FAULT, "law",
        OFFSETS(("offsets[0] * (2 * window - 1) + offsets[1]", "offsets[0] + offsets[1]")),
        Words(
            "{name} gives pairs of different offsets one row of the table of biases.",
            "The table has a row for each offset of a window, and some rows are never read.",
            "Number the offsets: (dy + h - 1) * (2 * w - 1) + dx + w - 1 (arXiv:2103.14030).",
        ),
        Words(
            "{name} 让相对位置不同的几对 token 共用偏置表的一行。",
            "表里每个相对位置各有一行，有些行从未读到。",
            "给相对位置编号：(dy + h - 1) * (2 * w - 1) + dx + w - 1（arXiv:2103.14030）。",
        ),
    ),
    Fault(
        "position-bias-constant", FAULT, "law",
        SELF(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n        self.near = nn.Embedding(32, n_heads)\n",
            ),
            (
                "scores = scores / math.sqrt(self.head_dim)",
                "place = torch.arange(x.shape[1])\n"
                "        far = (place[:, None] - place).abs().clamp(31)\n"
                "        bias = self.near(far).permute(2, 0, 1)\n"
                "        scores = scores / math.sqrt(self.head_dim) + bias",
            ),
            at="far = (place",
        ),
        Words(
            "Every pair of tokens reads the same row of {name}.",
            "What is the same for all keys changes no weight: distances are not told apart.",
            "Check the sign and the range of the distances that are looked up.",
        ),
        Words(
            "每一对 token 读到的都是 {name} 的同一行。",
            "对所有键都相同的量不改变任何权重：距离无从区分。",
            "检查所查距离的符号和范围。",
        ),
    ),
)  # fmt: skip
