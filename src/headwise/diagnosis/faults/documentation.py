"""Notes on docstrings and comments whose shapes differ from those of a run."""

from headwise.diagnosis.faults.fault import NOTE, Fault, Words
from headwise.diagnosis.faults.templates import CROSS, SELF

__all__ = ["FAULTS"]

FIRST = "        q = self.split"
VALUES = "        v = self.split(self.v_proj(x))\n"


def docstring(*lines: str) -> str:
    """A docstring of forward with these lines, and the line that follows it."""
    text = "".join(f"{line}\n        " for line in ("", *lines))
    return f'        """Multi-head attention.\n{text}"""\n{FIRST}'


FAULTS = (
    Fault(
        "docstring-shape-empty", NOTE, "source",
        SELF((FIRST, docstring("Args:", "    x: shape ()")), at="x: shape"),
        Words(
            "The docstring gives {name} the shape {was}; it is {wanted}.",
            "A caller who follows the docstring passes another shape.",
            "Write {wanted}.",
        ),
        Words(
            "文档字符串说 {name} 的形状是 {was}，实际是 {wanted}。",
            "照文档调用，传入的形状就不对。",
            "写成 {wanted}。",
        ),
    ),
    Fault(
        "docstring-size-name", NOTE, "source",
        SELF((FIRST, docstring("Args:", "    x: shape (batch, hidden_dim, d_model)")), at="x: shape"),
        Words(
            "The docstring calls the {axis} of {name} {was}; {was} means the {near}.",
            "The reader takes one size for another.",
            "Write {wanted}.",
        ),
        Words(
            "文档字符串把 {name} 的{axis}写成 {was}，而 {was} 指的是{near}。",
            "读者会把一个大小当成另一个。",
            "写成 {wanted}。",
        ),
    ),
    Fault(
        "docstring-returns-argument", NOTE, "source",
        CROSS((FIRST, docstring("Returns:", "    mask: shape (batch, length, d_model)")), at="mask: shape"),
        Words(
            "The docstring lists {name} under the return values; it is an argument.",
            "The reader expects another result.",
            "Document what is returned: {wanted}.",
        ),
        Words(
            "文档字符串把 {name} 列在返回值里，其实它是参数。",
            "读者会以为返回的是别的结果。",
            "写出真正返回的：{wanted}。",
        ),
    ),
    Fault(
        "comment-shape-wrong", NOTE, "source",
        SELF((VALUES, VALUES.replace("\n", "  # (batch, length, heads, head_dim)\n"))),
        Words(
            "The comment says {was}, but the shape is {wanted}.",
            "The reader takes one axis for another.",
            "Write {wanted}.",
        ),
        Words(
            "注释写的是 {was}，实际的形状是 {wanted}。",
            "读者会把一维当成另一维。",
            "写成 {wanted}。",
        ),
    ),
)  # fmt: skip
