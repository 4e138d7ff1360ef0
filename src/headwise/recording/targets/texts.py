"""Texts: what a file holds, as text, or one sentence on why it cannot be read."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from headwise.wording import refusal

__all__ = ["text_of"]

MOST = 10  # MB


def text_of(file: Path, path: str, *, is_python: bool = False) -> str:
    """The text of a file, lines ended by "\\n". path: what the person calls it. is_python: a coding line counts."""
    data = _bytes_of(file, path)
    encoding = "utf-8"
    if is_python:
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        except SyntaxError:
            # an unknown coding, or the first lines are no UTF-8: said below
            encoding = "utf-8"
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise refusal("refuse.target_encoding", path=path, encoding=encoding.upper(), place=error.start + 1) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


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
