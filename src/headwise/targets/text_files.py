"""Text files: the text of a file, or one sentence on why it cannot be read."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from difflib import SequenceMatcher
from pathlib import Path

from headwise.wording import refusal

__all__ = ["bytes_like", "text_of"]

MOST = 10  # MB
ENDS = re.compile(r"(\r\n|\r|\n)")


def text_of(file: Path, path: str, *, is_python: bool = False) -> str:
    """The text of a file, lines ended by "\\n". path: as the user wrote it. is_python: a coding line counts."""
    data = _bytes_of(file, path)
    encoding = _encoding(data) if is_python else "utf-8"
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise refusal("refuse.target_encoding", path=path, encoding=encoding.upper(), place=error.start + 1) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def bytes_like(file: Path, text: str) -> bytes:
    """The bytes of a changed text of a Python file, in its encoding, with its byte order mark and its line ends.

    A new line ends as the line before it.
    """
    data = file.read_bytes()
    encoding = _encoding(data).removesuffix("-sig")
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    pieces = ENDS.split(data.removeprefix(mark).decode(encoding))
    before, ends, after = pieces[::2], [*pieces[1::2], ""], text.split("\n")
    usual = ends[0] or "\n"
    line_ends: list[str] = []
    for _, start, stop, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old_ends = [*ends[start:stop][: last - first]]
        line_ends += old_ends + [(old_ends or ends[:start] or [usual])[-1]] * (last - first - len(old_ends))
    whole = "".join(line + (end or usual) for line, end in zip(after[:-1], line_ends[:-1], strict=True))
    return mark + (whole + after[-1]).encode(encoding)


def _encoding(data: bytes) -> str:
    """The declared encoding of a Python file."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        # an unknown encoding, or first lines that are no UTF-8: decoding raises the error
        return "utf-8"


def _bytes_of(file: Path, path: str) -> bytes:
    try:
        if file.is_dir():
            raise refusal("refuse.target_folder", path=path)
        if not file.is_file():
            raise refusal("refuse.target_not_file" if file.exists() else "refuse.target_missing", path=path)
        size = file.stat().st_size
        if size > MOST << 20:
            raise refusal("refuse.target_large", path=path, limit=MOST, got=size >> 20)
        data = file.read_bytes()
    except OSError as error:
        raise refusal("refuse.target_unreadable", path=path, reason=error.strerror or error) from error
    if not data.strip():
        raise refusal("refuse.target_blank", path=path)
    place = data.find(0)
    if place >= 0:
        raise refusal("refuse.target_binary", path=path, place=place + 1)
    return data
