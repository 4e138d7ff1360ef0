"""PNG: a small picture as the bytes of a file, without any library, for notebooks that have none."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from headwise.pages.colours import Colour

__all__ = ["as_data", "png"]


def png(rows: Sequence[Sequence[int]], colours: Sequence[Colour]) -> bytes:
    """A picture whose pixels are numbers of colours, at most 256 of them.

    >>> png([[0, 1]], [(0, 0, 0), (255, 255, 255)])[:4]
    b'\\x89PNG'
    """
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    # each line begins with its filter: none
    lines = b"".join(b"\0" + bytes(row) for row in rows)
    parts = (
        (b"IHDR", header),
        (b"PLTE", b"".join(map(bytes, colours))),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def as_data(file: bytes) -> str:
    """The same as an address that holds all of it."""
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
