"""Document: one HTML file with its style, script and data inside, which asks for nothing and in which no text acts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from headwise.pages.script import script

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["as_base64", "as_json", "document", "shell_bytes"]

MARK = re.compile(r"<!--\s*put (\w+)\s*-->")
# what could end a block or begin another, and what JavaScript takes for the end of a line
ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def document(
    *,
    lang: str,
    title: str,
    header: Mapping[str, Any],
    words: Mapping[str, Mapping[str, str]],
    first: Mapping[str, str],
    rest: Mapping[str, str],
) -> str:
    """The page as text.

    header: what is shown, without its numbers. words: language -> key -> sentence. first: id -> base64, of what the
    first view needs; rest: the same of what is read later, which stands last, so that nothing waits for it.
    """  # fmt: skip
    style, code = asset("style.css"), script()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(code)}'",
            f"style-src '{_digest(style)}'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = {
        "lang": html.escape(lang),
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{style}</style>",
        "script": f"<script>{code}</script>",
        "header": f'<script type="application/json" id="header">{as_json(header)}</script>',
        "words": f'<script type="application/json" id="words">{as_json(words)}</script>',
        "first": _blocks(first),
        "rest": _blocks(rest),
    }
    # in one pass, so that nothing that has been put in is read again
    return MARK.sub(lambda mark: parts[mark[1]], asset("shell.html"))


def as_json(value: Any) -> str:
    r"""Data as JSON that can neither end the block it stands in nor begin another.

    >>> as_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(ESCAPED)
    # half a character, which no file can hold, becomes an escape that JSON knows
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def as_base64(numbers: Tensor) -> str:
    """The bytes of a tensor, in the order of its entries, float32 as little-endian.

    >>> as_base64(torch.tensor([1, 2, 255], dtype=torch.uint8))
    'AQL/'
    """
    import torch

    if not numbers.numel():
        return ""
    # by way of a buffer, since torch gives bytes away only with numpy
    buffer = bytearray(numbers.numel() * numbers.dtype.itemsize)
    torch.frombuffer(buffer, dtype=numbers.dtype).copy_(numbers.flatten())
    if sys.byteorder == "big" and numbers.dtype.itemsize == 4:
        buffer = bytearray(torch.frombuffer(buffer, dtype=torch.uint8).view(-1, 4).flip(1).flatten().tolist())
    return base64.b64encode(buffer).decode("ascii")


def shell_bytes() -> int:
    """The size of a page without data."""
    return sum(len(text.encode()) for text in (asset("shell.html"), asset("style.css"), script()))


@cache
def asset(name: str) -> str:
    """One file of the page's code."""
    return files("headwise.pages").joinpath("assets", name).read_text(encoding="utf-8")


def _blocks(data: Mapping[str, str]) -> str:
    return "\n".join(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in data.items())


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
