"""Faults of names: attributes, variables, imports and methods that are not defined."""

from headwise.diagnosis.faults.fault import FAULT, NOTE, Fault, Words
from headwise.diagnosis.faults.templates import IMPORTS, SELF

__all__ = ["FAULTS"]

ROOT = "math.sqrt(self.head_dim)"

FAULTS = (
    Fault(
        "wrong-attribute", FAULT, "constraint",
        SELF((ROOT, "math.sqrt(self.head_dims)")),
        Words(
            "There is no attribute {name} here.",
            "Every call that reaches this line raises an error.",
            "Write {near}.",
        ),
        Words(
            "这里没有 {name} 这个属性。",
            "运行到这一行的调用都会报错。",
            "写成 {near}。",
        ),
        has_patch=True, ends_call=True,
    ),
    Fault(
        "attribute-undefined", FAULT, "constraint",
        SELF((ROOT, "math.sqrt(self.temperature)")),
        Words(
            "There is no attribute {name} here.",
            "Every call that reaches this line raises an error.",
            "Define {name} before it is read, or write the intended name.",
        ),
        Words(
            "这里没有 {name} 这个属性。",
            "运行到这一行的调用都会报错。",
            "在读取之前定义 {name}，或写成正确的名字。",
        ),
        general="wrong-attribute", ends_call=True,
    ),
    Fault(
        "forward-misnamed", FAULT, "source",
        SELF(("def forward(", "def foward(")),
        Words(
            "{name} has no forward: the method here is called {was}.",
            "nn.Module calls forward; a call of this module raises an error.",
            "Rename it to forward.",
        ),
        Words(
            "{name} 没有 forward：这里的方法名是 {was}。",
            "nn.Module 调用的是 forward；调用这个模块会报错。",
            "把它改名为 forward。",
        ),
        has_patch=True, general="wrong-attribute", ends_call=True,
    ),
    Fault(
        "undefined-name", FAULT, "constraint",
        SELF((ROOT, "math.sqrt(temperature)")),
        Words(
            "The name {name} is not defined.",
            "Every call that reaches this line raises an error.",
            "Define or import it.",
        ),
        Words(
            "名字 {name} 没有定义。",
            "运行到这一行的调用都会报错。",
            "定义它，或导入它。",
        ),
        ends_call=True,
    ),
    Fault(
        "name-misspelt", FAULT, "constraint",
        SELF(("scores.softmax", "scroes.softmax")),
        Words(
            "The name {name} is not defined; {near} is.",
            "Every call that reaches this line raises an error.",
            "Write {near} instead.",
        ),
        Words(
            "名字 {name} 没有定义；有定义的是 {near}。",
            "运行到这一行的调用都会报错。",
            "改成 {near}。",
        ),
        has_patch=True, general="undefined-name", ends_call=True,
    ),
    Fault(
        "name-not-imported", FAULT, "source",
        SELF(("import math\n\n", ""), at="math.sqrt"),
        Words(
            "The name {name} is not defined in this file.",
            "Python raises a NameError here; the doctor used {near} instead.",
            "Import or define it at the top of the file.",
        ),
        Words(
            "这个文件里没有定义 {name}。",
            "Python 会在这里抛出 NameError；检查时用 {near} 代替。",
            "在文件开头导入或定义它。",
        ),
        has_patch=True, general="undefined-name", ends_call=True,
    ),
    Fault(
        "imports-omitted", NOTE, "source",
        SELF((IMPORTS, ""), at="class Attention"),
        Words(
            "This excerpt does not import all the names that it uses: {name}.",
            "The doctor used the most likely meaning of each.",
            "Show the imports as well.",
        ),
        Words(
            "这段代码用到的名字没有全部导入：{name}。",
            "检查时各按最可能的意思处理。",
            "把 import 语句也写出来。",
        ),
        general="undefined-name",
    ),
)  # fmt: skip
