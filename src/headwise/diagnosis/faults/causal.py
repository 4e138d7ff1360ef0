"""Faults of the masks that a class makes itself: which earlier and later keys a query attends to."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import CAUSAL, IMPORTS, INIT

__all__ = ["FAULTS"]

FILL = 'scores = scores.masked_fill(~allowed, float("-inf"))'

# a layer of a decoder
DECODER = Template(
    "DECODER",
    f"""{IMPORTS}class Heads(nn.Module):
    def __init__(self, d_model, n_heads, is_causal):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.is_causal = n_heads, is_causal
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, memory):
        q = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.kv_proj(memory).unflatten(-1, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out_proj(context.transpose(1, 2).flatten(2))


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.to_self = Heads(d_model, n_heads, is_causal=True)
        self.to_memory = Heads(d_model, n_heads, is_causal=False)

    def forward(self, tgt, memory):
        tgt = tgt + self.to_self(tgt, tgt)
        return tgt + self.to_memory(tgt, memory)
""",
)

# earlier tokens that are near
LOCAL = Template(
    "LOCAL",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        places = torch.arange(x.shape[1], device=x.device)
        later = places[None, :] > places[:, None]
        far = places[:, None] - places[None, :] >= 4
        hidden_mask = later | far
        scores = scores.masked_fill(hidden_mask, torch.finfo(scores.dtype).min)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""".replace("        self.dropout = nn.Dropout(0.1)\n", ""),
)

# a model of the next token that takes its own loss
NEXT = Template(
    "NEXT",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, vocabulary, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, vocabulary)

    def forward(self, ids, with_loss=False):
        # ids: (batch, tokens)
        qkv = self.qkv_proj(self.embedding(ids)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.out_proj(context.transpose(1, 2).flatten(2))
        if not with_loss:
            return logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
""",
)

# a model of the next token that goes on from a text
GENERATES = Template(
    "GENERATES",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, vocabulary, d_model, n_heads, block_size=8):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.block_size = n_heads, block_size
        self.embedding, self.positions = nn.Embedding(vocabulary, d_model), nn.Embedding(block_size, d_model)
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, vocabulary)

    def forward(self, ids):
        # ids: (batch, tokens)
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        q, k, v = self.qkv_proj(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(context.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        for _ in range(max_new_tokens):
            logits = self(ids[:, -self.block_size :])
            ids = torch.cat([ids, logits[:, -1].softmax(dim=-1).multinomial(1)], dim=1)
        return ids
""",
)

FAULTS = (
    Fault(
        "later-tokens-read", FAULT, "law",
        CAUSAL(
            ("        self.dropout = nn.Dropout(0.1)\n", "        self.dropout = nn.Dropout(0.1)\n"
             "        self.near = nn.Conv1d(d_model, d_model, 3, padding=1)\n"),
            ("        q = self.split(", "        x = self.near(x.mT).mT\n        q = self.split("),
            at="self.near =",
        ),
        Words(
            "This step gives a token something of later tokens, though all attention looks back.",
            "In training each token is told of the one that it should predict; in generation that token does not "
            "exist yet.",
            "Let the step read earlier tokens alone: pad a convolution at the left, normalise each token by itself.",
        ),
        Words(
            "所有注意力都只向前看，这一步却让 token 得到后面 token 的内容。",
            "训练时每个 token 已经知道它要预测的下一个；生成时那个 token 还不存在。",
            "让这一步只读前面的 token：卷积只在左侧填充，归一化只对每个 token 自己做。",
        ),
    ),
    Fault(
        "generation-window", FAULT, "law",
        GENERATES(("ids[:, -self.block_size :]", "ids[:, : self.block_size]")),
        Words(
            "{name} crops a long text to its first tokens, not to its last.",
            "Once the window is full, each new token follows from the same old tokens: what was generated since is "
            "not read.",
            "Crop to the last tokens: ids[:, -block_size:].",
        ),
        Words(
            "{name} 把过长的文本截成最前面的 token，而不是最后面的。",
            "窗口满了以后，每个新 token 都由同样的旧 token 得出，后来生成的内容没有读到。",
            "截取最后面的 token：ids[:, -block_size:]。",
        ),
    ),
    Fault(
        "loss-shift", FAULT, "law",
        NEXT(
            ("logits[:, :-1].flatten(0, 1)", "logits[:, 1:].flatten(0, 1)"),
            ("ids[:, 1:].flatten()", "ids[:, :-1].flatten()"),
            at="return nn.functional.cross_entropy(",
        ),
        Words(
            "The loss compares each output with a number of {name} that the model has already seen.",
            "It learns to repeat its input: the loss becomes small, and what is generated makes no sense.",
            "Compare the outputs but the last, [:, :-1], with the tokens but the first, [:, 1:].",
        ),
        Words(
            "损失把每个输出与 {name} 中它已经看到的数相比。",
            "学到的是重复输入：损失变得很小，生成的内容却没有意义。",
            "用除最后一个以外的输出 [:, :-1] 与除第一个以外的 token [:, 1:] 相比。",
        ),
    ),
    Fault(
        "causal-across", FAULT, "layout",
        DECODER(("is_causal=False", "is_causal=True"), at="return tgt +"),
        Words(
            "Attention to another input hides its later keys, as if both were one sequence.",
            "The first query sees one key of the other input, the second sees two; the positions of two inputs say "
            "nothing about each other.",
            "Use the causal mask in self-attention alone.",
        ),
        Words(
            "对另一个输入的注意力遮住了它后面的键，好像两者是同一个序列。",
            "第一个查询只看到另一个输入的一个键，第二个看到两个；而两个输入的位置彼此没有关系。",
            "因果掩码只用在自注意力里。",
        ),
    ),
    Fault(
        "causal-missing", FAULT, "formula",
        CAUSAL((FILL, FILL.removeprefix("scores = ")), at="scores.masked_fill"),
        Words(
            "A query attends to later keys.",
            "In training each token attends to the one that it should predict; in generation that token does not "
            "exist yet.",
            "Mask the keys whose position is greater than that of the query.",
        ),
        Words(
            "查询可以看到它后面的键。",
            "训练时每个 token 都能看到它要预测的下一个；生成时那个 token 还不存在。",
            "遮住位置大于查询位置的键。",
        ),
    ),
    Fault(
        "causal-zeroed", FAULT, "formula",
        CAUSAL((FILL, "scores = scores * allowed")),
        Words(
            "The scores of later keys are set to a constant, which does not mask them in the softmax.",
            "exp(0) is 1: a query attends to later keys.",
            "Fill the scores of later keys with -inf before the softmax; do not multiply by 0.",
        ),
        Words(
            "后面的键的分数被设成了常数，softmax 并不会因此遮住它们。",
            "exp(0) 等于 1：查询仍能看到它后面的键。",
            "在 softmax 之前把后面的键的分数填成 -inf，不要乘以 0。",
        ),
        general="causal-missing",
    ),
    Fault(
        "causal-offset", FAULT, "formula",
        CAUSAL((".tril()", ".tril(1)")),
        Words(
            "The causal mask is off by one.",
            "A query attends to the token that it should predict, or does not attend to itself.",
            "Allow position i to attend to the keys 0 to i.",
        ),
        Words(
            "因果掩码差了一位。",
            "查询看到了它要预测的 token，或者看不到自己。",
            "让位置 i 看到键 0 到 i。",
        ),
        has_patch=True,
    ),
    Fault(
        "causal-inverted", FAULT, "formula",
        CAUSAL((".tril()", ".triu()")),
        Words(
            "A query attends to later keys and not to earlier ones.",
            "Each token attends only to what it should predict.",
            "Mask the keys whose position is greater than that of the query.",
        ),
        Words(
            "查询看到的是后面的键，而不是前面的键。",
            "每个 token 只看到后面的内容，而那正是要预测的。",
            "遮住位置大于查询位置的键。",
        ),
        has_patch=True,
    ),
    Fault(
        "mask-unused", FAULT, "source",
        LOCAL(
            ("        scores = scores.masked_fill(hidden_mask, torch.finfo(scores.dtype).min)\n", ""),
            at="hidden_mask =",
        ),
        Words(
            "{name} is made here and read nowhere: it masks nothing.",
            "Tokens attend to keys that the mask was to hide.",
            "Give it to the attention, or apply it to the scores before the softmax.",
        ),
        Words(
            "{name} 在这里生成，却没有任何地方读它：它什么也不遮。",
            "token 会看到本应遮住的键。",
            "把它交给注意力，或者在 softmax 之前用到分数上。",
        ),
    ),
    Fault(
        "mask-unmet", FAULT, "law",
        LOCAL(("later | far", "later & far")),
        Words(
            "The two conditions of this mask never hold together: it is the same everywhere.",
            "No key is masked, or every key is, however long the sequence is.",
            "Join the conditions with | where each of them alone masks a key, and with & where both must allow it.",
        ),
        Words(
            "这个掩码的两个条件从不同时成立：它处处一样。",
            "无论序列多长，要么一个键也不遮，要么全都遮住。",
            "任一条件就该遮住时用 | 连接；两个条件都要允许时用 & 连接。",
        ),
    ),
    Fault(
        "causal-replaced", FAULT, "law",
        CAUSAL(
            ("def forward(self, x):", "def forward(self, x, padding_mask=None):"),
            (
                f"        {FILL}",
                "        if padding_mask is not None:\n            allowed = padding_mask.bool()[:, None, None, :]\n"
                "        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)",
            ),
            at="scores.masked_fill",
        ),
        Words(
            "When a mask of the keys is given, queries see later keys.",
            "The mask that is given takes the place of the causal mask that the code makes without it.",
            "Combine both masks: a pair is allowed where both allow it.",
        ),
        Words(
            "给出键的掩码时，查询会关注后面的键。",
            "给出的掩码取代了不给掩码时代码自己构造的因果掩码。",
            "把两个掩码合在一起：两者都允许的位置才允许。",
        ),
    ),
)  # fmt: skip
