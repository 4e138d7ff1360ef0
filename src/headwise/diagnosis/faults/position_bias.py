"""Faults of position biases: what is added to scores by the distance of two tokens."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import CAUSAL, IMPORTS, SELF

__all__ = ["FAULTS"]

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
            at="padded = nn",
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
        "relative-table-start", FAULT, "law",
        SELF(
            (
                "        self.dropout = nn.Dropout(0.1)\n",
                "        self.dropout = nn.Dropout(0.1)\n"
                "        self.far = nn.Linear(self.head_dim, self.head_dim)\n"
                "        place = torch.arange(63, -64, -1.0)[:, None]\n"
                '        self.register_buffer("table", (place * 0.1 ** torch.arange(self.head_dim)).sin())\n',
            ),
            (
                "scores = scores / math.sqrt(self.head_dim)",
                "count = x.shape[1]\n"
                "        table = self.table[: 2 * count - 1]\n"
                "        by_place = nn.functional.pad(q @ self.far(table).transpose(0, 1), (1, 0)).flatten(2)\n"
                "        by_place = by_place.unflatten(2, (-1, count))[:, :, 1:].flatten(2).unflatten(2, (count, -1))\n"
                "        scores = (scores + by_place[..., :count]) / math.sqrt(self.head_dim)",
            ),
            at="table = self.table",
        ),
        Words(
            "The first {was} of the {near} rows of a table of distances are read, and not those around its middle.",
            "The middle row is that of distance 0: each pair reads the row of another distance, and which one depends "
            "on how many tokens there are.",
            "Read the rows around the middle: table[middle - length + 1 : middle + length].",
        ),
        Words(
            "读的是距离表 {near} 行中的前 {was} 行，而不是中间的那些行。",
            "中间一行是距离 0 的：每一对 token 读到的是别的距离的行，而且是哪一行取决于 token 的个数。",
            "读中间的那些行：table[middle - length + 1 : middle + length]。",
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
    Fault(
        "bias-heads-mixed", FAULT, "layout",
        OFFSETS(
            ("self.table[self.index].permute(2, 0, 1)", "self.table[self.index].view(-1, *self.index.shape)"),
            at="self.table[self.index].view",
        ),
        Words(
            "This view gives each head entries of the biases of several: {name} has a column for each head, and this "
            "last axis is read as the first.",
            "A view regroups entries in the order of memory, and exchanges no axes.",
            "Permute the heads to the front: view(tokens, tokens, heads).permute(2, 0, 1).",
        ),
        Words(
            "这里的变形让每个头读到几个头的偏置：{name} 每个头一列，最后一个轴却被当成了第一个轴。",
            "view 按内存次序重新分组，不交换轴。",
            "用 permute 把头换到最前：view(tokens, tokens, heads).permute(2, 0, 1)。",
        ),
    ),
)  # fmt: skip
