"""Magics: the Python of notebook cells and interactive sessions, other lines left empty."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwise.targets.source_file import parsed

__all__ = ["without_magics", "without_prompts"]

# %matplotlib inline, !pip install, ?print, print?, files = !ls
MAGIC = re.compile(r"\s*(?:[%!?]|[\w.]+\?{1,2}\s*$|[\w, ]+=\s*[%!])")
# cell magics of another language; these exceptions hold Python
OTHER = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
MOST = 200


def without_magics(code: str) -> str:
    """The code with notebook commands left empty; "" for a cell in another language.

    Only a line with a syntax error counts as a command: a continuation line that begins with % stays.
    """
    if OTHER.match(code):
        return ""
    for _ in range(MOST):
        try:
            parsed(code)
        except SyntaxError as error:
            lines = code.split("\n")
            at = (error.lineno or 0) - 1
            if not (0 <= at < len(lines) and MAGIC.match(lines[at])):
                return code
            lines[at] = ""
            code = "\n".join(lines)
        else:
            return code
    return code


def without_prompts(lines: Sequence[str]) -> list[str]:
    """The code of an interactive session: prompts become blanks, printed lines become empty."""
    if not next((line for line in lines if line.strip()), "").lstrip().startswith(">>>"):
        return list(lines)
    return [
        re.sub(r"^(\s*)(>>>|\.\.\.) ?", lambda m: " " * len(m[0]), line) if re.match(r"\s*(>>>|\.\.\.)", line) else ""
        for line in lines
    ]
