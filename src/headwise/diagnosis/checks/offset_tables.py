"""Offset tables: whether pairs of a window look their bias up by their offset, each offset in a row of its own."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

import torch
from torch import Tensor, nn

from headwise.calls import init_role
from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, registered

__all__ = ["shared_offsets"]


def shared_offsets(run: Run) -> list[Suspect]:
    """The first index of a table with a row for each offset of a window, (2h - 1)(2w - 1) of h times w tokens, or that
    times 2t - 1 for t frames, in which pairs of different offsets share a row, or pairs of one offset read several (Liu
    et al. 2021, arXiv:2103.14030, section 3.2; arXiv:2106.13230, section 3.3).
    """
    for path, module in run.target.named_modules() if isinstance(run.target, nn.Module) else ():
        tables = [table.shape[0] for table in module.parameters(recurse=False) if table.ndim == 2]
        for name, index in module.named_buffers(recurse=False):
            tokens = isqrt(index.numel())
            if index.dtype not in (torch.int64, torch.int32) or tokens**2 != index.numel() or tokens < 2:
                continue
            windows = [sides for sides in _boxes(tokens) if prod(2 * side - 1 for side in sides) in tables]
            # one of a line may have rows to spare
            lines = [] if any(_is_window(module, sides) for sides in windows) else [(1, 1, tokens)]
            square = index.reshape(tokens, tokens)
            if not windows or any(_is_of_offsets(square, sides) for sides in (*windows, *lines)):
                continue
            if (span := _looked_up_at(run, index, registered(module, name))) is not None:
                full = f"{path}.{name}" if path else name
                return [Suspect("offsets-share-bias", span, values={"name": full}, proved=True)]
    return []


def _boxes(tokens: int) -> Iterator[tuple[int, int, int]]:
    """The sides of all windows with so many tokens: frames, rows, columns."""
    for frames in (each for each in range(1, tokens + 1) if tokens % each == 0):
        rest = tokens // frames
        yield from ((frames, rows, rest // rows) for rows in range(1, rest + 1) if rest % rows == 0)


def _is_window(module: nn.Module, sides: tuple[int, int, int]) -> bool:
    """Whether a module holds the sides of a window that is no line."""
    held = [value for name, value in vars(module).items() if init_role(name) == "window"]
    wanted = [sides, sides[1:]] if sides[0] == 1 else [sides]
    is_square = sides[0] == 1 and sides[1] == sides[2]
    is_held = any(tuple(value) in wanted for value in held if isinstance(value, tuple | list))
    return sides[1] > 1 < sides[2] and (is_held or (is_square and sides[1] in held))


def _is_of_offsets(index: Tensor, sides: tuple[int, int, int]) -> bool:
    """Whether pairs (tokens, tokens) of a window have one row for each offset, and each offset has one row."""
    places = torch.stack(torch.meshgrid(*map(torch.arange, sides), indexing="ij")).flatten(1)
    numbers = torch.zeros_like(index)
    for axis, side in enumerate(sides):
        numbers = numbers * (2 * side + 1) + places[axis][:, None] - places[axis][None, :] + side
    pairs = torch.stack([numbers.flatten(), index.flatten()])
    counts = {int(pairs.unique(dim=1).shape[1]), int(numbers.unique().numel()), int(index.unique().numel())}
    return len(counts) == 1


def _looked_up_at(run: Run, index: Tensor, origin: Span | None) -> Span | None:
    """Where an index is made, or else where a run reads it; None: it reads it nowhere."""
    storage = index.untyped_storage().data_ptr()
    reads = [op for op in run.seen if any(tensor.untyped_storage().data_ptr() == storage for tensor in op.tensors)]
    return None if not reads else origin or reads[0].span
