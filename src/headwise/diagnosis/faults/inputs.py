"""Faults of the arguments of a call: which of them are used, and whether they stay unchanged."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import CROSS, IMPORTS, INIT, SELF

__all__ = ["FAULTS"]

# keys and values from one argument
MEMORY = Template(
    "MEMORY",
    f"""{IMPORTS}{INIT}    def forward(self, x, memory):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)

QUERIES = Template(
    "QUERIES",
    f"""{IMPORTS}{INIT}    def forward(self, query, key, value):
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(torch.cat([key, value], dim=1)))
        v = self.split(self.v_proj(torch.cat([key, value], dim=1)))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)

# two inputs that attend to each other in one softmax
JOINT = Template(
    "JOINT",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.text_qkv, self.image_qkv = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, 3 * d_model)
        self.text_out, self.image_out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, text, image):
        qkv = torch.cat([self.split(self.text_qkv(text)), self.split(self.image_qkv(image))], dim=3)
        scores = qkv[0] @ qkv[1].transpose(-2, -1) / math.sqrt(qkv.shape[-1])
        context = (scores.softmax(dim=-1) @ qkv[2]).transpose(1, 2).flatten(2)
        text, image = context.split([text.shape[1], image.shape[1]], dim=1)
        return self.text_out(text), self.image_out(image)
""",
)

# two inputs that read each other
STREAMS = Template(
    "STREAMS",
    f"""{IMPORTS}class Cross(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, memory):
        q = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.kv_proj(memory).unflatten(-1, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.text_cross, self.image_cross = Cross(d_model, n_heads), Cross(d_model, n_heads)

    def forward(self, text, image):
        return text + self.text_cross(text, image), image + self.image_cross(image, text)
""",
)

FAULTS = (
    Fault(
        "streams-swapped", FAULT, "layout",
        JOINT(
            (
                "text, image = context.split([text.shape[1], image.shape[1]]",
                "image, text = context.split([image.shape[1], text.shape[1]]",
            ),
        ),
        Words(
            "The joint sequence is split in another order than that in which it was concatenated.",
            "Tokens of one input come out as those of another.",
            "Split it in the order of the concatenation, each part with the length of its own input.",
        ),
        Words(
            "拼接后的序列没有按拼接的次序切开。",
            "一个输入的 token 被当作另一个输入的输出。",
            "按拼接的次序切开，每段用各自的长度。",
        ),
    ),
    Fault(
        "input-ignored", FAULT, "law",
        CROSS(("self.k_proj(key)", "self.k_proj(value)")),
        Words(
            "The argument {name} has no effect: {was} is used instead.",
            "Where the two differ, as in cross-attention, the output is wrong.",
            "Use {name} where it belongs, or leave it out.",
        ),
        Words(
            "参数 {name} 没有起作用：这里用的是 {was}。",
            "两者不同时（如交叉注意力），输出就不对。",
            "在该用的地方用上 {name}，或者去掉它。",
        ),
        has_patch=True, breaks_layout=True,
    ),
    Fault(
        "input-mixed", FAULT, "layout",
        MEMORY(("self.v_proj(memory)", "self.v_proj(x)")),
        Words(
            "Keys and values come from two arguments: one projection takes {was}, the other takes {name}.",
            "A key and its value should come from the same token; where the lengths differ, the call raises an error.",
            "Use {name} where it belongs, or leave it out.",
        ),
        Words(
            "键与值取自两个参数：一个投影用的是 {was}，另一个用的是 {name}。",
            "键和它的值应出自同一个 token；两个参数长度不同时，调用会报错。",
            "在该用的地方用上 {name}，或者去掉它。",
        ),
        has_patch=True, general="input-ignored", breaks_layout=True,
    ),
    Fault(
        "input-unused", FAULT, "law",
        QUERIES(
            ("self.v_proj(torch.cat([key, value], dim=1))", "self.v_proj(torch.cat([query, value], dim=1))"),
            ("self.k_proj(torch.cat([key, value], dim=1))", "self.k_proj(torch.cat([query, value], dim=1))"),
        ),
        Words(
            "The argument {name} has no effect.",
            "The output is the same whatever is passed as {name}.",
            "Use {name} where it belongs, or leave it out.",
        ),
        Words(
            "参数 {name} 没有起作用。",
            "不论 {name} 传入什么，输出都一样。",
            "在该用的地方用上 {name}，或者去掉它。",
        ),
        general="input-ignored", breaks_layout=True,
    ),
    Fault(
        "input-modified", FAULT, "law",
        SELF(("        q = self.split", "        x += 1.0\n        q = self.split")),
        Words(
            "The call modifies its argument {name} in place.",
            "The caller continues with changed values.",
            "Create a new tensor: apply no in-place operation (+=, *=, mul_, masked_fill_) to {name}.",
        ),
        Words(
            "调用原地修改了传入的参数 {name}。",
            "调用之后，调用者手里的张量已经变了。",
            "生成新的张量：不要对 {name} 做原地操作（+=、*=、mul_、masked_fill_）。",
        ),
    ),
    Fault(
        "cross-attends-itself", FAULT, "layout",
        STREAMS(("self.image_cross(image, text)", "self.image_cross(image, image)")),
        Words(
            "{name} is called a layer of cross-attention, and its keys are of the queries' own input.",
            "What the other input holds does not reach these queries.",
            "Give it the keys and values of the other input.",
        ),
        Words(
            "{name} 名为交叉注意力，键却来自查询自己的输入。",
            "另一个输入的内容到不了这些查询。",
            "把另一个输入的键和值传给它。",
        ),
    ),
)  # fmt: skip
