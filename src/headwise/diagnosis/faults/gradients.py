"""Faults of training: where gradients end, and which steps of training raise."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Words
from headwise.diagnosis.faults.templates import SELF

__all__ = ["FAULTS"]

DROPOUT = "        self.dropout = nn"
CONTEXT = "        context = (weights"
RETURN = "return self.out_proj(context.flatten(2))"

FAULTS = (
    Fault(
        "gradient-cut", FAULT, "law",
        SELF(("self.k_proj(x)", "self.k_proj(x).detach()")),
        Words(
            "The gradient stops here.",
            "These parameters are never trained: {name}.",
            "Remove what detaches the tensor from the graph: detach, .data, no_grad.",
        ),
        Words(
            "梯度到此为止。",
            "这些参数得不到训练：{name}。",
            "去掉使张量脱离计算图的操作：detach、.data、no_grad。",
        ),
        has_patch=True, stops_training=True, removes=True,
    ),
    Fault(
        "gradient-path-cut", FAULT, "law",
        SELF(
            (
                "        self.q_proj = nn.Linear(d_model, d_model)\n"
                "        self.k_proj = nn.Linear(d_model, d_model)\n"
                "        self.v_proj = nn.Linear(d_model, d_model)\n",
                "        self.qkv_proj = nn.Linear(d_model, 3 * d_model)\n",
            ),
            (
                "        q = self.split(self.q_proj(x))\n"
                "        k = self.split(self.k_proj(x))\n"
                "        v = self.split(self.v_proj(x))\n",
                "        q, k, v = self.qkv_proj(x).chunk(3, dim=-1)\n"
                "        q, k, v = self.split(q), self.split(k.detach()), self.split(v)\n",
            ),
            at="k.detach()",
        ),
        Words(
            "The gradient with respect to the input stops here.",
            "Earlier layers are not trained through this step.",
            "Remove what detaches the tensor from the graph: detach, .data, no_grad.",
        ),
        Words(
            "对输入的梯度到此为止。",
            "前面的层无法经过这一步得到训练。",
            "去掉使张量脱离计算图的操作：detach、.data、no_grad。",
        ),
        has_patch=True, general="gradient-cut", stops_training=True, removes=True,
    ),
    Fault(
        "gradient-zero", FAULT, "law",
        SELF(("self.k_proj(x)", "torch.round(self.k_proj(x) * 8) / 8")),
        Words(
            "The gradient of everything before this step is 0.",
            "These parameters are never trained: {name}.",
            "Remove the rounding, or pass the gradient through it (straight-through estimator).",
        ),
        Words(
            "这一步之前的所有梯度都是 0。",
            "这些参数得不到训练：{name}。",
            "去掉取整，或者让梯度直通（straight-through estimator）。",
        ),
        general="gradient-cut", stops_training=True, removes=True,
    ),
    Fault(
        "inplace-breaks-backward", FAULT, "law",
        SELF((CONTEXT, f"        weights.mul_(2.0).div_(2.0)\n{CONTEXT}")),
        Words(
            "An in-place operation changes a tensor that the backward pass needs.",
            "backward() raises an error, and the model cannot be trained.",
            "Write the result to a new tensor: mul for mul_, a = a + b for a += b.",
        ),
        Words(
            "原地操作修改了反向传播还要用的张量。",
            "backward() 会报错，模型无法训练。",
            "把结果写到新的张量里：用 mul 代替 mul_，用 a = a + b 代替 a += b。",
        ),
        general="gradient-cut", stops_training=True, removes=True,
    ),
    Fault(
        "training-raises", FAULT, "constraint",
        SELF(
            (CONTEXT, f"        if self.training:\n            weights = weights + torch.zeros(2, 3)\n{CONTEXT}"),
            at="torch.zeros",
        ),
        Words(
            "The call raises in train mode but not in eval mode: {error}",
            "The model cannot be trained.",
            "Make this line work in train mode as it does in eval mode.",
        ),
        Words(
            "train 模式下调用在此报错，eval 模式下不会：{error}",
            "模型无法训练。",
            "让这一行在 train 模式下也能运行。",
        ),
    ),
    Fault(
        "second-step-raises", FAULT, "law",
        SELF(
            (DROPOUT, f"        self.previous = 0.0\n{DROPOUT}"),
            (RETURN, "previous, self.previous = self.previous, context.mean()\n"
             "        return self.out_proj(context.flatten(2)) + 0.0 * previous"),
            at="context.mean()",
        ),
        Words(
            "The second step of training raises: a tensor that was computed once is used again after its graph was "
            "freed.",
            "The model can be trained for one step only.",
            "Compute it in each call, or detach what is kept.",
        ),
        Words(
            "训练的第二步报错：只计算一次的张量，在计算图释放之后又被用到。",
            "模型只能训练一步。",
            "在每次调用里重新计算，或者对保留的张量用 detach。",
        ),
    ),
)  # fmt: skip
