"""Container: named tensors and their metadata in one safetensors file, its header checked first.

The format: eight bytes with the header's length, the header as JSON, and the tensors' bytes one after another.
https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import torch
from torch import Tensor

from headwise.atomic_write import write_whole
from headwise.errors import ArgumentError, InputError

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# what safetensors' own readers take at most
LONGEST_HEADER = 100_000_000
MOST_AXES = 8


class Entry(NamedTuple):
    """Where a tensor lies after the header, and what it is."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata in place of what may be there, whole or not at all."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    # the widest first, so that each begins at a multiple of its own width
    ordered = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    end = 0
    for name in ordered:
        t = tensors[name]
        if t.dtype not in NAMES:
            raise ArgumentError(
                f"{name} must be of {', '.join(map(str, NAMES))} to be saved, but is {t.dtype}: cast it"
            )
        start, end = end, end + t.numel() * t.dtype.itemsize
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise ArgumentError(
            f"the names, masks and tokens of a file may take {LONGEST_HEADER} bytes, the most that readers of "
            f"safetensors accept, but take {len(text)}: write several files, or fewer tokens"
        )

    def fill(unfinished: Path) -> None:
        with unfinished.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in ordered:
                file.write(_bytes(tensors[name]))

    write_whole(path, fill, force=True)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a file; InputError in one sentence where it is not whole and sound."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            entries, metadata, begin = _read_header(file, size)
            return {name: _tensor(file, begin, entry) for name, entry in entries.items()}, metadata
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give the file that save_maps wrote") from error


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Entry], dict[str, str], int]:
    """What the header says, known to fit the file's size: nothing of it is allocated before."""
    if size < 8:
        _refuse(file, f"it has {size} bytes, and the length of its header alone takes 8")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(size - 8, LONGEST_HEADER):
        _refuse(file, f"its header claims {length} bytes, and at most {min(size - 8, LONGEST_HEADER)} can be there")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file.name} is no file of maps: its header is not JSON ({error}); give what save_maps or seen.save wrote"
        ) from error
    if not isinstance(header, dict):
        _refuse(file, "its header is not an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        _refuse(file, "its metadata does not map names to texts")
    entries = {name: _entry(file, name, value) for name, value in header.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            _refuse(file, f"{name} starts at byte {entry.start} of the data, and the one before it ends at {end}")
        end = entry.stop
    if end != size - 8 - length:
        _refuse(file, f"its header names {end} bytes of data, and {size - 8 - length} are there")
    return entries, metadata, 8 + length


def _entry(file: BinaryIO, name: str, value: Any) -> Entry:
    """One line of the header, refused unless its numbers agree with each other."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        _refuse(file, f"{name} must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        _refuse(file, f"the dtype of {name} must be one of {', '.join(DTYPES)}, and is {str(dtype)[:40]}")
    if not _are_counts(shape) or len(shape) > MOST_AXES:
        _refuse(file, f"the shape of {name} must be at most {MOST_AXES} counts, and is {str(shape)[:80]}")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(file, f"the data_offsets of {name} must be a start and a stop, and are {str(offsets)[:80]}")
    wanted = math.prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != wanted:
        _refuse(file, f"{name} {tuple(shape)} of {dtype} takes {wanted} bytes, and has {offsets[1] - offsets[0]}")
    return Entry(DTYPES[dtype], tuple(shape), *offsets)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in values)


def _tensor(file: BinaryIO, begin: int, entry: Entry) -> Tensor:
    if entry.start == entry.stop:
        return torch.empty(entry.shape, dtype=entry.dtype)
    data = bytearray(entry.stop - entry.start)
    file.seek(begin + entry.start)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]  # a file opened for reading bytes has it
        _refuse(file, f"it ended before byte {begin + entry.stop}")
    if entry.dtype is torch.bool:
        # any byte but 0 is True, where torch would keep such a byte as it is
        return torch.frombuffer(data, dtype=torch.uint8).ne(0).view(entry.shape)
    return torch.frombuffer(data, dtype=entry.dtype).view(entry.shape)


def _bytes(tensor: Tensor) -> bytearray:
    """The bytes of a tensor's entries, in order; without numpy, which torch does not need."""
    data = bytearray(tensor.numel() * tensor.dtype.itemsize)
    if data:
        torch.frombuffer(data, dtype=tensor.dtype).copy_(tensor.detach().flatten())
    return data


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _refuse(file: BinaryIO, reason: str) -> NoReturn:
    raise InputError(f"{file.name} is no file of maps: {reason}; give what save_maps or seen.save wrote")
