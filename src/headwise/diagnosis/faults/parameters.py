"""Faults of parameters, buffers and submodules: whether the module registers them, and what it keeps between calls."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, Fault, Template, Words
from headwise.diagnosis.faults.templates import IMPORTS, MULTIHEAD, SELF

__all__ = ["FAULTS"]

DROPOUT = "        self.dropout = nn"
RETURN = "return self.out_proj(context.flatten(2))"
# a class for one head
HEADS = Template(
    "HEADS",
    f"""{IMPORTS}class Head(nn.Module):
    def __init__(self, d_model, head_dim):
        super().__init__()
        self.q_proj = nn.Linear(d_model, head_dim)
        self.k_proj = nn.Linear(d_model, head_dim)
        self.v_proj = nn.Linear(d_model, head_dim)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        scores = self.q_proj(x) @ self.k_proj(x).transpose(-2, -1) / math.sqrt(self.q_proj.out_features)
        return self.dropout(scores.softmax(dim=-1)) @ self.v_proj(x)


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.heads = nn.ModuleList(Head(d_model, d_model // n_heads) for _ in range(n_heads))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out_proj(torch.cat([head(x) for head in self.heads], dim=-1))
""",
)
# an update of low rank that is merged into its weight in eval mode
MERGED = Template(
    "MERGED",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads, rank=2):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.merged = n_heads, False
        self.qkv_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.lora_a = nn.Parameter(torch.randn(rank, d_model))
        self.lora_b = nn.Parameter(torch.zeros(d_model, rank))

    def train(self, mode=True):
        super().train(mode)
        with torch.no_grad():
            if mode and self.merged:
                self.out_proj.weight -= self.lora_b @ self.lora_a
            elif not mode and not self.merged:
                self.out_proj.weight += self.lora_b @ self.lora_a
        self.merged = not mode
        return self

    def forward(self, x):
        q, k, v = self.qkv_proj(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out = self.out_proj(context)
        return out if self.merged else out + context @ self.lora_a.T @ self.lora_b.T
""",
)

FAULTS = (
    Fault(
        "parameters-unregistered", FAULT, "law",
        SELF(
            ("self.q_proj(x)", "self.q_proj[0](x)"),
            ("self.q_proj = nn.Linear(d_model, d_model)", "self.q_proj = [nn.Linear(d_model, d_model)]"),
        ),
        Words(
            "The weights in {name} are used but not registered.",
            "They are not trained, saved, or moved to a device.",
            "Keep modules in nn.ModuleList, and weights in nn.Parameter or nn.ParameterList.",
        ),
        Words(
            "{name} 里的权重被使用，但没有注册。",
            "它们得不到训练和保存，也不会移到别的设备。",
            "模块放进 nn.ModuleList，权重放进 nn.Parameter 或 nn.ParameterList。",
        ),
        has_patch=True, stops_training=True,
    ),
    Fault(
        "modules-unregistered", FAULT, "law",
        HEADS(
            (
                "nn.ModuleList(Head(d_model, d_model // n_heads) for _ in range(n_heads))",
                "[Head(d_model, d_model // n_heads) for _ in range(n_heads)]",
            )
        ),
        Words(
            "The modules in {name} are used but not registered.",
            "They are not trained, saved, or moved to a device, and eval() does not reach them: their dropout stays "
            "active.",
            "Keep modules in nn.ModuleList or nn.ModuleDict.",
        ),
        Words(
            "{name} 里的模块被使用，但没有注册。",
            "它们得不到训练和保存，也不会移到别的设备；eval() 对它们不起作用，dropout 一直生效。",
            "把模块放进 nn.ModuleList 或 nn.ModuleDict。",
        ),
        has_patch=True, general="parameters-unregistered", stops_training=True,
    ),
    Fault(
        "weights-outside-module", FAULT, "law",
        SELF((RETURN, f"{RETURN} @ nn.Parameter(torch.eye(x.shape[-1]))")),
        Words(
            "This step uses weights that do not belong to the module.",
            "They are not trained, saved, or moved to a device.",
            "Create them in __init__ as an attribute: an nn.Parameter, or a module.",
        ),
        Words(
            "这一步用的权重不属于这个模块。",
            "它们得不到训练和保存，也不会移到别的设备。",
            "在 __init__ 里把它们建成属性：nn.Parameter 或一个模块。",
        ),
        general="parameters-unregistered", stops_training=True,
    ),
    Fault(
        "buffer-unregistered", NOTE, "source",
        SELF(
            (RETURN, "return self.gain * self.out_proj(context.flatten(2))"),
            (DROPOUT, f"        self.gain = torch.full((d_model,), 0.5)\n{DROPOUT}"),
        ),
        Words(
            "{name} is a plain tensor attribute: model.to(device) and state_dict() ignore it.",
            "On a GPU the call raises an error, since the tensor stays on the CPU.",
            'Register it with self.register_buffer("{name}", …), with persistent=False where it need not be saved.',
        ),
        Words(
            "{name} 只是普通的张量属性：model.to(device) 和 state_dict() 都不管它。",
            "到了 GPU 上它还留在 CPU，调用会报错。",
            '用 self.register_buffer("{name}", …) 注册；不必保存就加 persistent=False。',
        ),
        general="parameters-unregistered",
    ),
    Fault(
        "buffer-unsaved", FAULT, "law",
        SELF(
            (DROPOUT, f'        self.register_buffer("gain", torch.randn(d_model), persistent=False)\n{DROPOUT}'),
            (RETURN, "return self.gain * self.out_proj(context.flatten(2))"),
        ),
        Words(
            "{name} is initialised at random and is not in the state_dict.",
            "A model that loads the saved weights gives another output.",
            "Register the buffer with persistent=True, or make it a parameter.",
        ),
        Words(
            "{name} 是随机初始化的，却不在 state_dict 里。",
            "载入保存的权重之后，模型的输出会不同。",
            "用 persistent=True 注册缓冲区，或者改成参数。",
        ),
        general="parameters-unregistered",
    ),
    Fault(
        "parameter-created-in-forward", FAULT, "law",
        SELF(
            (
                RETURN,
                'if not hasattr(self, "gain"):\n'
                "            self.gain = nn.Parameter(torch.ones(()))\n"
                "        return self.gain * self.out_proj(context.flatten(2))",
            ),
            at="return self.gain",
        ),
        Words(
            "forward creates the parameter {name}.",
            "An optimizer that was created before does not train it, and a new model cannot load it.",
            "Create it in __init__.",
        ),
        Words(
            "参数 {name} 是在 forward 里才创建的。",
            "之前建好的优化器不会训练它，新建的模型也无法载入它。",
            "在 __init__ 里创建它。",
        ),
        general="parameters-unregistered",
    ),
    Fault(
        "stateful-forward", FAULT, "law",
        SELF(
            (RETURN, 'self.total = getattr(self, "total", 0.0) + self.out_proj(context.flatten(2))\n'
             "        return self.total")
        ),
        Words(
            "An earlier call, also one with inputs of another length, changes the output of this one.",
            "The module keeps a value of an earlier call.",
            "Keep values that belong to one call in local variables, not in attributes.",
        ),
        Words(
            "之前的调用（输入的长度可以不同）改变了这一次的输出。",
            "模块里留下了前一次调用的值。",
            "只属于一次调用的值用局部变量保存，不要放进属性。",
        ),
        stops_training=True,
    ),
    Fault(
        "mode-changes-weights", FAULT, "law",
        MERGED((" and not self.merged", ""), at="self.out_proj.weight +="),
        Words(
            "Each call of eval() changes the weights again.",
            "A second eval(), as after a validation or on a model that is in eval mode already, computes another "
            "model.",
            "Note what has been merged: merge only what is not yet, and take it out in train().",
        ),
        Words(
            "每调用一次 eval()，权重就再变一次。",
            "再次调用 eval()（例如验证之后，或模型本来就在 eval 模式）时，算的就是另一个模型。",
            "记下是否已经合并：没有合并时才合并，train() 时再减去。",
        ),
    ),
    Fault(
        "stale-weights", FAULT, "law",
        SELF(
            ("        self.dropout = nn.Dropout(0.1)\n",
             "        self.dropout = nn.Dropout(0.1)\n        self.kept = None\n"),
            ("        v = self.split(self.v_proj(x))\n",
             "        if self.training or self.kept is None:\n"
             "            self.kept = self.v_proj.weight.clone()\n"
             "        v = self.split(x @ self.kept.t() + self.v_proj.bias)\n"),
            at="self.kept = self.v_proj",
        ),
        Words(
            "What is computed from the weights in eval mode is kept, and used after they have changed.",
            "After further training, an evaluation still computes with the weights of the first one.",
            "Compute it in each call, or drop it in train().",
        ),
        Words(
            "eval 模式下由权重算出的结果被保留，权重改变之后仍在使用。",
            "继续训练后再评估，算的还是第一次评估时的权重。",
            "每次调用都重新计算，或在 train() 里把它丢弃。",
        ),
    ),
    Fault(
        "layers-shared", FAULT, "source",
        MULTIHEAD(
            (
                "        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)\n",
                "        layer = nn.MultiheadAttention(d_model, n_heads, batch_first=True)\n"
                "        self.layers = nn.ModuleList([layer] * 3)\n",
            ),
            (
                "        return self.attention(x, x, x, need_weights=False)[0]\n",
                "        for layer in self.layers:\n"
                "            x = x + layer(x, x, x, need_weights=False)[0]\n"
                "        return x\n",
            ),
            at="self.layers = ",
        ),
        Words(
            "{name} holds one layer {near} times: the layers share all weights.",
            "As many layers as were meant run, and one is learned.",
            "Make a layer for each place of the list, or copy it with copy.deepcopy and draw its weights anew.",
        ),
        Words(
            "{name} 里是同一个层的 {near} 次重复：各层共用全部权重。",
            "运行的层数不变，学到的却只有一层。",
            "为列表的每个位置各建一个层，或用 copy.deepcopy 复制并重新初始化权重。",
        ),
    ),
)  # fmt: skip
