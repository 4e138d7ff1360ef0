"""The axis letters of every shape in this package, and the one function that checks them."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import ShapeError

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
