"""The axis letters of every shape in this package, and the checks of shapes, sizes and plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from headwise.errors import ArgumentError, AttentionError, ShapeError

# what a letter means, and what the trace, which speaks to readers of the notes, calls it
AXES: dict[str, tuple[str, str]] = {
    "B": ("batch", "B"),
    "E": ("model width", "D"),
    "Hq": ("query heads", "H"),
    "Hk": ("key/value heads", "Hk"),
    "Lq": ("query length", "L"),
    "Lk": ("key length", "S"),
    "D": ("query/key head width", "d"),
    "Dv": ("value head width", "dv"),
}


def check_shapes(**wanted: tuple[Tensor, str]) -> dict[str, int]:
    """Match tensors to axis patterns and return the size of each letter.

    Each argument is a pair of a tensor and its letters. A tensor of another rank, or a letter with two sizes, raises
    ShapeError with every shape in it.

    >>> import torch
    >>> check_shapes(q=(torch.zeros(2, 3), "B Lq"), k=(torch.zeros(2, 5), "B Lk"))
    {'B': 2, 'Lq': 3, 'Lk': 5}
    """
    sizes: dict[str, int] = {}
    for name, (tensor, pattern) in wanted.items():
        letters = pattern.split()
        if tensor.ndim != len(letters):
            raise ShapeError(f"{name} must be ({', '.join(letters)}), but it came as {tuple(tensor.shape)}")
        for letter, size in zip(letters, tensor.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                meaning = AXES[letter][0]
                raise ShapeError(
                    f"{name} has {letter}={size}, but {letter} ({meaning}) is already {sizes[letter]}: "
                    f"give every tensor the same {meaning}\n{_listed(wanted)}"
                )
    return sizes


def _listed(wanted: dict[str, tuple[Tensor, str]]) -> str:
    rows = (f"  {name}: ({', '.join(p.split())}) = {tuple(t.shape)}" for name, (t, p) in wanted.items())
    return "\n".join(rows)


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The shape that these shapes broadcast to; None: to none.

    What torch.broadcast_shapes gives, which imports sympy, and so takes a third of a second the first time.

    >>> broadcast_shape((2, 1, 5), (3, 1)), broadcast_shape((2, 3), (4, 3))
    ((2, 3, 5), None)
    """
    whole: list[int] = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis, size in enumerate(shape, start=len(whole) - len(shape)):
            if size != 1:
                if whole[axis] not in (1, size):
                    return None
                whole[axis] = size
    return tuple(whole)


def check_count(
    name: str, value: object, least: int = 1, *, error: Callable[[str], AttentionError] = ArgumentError
) -> None:
    """Raise unless value is a whole number, no bool, of `least` or more. error: the class of what is raised.

    >>> check_count("num_heads", 8)
    >>> check_count("num_heads", 8.0)
    Traceback (most recent call last):
    headwise.errors.ArgumentError: num_heads must be an int of 1 or more; got num_heads=8.0, a float
    """
    if isinstance(value, bool) or not isinstance(value, Integral | torch.SymInt):
        raise error(f"{name} must be an int of {least} or more; got {name}={value!r}, a {type(value).__name__}")
    # not int(value), which would bind an open size of a compiled program
    if value < least:
        raise error(f"{name} must be {least} or more; got {name}={value}")


def check_number(name: str, value: object) -> None:
    """Raise unless value is a plain number, no bool and no tensor.

    >>> check_number("scale", 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | torch.SymFloat | torch.SymInt):
        raise ArgumentError(f"{name} must be a plain number, but {type(value).__name__} came: give it as float(...)")


def check_flag(name: str, value: object) -> None:
    """Raise unless value is True or False.

    >>> check_flag("bias", False)
    """
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False; got {name}={value!r}, a {type(value).__name__}")


def pick_samples(rows: Tensor, index: Tensor) -> Tensor:
    """The rows (B, ...) picked by index (B',), whole numbers in 0..B-1; else ArgumentError.

    >>> pick_samples(torch.tensor([5, 7]), torch.tensor([1, 1, 0]))
    tensor([7, 7, 5])
    """
    wanted = f"an index must be a tensor (B',) of int64 or int32 in 0..{rows.shape[0] - 1}, one for each sample picked"
    if not isinstance(index, Tensor):
        raise ArgumentError(f"{wanted}, but {type(index).__name__} came: make it with torch.tensor()")
    if index.ndim != 1 or index.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(f"{wanted}, but {index.dtype} {tuple(index.shape)} came: make it so")
    try:
        return rows.index_select(0, index)
    except IndexError as error:
        # on the CPU; elsewhere the device itself says so, later
        raise ArgumentError(f"{wanted}, but {index.tolist()} came: leave out what is not there") from error
