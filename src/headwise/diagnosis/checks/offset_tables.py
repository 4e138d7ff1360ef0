"""Offset tables: whether pairs of a window look their bias up by their offset, each offset in a row of its own."""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor, nn

from headwise.calls import init_role
from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, registered

__all__ = ["shared_offsets"]


def shared_offsets(run: Run) -> list[Suspect]:
    """The first index of a table with a row for each offset of a window, (2h - 1)(2w - 1) of h times w tokens, in which
    pairs of different offsets share a row, or pairs of one offset read several (Liu et al. 2021, arXiv:2103.14030,
    section 3.2).
    """
    for path, module in run.target.named_modules() if isinstance(run.target, nn.Module) else ():
        tables = [table.shape[0] for table in module.parameters(recurse=False) if table.ndim == 2]
        for name, index in module.named_buffers(recurse=False):
            tokens = isqrt(index.numel())
            if index.dtype not in (torch.int64, torch.int32) or tokens**2 != index.numel() or tokens < 2:
                continue
            sides = [
                (h, tokens // h) for h in range(1, tokens + 1)
                if tokens % h == 0 and (2 * h - 1) * (2 * tokens // h - 1) in tables
            ]  # fmt: skip
            # one of a line may have rows to spare
            lines = [] if any(_is_window(module, *pair) for pair in sides) else [(1, tokens)]
            if not sides or any(_is_of_offsets(index.reshape(tokens, tokens), *pair) for pair in (*sides, *lines)):
                continue
            if (span := _looked_up_at(run, index, registered(module, name))) is not None:
                full = f"{path}.{name}" if path else name
                return [Suspect("offsets-share-bias", span, said={"name": full}, proved=True)]
    return []


def _is_window(module: nn.Module, h: int, w: int) -> bool:
    """Whether a module holds the sides of a window that is no line."""
    sides = [value for name, value in vars(module).items() if init_role(name) == "window"]
    windows = [value for value in sides if isinstance(value, int | tuple | list)]
    return min(h, w) > 1 and any(value in ((h, w), [h, w]) or (h == w and value == h) for value in windows)


def _is_of_offsets(index: Tensor, h: int, w: int) -> bool:
    """Whether pairs (tokens, tokens) of a window have one row for each offset, and each offset has one row."""
    places = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")).flatten(1)
    offsets = places[:, :, None] - places[:, None, :]
    numbers = (offsets[0] + h) * (2 * w + 1) + offsets[1] + w
    pairs = torch.stack([numbers.flatten(), index.flatten()])
    counts = {int(pairs.unique(dim=1).shape[1]), int(numbers.unique().numel()), int(index.unique().numel())}
    return len(counts) == 1


def _looked_up_at(run: Run, index: Tensor, origin: Span | None) -> Span | None:
    """Where an index is made, or else where a run reads it; None: it reads it nowhere."""
    storage = index.untyped_storage().data_ptr()
    for entry in run.seen:
        tables = [tensor for tensor in entry.tensors if isinstance(tensor, nn.Parameter) and tensor.ndim == 2]
        if tables and any(tensor.untyped_storage().data_ptr() == storage for tensor in entry.tensors):
            return origin or entry.span
    return None
