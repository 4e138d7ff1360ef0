"""The documents of faults and designs, written from their tables: python -m tests.diagnosis.kinds --write."""

import argparse
import difflib
import re
import sys
from pathlib import Path

from headwise.diagnosis.designs import DESIGNS
from headwise.diagnosis.faults import FAMILIES, FAULTS
from headwise.diagnosis.faults.fault import ENGINES, Template

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = DOCS / "doctor.md"
# by language: the headings and labels of the documents
WORDS = {
    "en": {
        "faults": "# Faults",
        "about": "Every kind of finding that `headwise doctor` reports, from the table in "
        "`src/headwise/diagnosis/faults`. An example changes the marked lines of one of the classes at the end; … "
        "stands for a value of the finding. A test runs the doctor on each example. [Chinese](faults.zh.md)",
        "fault": "fault", "warning": "warning", "note": "note", "engine": "decided by", "case": "a case of",
        "why": "Why", "fix": "Fix", "patch": "The doctor writes a patch.", "templates": "## Classes of the examples",
        "engines": "## What decides",
        "designs": "# Designs",
        "about designs": "The formulas from scores to weights that `headwise doctor` knows as correct, from the table "
        "in `src/headwise/diagnosis/designs.py`. The code gives the context from q, k, v and `scores` = q·kᵀ; a test "
        "runs each. [Chinese](designs.zh.md)",
        "columns": "| design | source | context |",
        "stop": ".", "join": ", ", "colon": ": ",
    },
    "zh": {
        "faults": "# 错误一览",
        "about": "`headwise doctor` 报告的所有问题，取自 `src/headwise/diagnosis/faults` 里的表。示例是把文末的某个类"
        "改动标出的几行；… 代表具体的数值或名字。每个示例都有测试运行。[English](faults.md)",
        "fault": "错误", "warning": "警告", "note": "说明", "engine": "判断依据", "case": "属于",
        "why": "原因", "fix": "改法", "patch": "doctor 会写出补丁。", "templates": "## 示例所用的类",
        "engines": "## 判断依据",
        "designs": "# 已知的设计",
        "about designs": "`headwise doctor` 认为正确的、从分数到权重的公式，取自 "
        "`src/headwise/diagnosis/designs.py` 里的表。代码由 q、k、v 和 `scores` = q·kᵀ 得出结果；"
        "每一条都有测试运行。[English](designs.md)",
        "columns": "| 设计 | 出处 | 结果 |",
        "stop": "。", "join": "，", "colon": "：",
    },
}  # fmt: skip
TEMPLATES = {value.name: value for file in FAMILIES for value in vars(file).values() if isinstance(value, Template)}
FAMILY_NAMES = {
    "calls": "调用", "names": "名字", "inputs": "输入", "projections": "投影", "head_layout": "头的布局",
    "windows": "窗口", "grouped_heads": "分组的头", "rotary": "旋转位置编码", "position_bias": "位置偏置",
    "scale": "缩放", "mask": "掩码", "padding": "填充", "causal": "因果掩码", "softmax": "softmax",
    "dropout": "dropout", "context": "加权求和", "cache": "缓存", "batch": "批", "parameters": "参数",
    "gradients": "梯度", "half_precision": "半精度", "documentation": "文档",
}  # fmt: skip
ENGINE_NAMES = {
    "formula": ("公式", "把代码算出的数与公式的结果比较"),
    "layout": ("布局", "追踪张量的每个元素来自哪个样本、哪个 token、哪个特征"),
    "law": ("规律", "改变条件再运行一次，比较两次的结果"),
    "constraint": ("约束", "调用报错，比较出错的操作与记录下来的形状"),
    "source": ("源码", "读源码，与运行的结果比较"),
}


def filled(sentence):
    """A sentence without its values."""
    return re.sub(r"\{[a-z]+\}", "…", sentence)


def example_of(fault):
    """The lines that an example changes in its class, as a difference, after the name of the class."""
    right, wrong = (text.split("\n") for text in (TEMPLATES[fault.example.template].text, fault.example.text))
    changed = [
        line for line in difflib.unified_diff(right, wrong, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
    ]
    lines = [f"{line[0]} {line[1:].removeprefix(' ' * 8)}" for line in changed if line[1:].strip()]
    return "\n".join(["```diff", f"# {fault.example.template}", *lines, "```"])


def section(fault, lang):
    """One fault: its kind, severity and engine, its three sentences and its example."""
    words, said = WORDS[lang], fault.words(lang)
    engine = fault.engine if lang == "en" else ENGINE_NAMES[fault.engine][0]
    about = [f"**{words[fault.severity]}**", f"{words['engine']}{' ' if lang == 'en' else words['colon']}{engine}"]
    if fault.general:
        about.append(f"{words['case']} [`{fault.general}`](#{fault.general})")
    return "\n\n".join([
        f"### {fault.kind}", words["join"].join(about) + words["stop"], filled(said.what),
        f"{words['why']}{words['colon']}{filled(said.why)}", f"{words['fix']}{words['colon']}{filled(said.fix)}",
        *([words["patch"]] if fault.has_patch else []), example_of(fault),
    ])  # fmt: skip


def faults_document(lang):
    """docs/faults.md, or docs/faults.zh.md."""
    words = WORDS[lang]
    parts = [words["faults"], words["about"], words["engines"]]
    names = {name: (name, text) for name, text in ENGINES.items()} if lang == "en" else ENGINE_NAMES
    parts.append("\n".join(f"- {name}{words['colon']}{text}" for name, text in names.values()))
    for file in FAMILIES:
        family = file.__name__.rpartition(".")[2]
        parts.append(f"## {family.replace('_', ' ').capitalize() if lang == 'en' else FAMILY_NAMES[family]}")
        parts += [section(fault, lang) for fault in FAULTS.values() if fault.family == family]
    parts.append(words["templates"])
    parts += [f"### {name}\n\n```python\n{template.text.rstrip()}\n```" for name, template in TEMPLATES.items()]
    return "\n\n".join(parts) + "\n"


def designs_document(lang):
    """docs/designs.md, or docs/designs.zh.md."""
    words, rows = WORDS[lang], []
    for design in DESIGNS:
        sources = [f"[{source}](https://arxiv.org/abs/{source[6:]})" for source in design.source.split(", ") if source]
        rows.append(f"| {design.name} | {', '.join(sources)} | `{design.example}` |")
    return (
        "\n\n".join([words["designs"], words["about designs"], "\n".join([words["columns"], "|---|---|---|", *rows])])
        + "\n"
    )


def documents():
    """The text of each document by its file name."""
    return {
        "faults.md": faults_document("en"), "faults.zh.md": faults_document("zh"),
        "designs.md": designs_document("en"), "designs.zh.md": designs_document("zh"),
    }  # fmt: skip


def main():
    """Write the documents, or tell which are not current, with exit status 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them into docs")
    asked = parser.parse_args()
    stale = []
    for name, text in documents().items():
        file = DOCS / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if asked.write:
            file.write_text(text, encoding="utf-8")
        else:
            stale.append(name)
    if stale:
        sys.exit(f"not current: {', '.join(stale)}")


if __name__ == "__main__":
    main()
