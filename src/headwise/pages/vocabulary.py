"""Vocabulary: tokens by the names that vocabularies give them (Ġthe, ▁the, ##ing, the</w>), read as text and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from headwise.pages.words import Token, read_words

__all__ = ["Piece", "ReadNames", "named_pieces", "read_names"]

# the text of a token and its place in the text of all; a special token has no place
Piece = tuple[str, tuple[int, int] | None]

# what a vocabulary adds to a text: <s>, [CLS], <|endoftext|>
SPECIAL = re.compile(r"<[|｜][^<>\s]+[|｜]>|<(?!0x)/?[A-Za-z_]+\d*>|\[[A-Z]+\d*\]")
# SentencePiece's sign for a space, and how it spells a byte
SPACE, BYTE = "\u2581", re.compile(r"<0x([0-9A-Fa-f]{2})>")
# WordPiece's sign that a word goes on, and BPE's that it ends
GOES_ON, ENDS = "##", "</w>"
# in place of bytes that are no character
BROKEN = "\ufffd"


@dataclass(frozen=True)
class ReadNames:
    """The text of each token, which word it belongs to (-1: special), and the words' texts; None: none is in parts."""

    tokens: tuple[str, ...]
    words: tuple[int, ...] | None = None
    called: tuple[str, ...] | None = None


def read_names(names: Sequence[str]) -> ReadNames:
    """The tokens that names stand for; names of no convention are texts already, and stay as they are.

    >>> read_names(["ä½łå¥½", "Ġthe", "me"])
    ReadNames(tokens=('你好', ' the', 'me'), words=(0, 1, 1), called=('你好', 'theme'))
    >>> read_names(["[CLS]", "play", "##ing"])
    ReadNames(tokens=('[CLS]', 'play', 'ing'), words=(-1, 0, 0), called=('playing',))
    >>> read_names(["plain", "texts"])
    ReadNames(tokens=('plain', 'texts'), words=None, called=None)
    """
    named = named_pieces(names)
    if named is None:
        return ReadNames(tuple(names))
    text, pieces = named
    words = read_words(text, [Token(name, span) for name, span in pieces])
    texts = tuple(name for name, _ in pieces)
    if not any(len(word.tokens) > 1 for word in words):
        return ReadNames(texts)
    owner = {token: n for n, word in enumerate(words) for token in word.tokens}
    return ReadNames(texts, tuple(owner.get(n, -1) for n in range(len(names))), tuple(word.text for word in words))


def named_pieces(names: Sequence[str]) -> tuple[str, list[Piece]] | None:
    """The text that tokens of these names spell, and the piece of it that each is; None: they follow no convention.

    Each convention is recognised by all names together: BPE by </w>, SentencePiece by its sign for a space, WordPiece
    by ##, byte-level BPE (Radford et al. 2019) where all spell bytes of UTF-8 in its alphabet, and decoded tokens by
    the spaces before them. A token that is a part of a character is shown as that character.
    """
    special = [bool(SPECIAL.fullmatch(name)) for name in names]
    plain = [name for name, is_special in zip(names, special, strict=True) if not is_special]
    if any(name.endswith(ENDS) for name in plain):
        ends = [name.endswith(ENDS) for name in names]
        return _spaced([name.removesuffix(ENDS) for name in names], special, [True, *ends[:-1]])
    if any(SPACE in name for name in plain):
        return _decoded(names, special, _piece_bytes, is_strict=False)
    if _continues(names, special):
        on = [_goes_on(name) for name in names]
        texts = [name[len(GOES_ON) :] if is_on else name for name, is_on in zip(names, on, strict=True)]
        return _spaced(texts, special, [not each for each in on])
    if not all(map(str.isascii, plain)) and all(set(name) <= _alphabet().keys() for name in plain):
        return _decoded(names, special, _level_bytes, is_strict=True)
    if any(name[:1] == " " and name.strip() for name in plain):
        return _decoded(names, special, _own_bytes, is_strict=False)
    return None


def _continues(names: Sequence[str], special: Sequence[bool]) -> bool:
    """Whether each name that begins with ## goes on where a word stands."""
    places = [n for n, name in enumerate(names) if _goes_on(name)]
    return bool(places) and all(n > 0 and not special[n - 1] for n in places)


def _goes_on(name: str) -> bool:
    return name.startswith(GOES_ON) and len(name) > len(GOES_ON) and name[len(GOES_ON)] not in "# "


def _spaced(texts: Sequence[str], special: Sequence[bool], starts: Sequence[bool]) -> tuple[str, list[Piece]]:
    """Texts side by side, with a space before each that begins a word."""
    text, pieces = "", list[Piece]()
    for piece, is_special, is_start in zip(texts, special, starts, strict=True):
        if is_special:
            pieces.append((piece, None))
            text += " "
            continue
        text += " " if is_start and text else ""
        pieces.append((piece, (len(text), len(text) + len(piece))))
        text += piece
    return text, pieces


def _decoded(
    names: Sequence[str], special: Sequence[bool], spelled: Callable[[str], bytes], *, is_strict: bool
) -> tuple[str, list[Piece]] | None:
    """The text of the bytes that names spell, and the characters that each touches.

    is_strict: None where they are no UTF-8, spell signs that no text holds, or do not show that they are bytes. Only at
    both ends, where a text may be cut, may a part of a character stand.
    """
    data, spans = bytearray(), list[tuple[int, int] | None]()
    for name, is_special in zip(names, special, strict=True):
        encoded = b" " if is_special else spelled(name)
        spans.append(None if is_special else (len(data), len(data) + len(encoded)))
        data += encoded
    characters, owner = _characters(bytes(data))
    if is_strict and not _is_text(characters, bytes(data)):
        return None
    pieces: list[Piece] = []
    for name, span in zip(names, spans, strict=True):
        if span is None or span[0] == span[1]:
            pieces.append((name, None))
            continue
        first, last = owner[span[0]], owner[span[1] - 1] + 1
        piece = "".join(characters[first:last])
        # a word begins after the space that its first token brings
        before, after = (
            (len(piece) - len(piece.lstrip()), len(piece) - len(piece.rstrip())) if piece.strip() else (0, 0)
        )
        pieces.append((piece, (first + before, last - after)))
    return "".join(characters), pieces


def _characters(data: bytes) -> tuple[list[str], list[int]]:
    """The characters of UTF-8, with a sign for each byte that is none, and the number of each byte's character."""
    characters, owner = list[str](), list[int]()
    at = 0
    while at < len(data):
        lead = data[at]
        size = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
        try:
            character = data[at : at + size].decode("utf-8")
        except UnicodeDecodeError:
            character, size = BROKEN, 1
        owner += [len(characters)] * size
        characters.append(character)
        at += size
    return characters, owner


def _is_text(characters: Sequence[str], data: bytes) -> bool:
    """Whether characters are those of a text that may be cut at its ends, and show that they were spelled in bytes."""
    whole = "".join(characters).strip(BROKEN)
    if BROKEN in whole or any((sign < " " and sign not in "\t\n\r") or "\x7f" <= sign < "\xa0" for sign in whole):
        return False
    # the name of a space, or of a character that takes more bytes than one
    return any(sign.isspace() or not sign.isascii() for sign in whole) and len(data) > 0


@cache
def _alphabet() -> dict[str, int]:
    """The byte-level alphabet: a byte that can be seen is its own letter, the others are the letters from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(unseen)}


def _level_bytes(name: str) -> bytes:
    return bytes(_alphabet()[letter] for letter in name)


def _piece_bytes(name: str) -> bytes:
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else _own_bytes(name.replace(SPACE, " "))


def _own_bytes(name: str) -> bytes:
    return name.encode("utf-8", "replace")
