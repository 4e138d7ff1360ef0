"""Faults of a cache: whether decoding in steps gives the output of all tokens at once."""

from headwise.diagnosis.faults.fault import FAULT, WARNING, Fault, Template, Words
from headwise.diagnosis.faults.templates import CACHED, IMPORTS, INIT

__all__ = ["FAULTS"]

JOIN_KEYS = "k = torch.cat([past[0], k], dim=2)"
JOIN_VALUES = "v = torch.cat([past[1], v], dim=2)"
# keys of a window of 3
WINDOW = Template("WINDOW", CACHED.text.replace(".tril(m - n)", ".tril(m - n).triu(m - n - 2)"))
# a cache that keeps what a window holds beside the token that comes
ROLLING = Template(
    "ROLLING",
    f"""{IMPORTS}{INIT}    def forward(self, x, past=None):
        window, allowed = 3, None
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if past is not None and x.shape[1] > 1:
            raise ValueError("after a cache comes one token at a time")
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        else:
            n = x.shape[1]
            allowed = torch.ones(n, n, dtype=torch.bool, device=x.device).tril().triu(1 - window)
        context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        kept = k[:, :, 1 - window :], v[:, :, 1 - window :]
        return self.out_proj(context.transpose(1, 2).flatten(2)), kept
""",
)
FILL = '        scores = scores.masked_fill(~allowed, float("-inf"))\n'

# a cache in attributes of the module
STATEFUL = Template(
    "STATEFUL",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.cache_k = self.cache_v = None

    def forward(self, x, use_cache=False):
        q, k, v = self.qkv_proj(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        if use_cache:
            if self.cache_k is not None:
                k = torch.cat([self.cache_k, k], dim=2)
                v = torch.cat([self.cache_v, v], dim=2)
            self.cache_k, self.cache_v = k, v
        n, m = q.shape[2], k.shape[2]
        allowed = torch.ones(n, m, dtype=torch.bool, device=x.device).tril(m - n)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(~allowed, float("-inf"))
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))

    def reset_cache(self):
        self.cache_k, self.cache_v = None, None
""",
)

# token after token by a method of its own
STEPS = Template(
    "STEPS",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return self.qkv_proj(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        q, k, v = self.split(x)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(context.transpose(1, 2).flatten(2))

    def step(self, x, state=None):
        q, k, v = self.split(x[:, None])
        if state is not None:
            k, v = torch.cat([state[0], k], dim=2), torch.cat([state[1], v], dim=2)
        context = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0], (k, v)
""",
)

FAULTS = (
    Fault(
        "step-differs", FAULT, "law",
        STEPS(
            ("torch.cat([state[1], v], dim=2)", "torch.cat([v, state[1]], dim=2)"),
            at="q, k, v = self.split(x[:, None])",
        ),
        Words(
            "{name}, token by token, gives other results than forward for all tokens at once.",
            "Generation does not compute the model that was trained.",
            "Compare it with forward: which keys and values it keeps, in which order and at which positions, their "
            "scale and their heads.",
        ),
        Words(
            "{name} 逐个处理 token 得到的结果，与 forward 一次处理全部 token 的结果不同。",
            "生成时用的不是训练出来的模型。",
            "与 forward 对照：它保存哪些键和值，按什么顺序、在什么位置，用什么缩放，头怎样对应。",
        ),
    ),
    Fault(
        "causal-cache", FAULT, "law",
        CACHED(("tril(m - n)", "tril()")),
        Words(
            "With a cache, the causal mask starts at the wrong position.",
            "A decoding step attends to other keys than the same token does when all tokens are passed at once.",
            "Count the positions of the queries from the end of the cache.",
        ),
        Words(
            "有缓存时，因果掩码的起点不对。",
            "解码的一步看到的键，与一次输入全部 token 时不同。",
            "查询的位置从缓存的末尾数起。",
        ),
    ),
    Fault(
        "cache-chunk", WARNING, "law",
        CACHED((FILL, f"        if past is None:\n    {FILL}"), at="scores.softmax"),
        Words(
            "Several tokens after a cache attend to other keys than when all tokens are passed at once.",
            "A prompt that is processed in chunks gives other results; single steps do not.",
            "Count the positions of the queries from the end of the cache, for several tokens too.",
        ),
        Words(
            "缓存之后一次输入多个 token 时，看到的键与一次输入全部 token 时不同。",
            "分段处理的提示会得到不同的结果；逐个解码则不会。",
            "多个 token 时，查询的位置也从缓存的末尾数起。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-order", FAULT, "law",
        WINDOW((JOIN_VALUES, "v = torch.cat([v, past[1]], dim=2)"), (JOIN_KEYS, "k = torch.cat([k, past[0]], dim=2)")),
        Words(
            "The new tokens are concatenated before those of the cache.",
            "The keys stand in another order than they arrived, and a mask meets the wrong ones.",
            "Concatenate the cached tokens first and the new ones after them.",
        ),
        Words(
            "新的 token 被拼接在缓存的 token 之前。",
            "键的次序与 token 到来的次序不同，掩码会遮错键。",
            "先放缓存的 token，再接上新的。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-order-mismatch", FAULT, "law",
        CACHED((JOIN_KEYS, "k = torch.cat([k, past[0]], dim=2)")),
        Words(
            "Of keys and values, only one has its new tokens before those of the cache.",
            "Keys and values stand in different orders: a weight multiplies the value of another token.",
            "Concatenate the cached tokens first and the new ones after them.",
        ),
        Words(
            "键和值之中，只有一个把新的 token 拼接在缓存的 token 之前。",
            "键与值的次序不同：权重乘到了别的 token 的值上。",
            "先放缓存的 token，再接上新的。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-axis", FAULT, "law",
        CACHED((JOIN_KEYS, "k = torch.cat([past[0], k], dim=1)")),
        Words(
            "Cached and new tokens are not concatenated along the token axis.",
            "Decoding with the cache raises an error or mixes heads and tokens.",
            "Concatenate along the token axis.",
        ),
        Words(
            "缓存的 token 与新的 token 没有沿 token 的维度拼接。",
            "带缓存的解码会报错，或把头与 token 混在一起。",
            "沿 token 的维度拼接。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-incomplete", FAULT, "law",
        CACHED((f"            {JOIN_VALUES}\n", ""), at="scores = q"),
        Words(
            "Only the keys or only the values of the earlier tokens are cached.",
            "There are more keys than values or fewer, and decoding with the cache raises an error.",
            "Cache and concatenate both.",
        ),
        Words(
            "之前的 token 只缓存了键，或只缓存了值。",
            "值与键的数目不同，带缓存的解码会报错。",
            "键和值都要缓存并拼接。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-lost", FAULT, "law",
        CACHED(
            (JOIN_KEYS, "k = torch.cat([past[0][:, :, 1:], k], dim=2)"),
            (JOIN_VALUES, "v = torch.cat([past[1][:, :, 1:], v], dim=2)"),
            at="k = torch.cat",
        ),
        Words(
            "Keys or values of earlier tokens are missing or changed.",
            "A decoding step attends to another past than when all tokens are passed at once.",
            "Cache all keys and all values at their positions, and read them to the last.",
        ),
        Words(
            "之前 token 的键或值丢了，或者被改动了。",
            "解码的一步看到的过去，与一次输入全部 token 时不同。",
            "把所有的键和值缓存在各自的位置，并读到最后一个 token 为止。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-stale", FAULT, "law",
        STATEFUL(("self.cache_k, self.cache_v = None, None", "self.cache_v = None"), at="k = torch.cat"),
        Words(
            "After one sequence, a second one gives other results than alone.",
            "Tokens of the first sequence are still in the cache.",
            "Start each sequence with an empty cache; do not keep it in a default argument.",
        ),
        Words(
            "处理过一个序列之后，第二个序列的结果与单独计算时不同。",
            "缓存里还留着第一个序列的 token。",
            "每个序列都从空的缓存开始；不要把它放在默认参数里。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-raises", FAULT, "law",
        CACHED((", (k, v)", ", (k, v[:, 0])"), at="v = torch.cat"),
        Words(
            "A decoding step with the cache raises here.",
            "The next call cannot take what this one returns.",
            "Return what the next call takes, in the shape in which it takes it.",
        ),
        Words(
            "带缓存的一步解码在这里报错。",
            "上一次调用返回的内容，下一次调用接受不了。",
            "让返回的内容和形状与下一次调用所接受的一致。",
        ),
        general="causal-cache",
    ),
    Fault(
        "cache-window-wide", FAULT, "law",
        ROLLING(("kept = k[:, :, 1 - window :], v[:, :, 1 - window :]", "kept = k[:, :, -window:], v[:, :, -window:]")),
        Words(
            "The cache keeps one token more than the window leaves room for beside the new one.",
            "A step sees one key more than the same token does without the cache.",
            "Keep window - 1 tokens, or mask the keys of a step by the window too.",
        ),
        Words(
            "缓存比窗口在新 token 之外留下的位置多保留了一个 token。",
            "用缓存逐步解码时，一个 token 比没有缓存时多看到一个键。",
            "只保留 window - 1 个 token，或者逐步解码时也用窗口遮住键。",
        ),
        general="cache-step-differs",
    ),
    Fault(
        "cache-step-differs", FAULT, "law",
        CACHED(
            ("        n, m = q", "        if past is not None:\n            q = q * 2\n        n, m = q"),
            at="scores = q",
        ),
        Words(
            "With the cache this step gives another result than without it.",
            "Decoding step by step gives another output than passing all tokens at once.",
            "Compute this step from the new tokens alone, in the same way with and without a cache.",
        ),
        Words(
            "有缓存时，这一步的结果与没有缓存时不同。",
            "逐步解码的输出与一次输入全部 token 时不同。",
            "无论有没有缓存，这一步都要用同样的方法从新的 token 算出。",
        ),
        follows_layout=True,
    ),
)  # fmt: skip
