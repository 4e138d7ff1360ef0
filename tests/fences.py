"""The fenced blocks of a Markdown text, and the parts of it that a program writes."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Fence:
    """One fenced block: its language, its text, the line its text starts at, and the HTML comment just above it."""

    language: str
    text: str
    line: int
    note: str


def fences(markdown: str) -> list[Fence]:
    """Every fenced block, in order."""
    found: list[Fence] = []
    lines = iter(enumerate(markdown.splitlines(), start=1))
    above = ""
    for number, line in lines:
        if opening := re.match(r"( *)(`{3,})(\w*)", line):
            indent, ticks, language = opening.groups()
            inside = []
            for _, each in lines:
                if each.strip() == ticks:
                    break
                inside.append(each.removeprefix(indent))
            else:
                raise ValueError(f"line {number}: this fence is never closed")
            note = re.fullmatch(r"<!-- *(.*?) *-->", above)
            found.append(Fence(language, "".join(f"{each}\n" for each in inside), number + 1, note[1] if note else ""))
            above = ""
        elif line.strip():
            above = line.strip()
    return found


def marked(markdown: str, name: str) -> str:
    """The text of the one fence between <!-- name --> and <!-- /name -->."""
    pieces = re.findall(_marked_pattern(name), markdown, flags=re.DOTALL)
    if len(pieces) != 1:
        raise ValueError(
            f"<!-- {name} --> with a text fence, then <!-- /{name} -->, must come once, not {len(pieces)} times"
        )
    return pieces[0]


def replace_marked(markdown: str, name: str, text: str) -> str:
    """The Markdown with the text of the fence between <!-- name --> and <!-- /name --> replaced."""
    old = marked(markdown, name)
    head, found, tail = markdown.partition(f"<!-- {name} -->")
    return head + found + tail.replace(f"```text\n{old}```", f"```text\n{text}```", 1)


def _marked_pattern(name: str) -> str:
    return rf"<!-- {name} -->\s*```text\n(.*?)```\s*<!-- /{name} -->"
