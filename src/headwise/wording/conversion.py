"""What convert says of a conversion, in English and in Chinese side by side."""

CONVERSION: dict[str, tuple[str, str]] = {
    # what lies between two libraries' weights
    "convert.step.unpack_all": (
        "unpack queries, keys and values",
        "拆成查询、键和值",
    ),
    "convert.step.unpack_pair": (
        "unpack keys and values",
        "拆成键和值",
    ),
    "convert.step.transpose": (
        "transpose to (out, in)",
        "转置为 (out, in)",
    ),
    "convert.step.one_more": (
        "add 1 to the norm's weight",
        "归一化的权重加 1",
    ),
    "convert.step.reshape": (
        "{before} to {after}",
        "由 {before} 变为 {after}",
    ),
    "convert.step.rows": (
        "query heads from tile order (h % Hk) to block order (h // group)",
        "查询头由平铺顺序 (h % Hk) 改为分块顺序 (h // group)",
    ),
    "convert.step.columns": (
        "columns of the output from tile order (h % Hk) to block order (h // group)",
        "输出的列由平铺顺序 (h % Hk) 改为分块顺序 (h // group)",
    ),
    "convert.step.paired": (
        "features paired as {pairing}",
        "特征按 {pairing} 配对",
    ),
    # what became of the rest, and why
    "convert.why.not_attention": (
        "it stays in the model: the norm and the residual come after attention",
        "它留在模型里：归一化和残差在注意力之后",
    ),
    "convert.why.causal_buffer": (
        "a buffer of old files: the causal mask",
        "旧文件里的缓冲区：因果掩码",
    ),
    "convert.why.hiding_buffer": (
        "a buffer of old files: the number that hides a key",
        "旧文件里的缓冲区：用来遮住键的数",
    ),
    "convert.why.untold": (
        "weights alone do not show it",
        "只凭权重看不出来",
    ),
    "convert.why.base": (
        "the base of the rotation is no weight",
        "旋转的底数不是权重",
    ),
    "convert.why.buckets": (
        "the buckets of a decoder differ from those of an encoder",
        "解码器的分桶与编码器不同",
    ),
    "convert.why.filled": (
        "filled with zeros: the source has no such bias, the layer has all four or none",
        "以零填充：来源没有这个偏置，而本层的四个偏置要么都有要么都没有",
    ),
    "convert.note.zero_sink": (
        "add_zero_attn became the sink of logit 0",
        "add_zero_attn 变成了 logit 为 0 的 sink",
    ),
    "convert.note.zero_untold": (
        "weights do not show add_zero_attn, which is taken as off",
        "权重看不出 add_zero_attn，按关闭处理",
    ),
    "convert.note.flags_untold": (
        "weights do not show the flags of this class (qk_norm, softclamp_logits, add_zero_kv, ...): taken as off",
        "权重看不出这个类的开关（qk_norm、softclamp_logits、add_zero_kv 等）：按关闭处理",
    ),
    "convert.note.shared": (
        "in its model this layer adds the bias of the first one, if it is self-attention: give it as attn_bias",
        "在它的模型里，若是自注意力，本层会加上第一层的偏置：请用 attn_bias 给出",
    ),
    "convert.note.eps": (
        "the eps of its norms is {eps}, where the layer's own would be the dtype's",
        "它的归一化的 eps 是 {eps}，而本层自己的会取 dtype 的 eps",
    ),
    "convert.note.dropout": (
        "{name} (p={p}) is not of the weights and stays out of the layer",
        "{name}（p={p}）不作用于注意力权重，没有进入本层",
    ),
    "convert.note.not_asked": (
        "the module could not be asked ({reason})",
        "无法运行该模块（{reason}）",
    ),
    "convert.note.no_gradients": (
        "no gradients could be compared ({reason})",
        "无法比较梯度（{reason}）",
    ),
    "convert.note.unmasked": (
        "the module was compared without masks only, for it has no word that is known to hide keys",
        "只在没有掩码时与该模块比较过，因为它没有已知的用来遮住键的参数",
    ),
    # the proof
    "convert.ask.plain": (
        "self",
        "自注意力",
    ),
    "convert.ask.causal": (
        "self, causal",
        "自注意力，因果",
    ),
    "convert.ask.padding": (
        "self, padding",
        "自注意力，填充",
    ),
    "convert.ask.both": (
        "self, causal and padding",
        "自注意力，因果加填充",
    ),
    "convert.ask.cross": (
        "cross, S != L",
        "交叉注意力，S != L",
    ),
    "convert.ask.cross_padding": (
        "cross, S != L, padding",
        "交叉注意力，S != L，填充",
    ),
    "convert.report.ignored": (
        "{name}: ignored, {why}",
        "{name}：忽略，{why}",
    ),
    "convert.report.written": (
        "The same under the names of {target}:",
        "按 {target} 的名字写出：",
    ),
    "convert.report.module": (
        "the module",
        "原模块",
    ),
    "convert.report.formula": (
        "the formula",
        "公式",
    ),
    "convert.report.outputs": (
        "outputs",
        "输出",
    ),
    "convert.report.inputs": (
        "d inputs",
        "输入梯度",
    ),
    "convert.report.weights": (
        "d weights",
        "权重梯度",
    ),
    "convert.report.proved": (
        "Proved against {against}, in float64; the largest differences:",
        "已在 float64 下与{against}比较并证实；最大差别：",
    ),
    "convert.report.unequal": (
        "Not equal to {against}, in float64; the largest differences:",
        "在 float64 下与{against}不相等；最大差别：",
    ),
    "convert.report.unproved": (
        "Not proved: there is nothing to compare the layer with.",
        "未证实：没有可与本层比较的东西。",
    ),
    "convert.report.mask": (
        "By itself the source hides what mask={mask} hides: give it to each call.",
        "来源自己会遮住 mask={mask} 所遮的：每次调用都要给出。",
    ),
    "convert.report.note": (
        "Note: {note}.",
        "注意：{note}。",
    ),
    # conventions
    "convert.about.torch": (
        "nn.MultiheadAttention with one packed weight",
        "nn.MultiheadAttention，权重合成一个",
    ),
    "convert.about.torch_separate": (
        "nn.MultiheadAttention with kdim or vdim",
        "nn.MultiheadAttention，带 kdim 或 vdim",
    ),
    "convert.about.book": (
        "d2l's MultiHeadAttention, and the second and third note",
        "d2l 的 MultiHeadAttention，以及第二、第三份笔记",
    ),
    "convert.about.annotated": (
        "the Annotated Transformer's MultiHeadedAttention, and the fourth note",
        "Annotated Transformer 的 MultiHeadedAttention，以及第四份笔记",
    ),
    "convert.about.vit": (
        "Hugging Face's ViT as a module of transformers 5, and the first note",
        "Hugging Face 的 ViT（transformers 5 的模块），以及第一份笔记",
    ),
    "convert.about.bert": (
        "Hugging Face's BERT, RoBERTa and their kin",
        "Hugging Face 的 BERT、RoBERTa 及同类",
    ),
    "convert.about.vit_files": (
        "Hugging Face's ViT as its files name it",
        "Hugging Face 的 ViT，按其文件中的名字",
    ),
    "convert.about.bart": (
        "Hugging Face's BART and CLIP",
        "Hugging Face 的 BART 和 CLIP",
    ),
    "convert.about.whisper": (
        "Hugging Face's Whisper, whose keys have no bias",
        "Hugging Face 的 Whisper，其键没有偏置",
    ),
    "convert.about.gpt": (
        "Hugging Face's GPT-2: Conv1D, (in, out), packed",
        "Hugging Face 的 GPT-2：Conv1D，(in, out)，合成一个",
    ),
    "convert.about.gpt_cross": (
        "Hugging Face's GPT-2 in cross-attention",
        "Hugging Face 的 GPT-2 的交叉注意力",
    ),
    "convert.about.llama": (
        "Hugging Face's Llama and Mistral",
        "Hugging Face 的 Llama 和 Mistral",
    ),
    "convert.about.qwen_two": (
        "Hugging Face's Qwen2, whose output has no bias",
        "Hugging Face 的 Qwen2，其输出没有偏置",
    ),
    "convert.about.qwen_three": (
        "Hugging Face's Qwen3, with norms of queries and keys",
        "Hugging Face 的 Qwen3，查询和键有归一化",
    ),
    "convert.about.gemma": (
        "Hugging Face's Gemma",
        "Hugging Face 的 Gemma",
    ),
    "convert.about.gemma_two": (
        "Hugging Face's Gemma 2, with its own scale and a cap",
        "Hugging Face 的 Gemma 2，有自己的缩放和上限",
    ),
    "convert.about.gemma_three": (
        "Hugging Face's Gemma 3, with norms of weight 1 + w",
        "Hugging Face 的 Gemma 3，归一化的权重为 1 + w",
    ),
    "convert.about.t_five": (
        "Hugging Face's T5 and its kin",
        "Hugging Face 的 T5 及同类",
    ),
    "convert.about.x_transformers": (
        "x-transformers' Attention, whose grouped heads are in tile order",
        "x-transformers 的 Attention，其分组的头按平铺顺序",
    ),
    "convert.about.timm": (
        "timm's Attention: qkv packed, proj",
        "timm 的 Attention：合成的 qkv，以及 proj",
    ),
    "convert.about.torchtune": (
        "torchtune's MultiHeadAttention: rotation of interleaved pairs",
        "torchtune 的 MultiHeadAttention：交错配对的旋转",
    ),
    "convert.about.keras": (
        "Keras' MultiHeadAttention and GroupQueryAttention",
        "Keras 的 MultiHeadAttention 和 GroupQueryAttention",
    ),
    "convert.about.keras_linears": (
        "the same two of hw.compat.keras, with Linears",
        "hw.compat.keras 里的这两个，权重是 Linear",
    ),
}
