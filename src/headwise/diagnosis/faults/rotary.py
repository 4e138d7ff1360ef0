"""Faults of rotary and absolute positions: what is rotated, how often, by which angles, and what tokens are given."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import IMPORTS, INIT, ROTARY, SELF

__all__ = ["FAULTS"]

ROTATED = "[low * cos - high * sin, high * cos + low * sin]"
QUERIES = "        q = self.rotate(q, first)\n"
KEYS = "        k = self.rotate(k, first)\n"

# a decoder's attention to a memory with positions
POSITIONS = Template(
    "POSITIONS",
    f"""{IMPORTS}{INIT}    def forward(self, x, memory, pos):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(memory + pos))
        v = self.split(self.v_proj(memory))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)).softmax(dim=-1)
        context = (weights @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
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
        "position-on-values", FAULT, "law",
        POSITIONS(
            ("self.k_proj(memory + pos)", "self.k_proj(memory)"), ("self.v_proj(memory)", "self.v_proj(memory + pos)"),
            at="self.v_proj(memory + pos)",
        ),
        Words(
            "{name} is added to the values, and not to the keys.",
            "Scores do not depend on the positions of keys, and what is read from a token holds its position.",
            "Add {name} to what the keys are made of; the values are made without it (arXiv:2005.12872).",
        ),
        Words(
            "{name} 加到了值上，没有加到键上。",
            "分数与键的位置无关，而从 token 读出的内容里混入了位置。",
            "把 {name} 加到用来计算键的输入上；计算值时不加（arXiv:2005.12872）。",
        ),
    ),
)  # fmt: skip
