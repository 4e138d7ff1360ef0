"""The sentences in Chinese of the doctor: its help, verdicts, evidence, and why there is no verdict."""

DOCTOR: dict[str, str] = {
    "doctor.help": "说出一段注意力代码对不对；不对时说出在哪里、为什么、怎么改。",
    "doctor.help.ends": "退出状态：0 正确，1 有错，2 输入有误，3 未检查。",
    "doctor.help.target": "FILE:CLASS、FILE:function、NOTE.md:CLASS、BOOK.ipynb:CLASS 或 package.module:Class；代码"
    "会被运行，有限制但不是沙箱：只给你愿意运行的代码。",
    "doctor.help.init": '怎样构造这个类，例如 \'{{"d_model": "H*d", "h": "H"}}\'；不给则自动找出。',
    "doctor.help.call": '怎样调用，例如 \'{{"x": ["B", "L", "D"]}}\'；不给则自动找出。',
    "doctor.help.json": "只打印一个 JSON 对象。",
    "doctor.help.fix": "把能改的写入 NAME.fixed.py（笔记和 notebook 也一样），并显示差别。",
    "doctor.verdict.sound": "{target}：正确",
    "doctor.verdict.faulty": "{target}：有错",
    "doctor.verdict.not_examined": "{target}：未检查",
    "doctor.proved": "已证明",
    "doctor.suspected": "疑似",
    "doctor.patch_gone": "{fix}删去：{patch}",
    "doctor.patch": "{fix}写成：{patch}",
    "doctor.evidence.ideal": "改正此处后，输出误差 {error} → {after}。",
    "doctor.evidence.laws": "改正此处后输出改变 {error}，检查重新通过；这样的输出没有公式可以对照。",
    "doctor.evidence.law": "改正此处后检查重新通过；这次调用的输出不变。",
    "doctor.evidence.raised_ideal": "{error} → 改正此处后，输出误差 {after}。",
    "doctor.evidence.raised_laws": "{error} → 改正此处后可以运行，检查通过。",
    "doctor.evidence.samples": "改动一个样本的数值，另一个样本的输出随之改变。",
    "doctor.evidence.padded": "有填充的样本里，token 的输出与去掉填充时相差 {error}。",
    "doctor.evidence.hidden": "改动被掩码遮住的 token 的数值，输出改变 {error}。",
    "doctor.evidence.trimmed": "去掉末尾的填充，输出改变 {error}。",
    "doctor.evidence.stepped": "逐个 token 计算的输出，与一次计算全部 token 的相差 {error}。",
    "doctor.evidence.blocks": "把键分成更小的块时，输出相差 {error}。",
    "doctor.evidence.retrained": "先评估、再训练、再评估，输出与另一个 state_dict() 相同的模块相差 {error}。",
    "doctor.evidence.switched": "再调用一次 eval() 之后，输出相差 {error}。",
    "doctor.evidence.single": "只有一个样本时：{error}。",
    "doctor.evidence.forgotten": "清除前一次调用在模块里留下的东西后，再次调用的输出与第一次之差 {error} → 0。",
    "doctor.evidence.replaced": "改正此处后，输出误差 {error} → 0。",
    "doctor.evidence.supplied": "{error} → 补上这个名字后可以运行。",
    "doctor.evidence.endless": "∞（NaN 或形状不同）",
    "doctor.evidence.source": "改好的源码重新载入并检查过：此问题消失，也没有出现新问题。",
    "doctor.evidence.runs": "改好的源码重新载入并检查过：调用可以跑通。",
    "doctor.said_call": "按所给的 {said} 无法构造或调用它（{error}）。大小可以写成符号，例如 "
    "--init '{init}' --call '{call}'（H 个头，每个头的维度 d）；Python 里是 init= 和 call=。",
    "doctor.unknown_call": "不知道怎样构造或调用它（{error}）。请用 --init 和 --call 说明，例如 "
    "--init '{init}' --call '{call}'（H 个头，每个头的维度 d）；Python 里是 init= 和 call=。",
    "doctor.no_attention": "没有找到 token 之间的注意力。用别的方式算分数的代码不在检查之列。"
    "如果它在某个选项之后，请用 --init（Python 里是 init=）打开该选项；如果在别的类里，请给出那个类。",
    "doctor.mixes.state": "第 {line} 行把特征的乘积在 token 上求和，得到每个查询都读取的一个状态，线性注意力就是这样。"
    "没有找到它的权重之和为 1 的证据，因此没有检查；headwise trace 会显示它的各维。",
    "doctor.mixes.features": "第 {line} 行的 softmax 所取的乘积是在 token 上求和的：关注特征的是特征（通道注意力），"
    "而不是 token 关注 token。文件里没有说明本意是通道，或者权重之和不是 1，因此没有检查。"
    "如果本意是 token，请在相乘之前把 q 和 k 排成 (..., token, 特征)；headwise trace 会显示它们的各维。",
    "doctor.mixes.pooling": "第 {line} 行的 softmax 给每个 token 一个权重，对所有查询都一样：token 被汇聚，"
    "但没有找到权重之和为 1 的加权和，因此没有检查；headwise trace 会显示它的各维。",
    "doctor.of_torch": "这是 torch 自己的代码，作为一步运行，不在检查之列。请给出调用它的类或函数："
    "受检查的是它怎样被调用（传入什么、各维的顺序、掩码）。",
    "doctor.not_whole": "下结论所必需的一项检查自身失败了，或者来不及做：是哪一项、在何处，见未检查的部分。",
    "doctor.no_order": "按试过的轴顺序和大小，查询、键和值合不到一处。试过的是 --call '{call}'（Python 里是 "
    "call=），请照此改成本来的用法；未检查的部分说明了是哪一行。",
    "doctor.no_numbers": "它的参数在 meta 设备上，没有数值：请在 CPU 上构造它。",
    "doctor.no_fix": "没有写文件：没有找到可用的补丁。",
    "doctor.unfixed": "其中没有改好的，按种类（和行号）：{faults}。",
    "step.examining": "检查 {target}",
}
