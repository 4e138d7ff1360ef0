"""The sentences in Chinese of the doctor: of each kind of finding, what it is, why it matters, and what mends it."""

KINDS: dict[str, tuple[str, str, str]] = {
    "scale-missing": (
        "得分没有除以每头宽度的平方根。",
        "得分的方差随每头宽度增长，softmax 饱和，梯度消失。",
        "在 softmax 之前把得分乘以 {wanted}，即 1/√(每头宽度)。",
    ),
    "scale-wrong": (
        "得分乘以了 {factor}（{what}），而不是 1/√(每头宽度) = {wanted}。",
        "softmax 过尖或过平，而且随头数改变。",
        "除以每头宽度的平方根。",
    ),
    "scale-inverted": (
        "得分乘以了 {factor}，本应相除。",
        "softmax 几乎成了 argmax：权重全给一个键。",
        "除以每头宽度的平方根。",
    ),
    "scale-floor-division": ("得分被向下取整。", "不同的得分变得相等，而且没有导数，无法训练。", "用 / 代替 //。"),
    "scale-after-softmax": (
        "缩放放在了 softmax 之后。",
        "权重之和不再是 1，而 softmax 看到的仍是未缩放的得分。",
        "在 softmax 之前缩放得分。",
    ),
    "scale-twice": (
        "得分缩放了两次：一共 {factor}，而 1/√(每头宽度) 是 {wanted}。",
        "权重过于平均。",
        "两次中只留一次。",
    ),
    "softmax-axis": (
        "softmax 不在键的那一维上。",
        "每个查询对各键的权重之和不是 1。",
        "在键的那一维做 softmax，dim={axis}。",
    ),
    "softmax-missing": (
        "权重就是得分本身：没有 softmax。",
        "权重可能为负，之和也不是 1。",
        "在权重与值相乘之前，对键的那一维做 softmax，dim={axis}。",
    ),
    "split-without-transpose": (
        "用 view 或 reshape 分头，把 token 与头混在了一起。",
        "形状是对的，但每个头拿到的是几个 token 的碎片。",
        "先把最后一维分成（头数，每头宽度），再转置头与 token。",
    ),
    "merge-without-transpose": (
        "合并头时，头还在 token 之前。",
        "形状是对的，但每个 token 拿到了别的 token 的碎片。",
        "合并之前先把头与 token 转置回来。",
    ),
    "heads-batch-swapped": (
        "样本与头互换了位置。",
        "一个样本拿到了另一个样本的头。",
        "分头与合并时都保持批在前、头在后。",
    ),
    "heads-not-split": (
        "从来没有分头。",
        "不管头数写多少，都只有一个宽头。",
        "在求得分之前把宽度分成（头数，每头宽度）。",
    ),
    "key-not-transposed": ("键在与查询相乘时没有转置。", "查询遇到的不是完整的键。", "用 key.transpose(-2, -1)。"),
    "key-uses-query-length": (
        "键或值用了查询的长度。",
        "键与查询长度不同时（如交叉注意力）就会失败。",
        "长度取自键，或写 -1。",
    ),
    "mask-inverted": (
        "掩码遮住了该看的，露出了该遮的。",
        "填充与未来的 token 拿走了权重：泄漏 {leak}。",
        "把条件反过来。",
    ),
    "mask-after-softmax": (
        "掩码用在了 softmax 之后。",
        "被遮住的键仍占份额：其余权重之和不是 1。",
        "在 softmax 之前用 -inf 填充得分。",
    ),
    "mask-weak-fill": (
        "被遮住的键的得分仍能被 softmax 看到。",
        "它们最多拿到 {leak} 的权重。",
        "用 -inf，或该 dtype 的最小值填充。",
    ),
    "mask-ignored": (
        "掩码什么也没改变。",
        "被遮住的键最多拿到 {leak} 的权重。",
        "使用填充后的得分：masked_fill 返回新的张量。",
    ),
    "mask-broadcast": (
        "掩码在得分上的广播方式不对。",
        "它遮住的不是它所指的键。",
        "把掩码的形状变成（批，1，1 或查询，键）。",
    ),
    "mask-repeat-order": (
        "掩码重复的顺序与样本和头的顺序不同。",
        "一个样本用了另一个样本的掩码。",
        "头并入批时，用 repeat_interleave。",
    ),
    "mask-axis": (
        "键的掩码落在了查询那一维上。",
        "整个查询被遮住，而该遮的键仍可见。",
        "把掩码的形状变成（批，1，1，键）。",
    ),
    "mask-raises": ("带掩码调用会失败。", "掩码完全不能用。", "让掩码的形状与得分相符。"),
    "mask-nan": ("什么都看不到的查询变成了 NaN。", "填充造成的一行就会毁掉损失。", "在 softmax 之后把它的权重填为 0。"),
    "causal-missing": ("查询看到了它后面的键。", "训练时答案可见，生成时却没有。", "遮住位置大于查询位置的键。"),
    "causal-offset": ("因果掩码差了一位。", "查询看到了它要预测的 token，或者看不到自己。", "让位置 i 看到键 0 到 i。"),
    "causal-inverted": ("查询看到的是它后面的键，而不是前面的。", "模型在倒着读。", "遮住位置大于查询位置的键。"),
    "causal-cache": ("有缓存时，因果掩码的起点不对。", "解码的一步看到的键太少。", "查询的位置从缓存的末尾数起。"),
    "projection-shared": (
        "其中两个投影（{name}）其实是一个：{near}。",
        "本应分开学习的，用了同样的权重。",
        "给每个各自的投影。",
    ),
    "projection-missing": ("没有输出投影。", "各头从不混合。", "在合并之后加一个线性层。"),
    "projection-unused": (
        "投影 {name} 已注册，但从未使用。",
        "它的权重得不到训练，计算里也少了它那一步。",
        "调用它，或删掉它。",
    ),
    "parameters-unregistered": (
        "{name} 里的权重被使用，但没有注册。",
        "它们得不到训练、保存，也不会移到别的设备。",
        "模块放进 nn.ModuleList，权重放进 nn.Parameter 或 nn.ParameterList。",
    ),
    "input-ignored": (
        "参数 {name} 什么也没改变：用的是 {was}。",
        "输入不同时，算的就是另一回事。",
        "让该投影取自 {name}。",
    ),
    "dropout-in-eval": (
        "dropout 在 eval 模式下仍然生效。",
        "同样的输入两次调用结果不同。",
        "传入 training=self.training，或用 nn.Dropout。",
    ),
    "dropout-before-softmax": (
        "dropout 用在了得分上，在 softmax 之前。",
        "被丢的得分成了 0，并不是小的权重：被遮住的键可能又出现。",
        "在 softmax 之后丢弃权重。",
    ),
    "rotary-wrong": (
        "位置的旋转不相符：得分不只取决于距离。",
        "相对位置丢失。",
        "只旋转查询与键，用同样的配对与位置。",
    ),
    "groups-tiled": (
        "键与值的头轮流排列，而每个本应服务相邻的查询头。",
        "查询头读了别的组的键；别处的权重也对不上。",
        "在头那一维用 repeat_interleave。",
    ),
    "gradient-cut": (
        "梯度到此为止。",
        "这些得不到训练：{name}",
        "让张量留在计算图里：不用 detach、.data、no_grad 或原地修改。",
    ),
    "batch-length-confused": (
        "样本与 token 互换：样本之间在互相关注。",
        "结果取决于同一批里还有什么。",
        "说明哪一维是批，例如 batch_first=True。",
    ),
    "sample-leak": ("一个样本改变了另一个样本的结果。", "结果取决于同一批里还有什么。", "每一步都让批的那一维分开。"),
    "wrong-attribute": ("没有 {name} 这个属性。", "每次调用都在这里失败。", "写成 {near}。"),
    "undefined-name": ("名字 {name} 没有定义。", "每次调用都在这里失败。", "定义它，或导入它。"),
    "view-noncontiguous": (
        "对元素不按该顺序排列的张量做 view。",
        "每次调用都在这里失败。",
        "在 view 之前调用 contiguous()，或用 reshape。",
    ),
    "raises": ("调用在这里失败。", "没有结果。", "见错误信息。"),
    "unknown": ("这一步给出的，不是由它的输入应得的。", "输出不是注意力的输出。", "把这一步与公式对照。"),
}

DOCTOR: dict[str, str] = {
    **{
        f"doctor.{kind}.{part}": text
        for kind, texts in KINDS.items()
        for part, text in zip(("what", "why", "fix"), texts, strict=True)
    },
    "doctor.help": "说出一段注意力代码对不对；不对时说出在哪里、为什么、怎么改。",
    "doctor.help.target": "FILE:CLASS、FILE:function、NOTE.md:CLASS、BOOK.ipynb:CLASS 或 package.module:Class；"
    "代码会被运行，有限制但不是沙箱：只给你愿意运行的代码。",
    "doctor.help.init": "怎样构造这个类，例如 '{{\"d_model\": \"H*d\", \"h\": \"H\"}}'；不给则自动找出。",
    "doctor.help.call": "怎样调用，例如 '{{\"x\": [\"B\", \"L\", \"D\"]}}'；不给则自动找出。",
    "doctor.help.json": "只打印一个 JSON 对象。",
    "doctor.help.fix": "把能改的写入 NAME.fixed.py，并显示差别。",
    "doctor.verdict.sound": "{target}：正确",
    "doctor.verdict.faulty": "{target}：有错",
    "doctor.verdict.not examined": "{target}：未检查",
    "doctor.severity.fault": "错误",
    "doctor.severity.warning": "警告",
    "doctor.severity.note": "说明",
    "doctor.proved": "已证明",
    "doctor.suspected": "疑似",
    "doctor.patch": "{fix}写成：{patch}",
    "doctor.evidence": "只改正这一处时，输出误差 {error} → 0，此时各条规律都成立。",
    "doctor.examined": "已检查：{tried}。",
    "doctor.examined_not": "未检查：{tried}。",
    "doctor.unknown_call": "不知道怎样构造或调用它；请用 --init 和 --call 说明。（{error}）",
    "doctor.no_attention": "在它所做的里面没有找到 softmax 注意力。",
    "doctor.no_fix": "没有写文件：没有能靠替换文字改正的地方。",
    "step.examining": "检查 {target}",
}  # fmt: skip
