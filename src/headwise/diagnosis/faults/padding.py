"""Faults of padding: rows and tokens that hold none, and masks made of other tokens than the keys."""

from headwise.diagnosis.faults.fault import FAULT, WARNING, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, INIT, SELF

__all__ = ["FAULTS"]

# a decoder of token numbers
TOKENS = Template(
    "TOKENS",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, vocabulary, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2)

    def forward(self, tgt, src):
        # tgt: (batch, queries), src: (batch, keys), token numbers, 0 at padding
        is_padding = (src == 0)[:, None, None, :]
        x, memory = self.embedding(tgt), self.embedding(src)
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(is_padding, torch.finfo(scores.dtype).min)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)

# of two frames one token
FRAMES = Template(
    "FRAMES",
    f"""{IMPORTS}{INIT}    def forward(self, x, lengths):
        x = self.subsample(x.transpose(1, 2)).transpose(1, 2)
        count = (lengths + 1) // 2
        places = torch.arange(x.shape[1], device=x.device)
        is_padding = places >= count[:, None]
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(is_padding[:, None, None], torch.finfo(scores.dtype).min)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""".replace("self.dropout = nn.Dropout(0.1)", "self.subsample = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)"),
)

FAULTS = (
    Fault(
        "mask-empty-row", WARNING, "law",
        CROSS(("torch.finfo(scores.dtype).min", 'float("-inf")'), at="scores.softmax"),
        Words(
            "A query whose keys are all masked becomes NaN here.",
            "One such row, which padding produces, turns the loss into NaN.",
            "Where rows can be empty, set their weights to 0 after the softmax.",
        ),
        Words(
            "所有键都被遮住的查询，在这里变成 NaN。",
            "填充就会产生这样的行，使整个损失变成 NaN。",
            "若可能有空行，在 softmax 之后把它的权重设为 0。",
        ),
        general="mask-nan",
    ),
    Fault(
        "empty-row-spreads", FAULT, "law",
        CROSS(
            ("mask == 0", "~(mask[:, None, :, None] & mask[:, None, None, :])"),
            ("torch.finfo(scores.dtype).min", 'float("-inf")'),
            (
                "return self.out_proj(context.flatten(2))",
                "context = self.out_proj(context.flatten(2))\n"
                "        return context.sum(dim=1) if mask is None else (context * mask[..., None]).sum(dim=1)",
            ),
            at="scores.softmax",
            call={
                **{name: ["B", "L", "D"] for name in ("query", "key", "value")},
                "_mask": {"argument": "mask", "means": "attend", "shape": ["B", "L"]},
            },
        ),
        Words(
            "A query whose keys are all masked becomes NaN here, and the whole result of its sample with it.",
            "NaN × 0 is NaN: to multiply padded positions by 0, or to give them no weight, takes no NaN away.",
            "Mask padded keys and not padded queries, or set the weights of such rows to 0 after the softmax.",
        ),
        Words(
            "所有键都被遮住的查询，在这里变成 NaN，并使它所在样本的结果全部变成 NaN。",
            "NaN × 0 还是 NaN：把填充的位置乘以 0，或者不给它们权重，都去不掉 NaN。",
            "只遮住填充的键，不要遮住填充的查询；或者在 softmax 之后把这样的行的权重设为 0。",
        ),
        general="mask-nan",
    ),
    Fault(
        "mask-of-queries", FAULT, "constraint",
        TOKENS(("(src == 0)", "(tgt == 0)"), at="scores = scores.masked_fill"),
        Words(
            "The mask of the keys is made of the queries' tokens.",
            "Padded keys are attended to, and real ones are masked where queries are padded; with another number of "
            "keys it raises an error.",
            "Make the mask of the tokens that the keys are made of.",
        ),
        Words(
            "键的掩码是用查询的 token 做的。",
            "填充的键被关注，而查询有填充之处，真实的键被屏蔽；键的个数不同时还会报错。",
            "用生成键的那些 token 来做掩码。",
        ),
        follows_layout=True,
    ),
    Fault(
        "padding-pooled", FAULT, "law",
        SELF(
            ("def forward(self, x):", "def forward(self, x, padding_mask):"),
            (
                "        weights = self.dropout(",
                "        hidden = ~padding_mask.bool()[:, None, None, :]\n"
                "        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)\n"
                "        weights = self.dropout(",
            ),
            ("self.out_proj(context.flatten(2))", "self.out_proj(context.flatten(2)).mean(dim=1)"),
        ),
        Words(
            "The tokens that the mask hides are pooled with the others.",
            "The result of a sample depends on its padding: it is another one in a batch with longer samples.",
            "Leave hidden tokens out: multiply by the mask, and divide the sum by the number of tokens that are left.",
        ),
        Words(
            "被掩码遮住的 token 也参与了池化。",
            "一个样本的结果取决于它的填充：同一批里有更长的样本时，结果就变了。",
            "池化时去掉被遮住的 token：乘以掩码，再除以剩下的 token 数。",
        ),
    ),
    Fault(
        "padding-attended", FAULT, "law",
        TOKENS(
            (
                "        x, memory = self.embedding(tgt), self.embedding(src)\n",
                "        x, memory = self.embedding(tgt), self.embedding(src)\n"
                "        k = v = self.split(memory)\n"
                "        scores = k @ k.transpose(-2, -1) / math.sqrt(self.head_dim)\n"
                "        scores = scores.masked_fill(is_padding, torch.finfo(scores.dtype).min)\n"
                "        memory = memory + (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)\n",
            ),
            (
                "        scores = scores.masked_fill(is_padding, torch.finfo(scores.dtype).min)\n        context",
                "        context",
            ),
            at="context = (",
        ),
        Words(
            "This attention sees the padding of {name}.",
            "The result of a sample depends on its padding: it is another one in a batch with longer samples.",
            "Give this attention the mask of the keys too (in torch's decoder memory_key_padding_mask).",
        ),
        Words(
            "这个注意力看到了 {name} 的填充。",
            "一个样本的结果取决于它的填充：同一批里有更长的样本时，结果就变了。",
            "把键的掩码也交给这个注意力（torch 的解码器里是 memory_key_padding_mask）。",
        ),
    ),
    Fault(
        "lengths-not-scaled", FAULT, "law",
        FRAMES(("count = (lengths + 1) // 2", "count = lengths"), at="is_padding = places"),
        Words(
            "{name} counts what came, and is compared with the places of the fewer tokens made of it.",
            "With fewer tokens than frames nothing is padding by these lengths, so that padding is attended to.",
            "Divide the lengths as the frames are: after a stride of 2, (lengths + 1) // 2.",
        ),
        Words(
            "{name} 数的是输入，却与由它得到的较少 token 的位置比较。",
            "token 比帧少，按这些长度就没有填充，于是填充受到注意。",
            "像帧那样缩短长度：步长为 2 时用 (lengths + 1) // 2。",
        ),
    ),
    Fault(
        "padding-of-other", FAULT, "source",
        TOKENS(
            (
                "        self.n_heads, self.head_dim = n_heads, d_model // n_heads\n",
                "        self.n_heads, self.head_dim = n_heads, d_model // n_heads\n"
                "        self.src_pad_idx, self.tgt_pad_idx = 0, 1\n",
            ),
            ("(src == 0)", "(src == self.tgt_pad_idx)"),
        ),
        Words(
            "The padding of this input is looked for by the number that is padding in the other one.",
            "Where the two numbers differ, real tokens are hidden and padding is seen.",
            "Compare with {name}.",
        ),
        Words(
            "用另一个输入的填充编号来判断这个输入的填充。",
            "两个编号不同时，真实的 token 被遮住，填充却被看到。",
            "改为与 {name} 比较。",
        ),
    ),
    Fault(
        "padding-of-table", FAULT, "law",
        TOKENS(
            (
                "        self.embedding = nn.Embedding(vocabulary, d_model)\n",
                "        self.embedding = nn.Embedding(vocabulary, d_model, padding_idx=1)\n",
            ),
            at="is_padding = (src",
        ),
        Words(
            "Token {was} is masked as padding; in the table of the same tokens padding is {wanted} (padding_idx).",
            "Real tokens {was} are masked, padding {wanted} is attended to, and its vector is never trained.",
            "Compare with {wanted}.",
        ),
        Words(
            "这里把 token {was} 当作填充来遮住，而同样的 token 在嵌入表里以 {wanted} 为填充（padding_idx）。",
            "真实的 token {was} 被遮住，填充 {wanted} 却被关注，而且它的向量从不训练。",
            "改为与 {wanted} 比较。",
        ),
    ),
)  # fmt: skip
