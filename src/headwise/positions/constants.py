"""Constants: the constant tensors of a module, which follow its device and never its dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn


class FixedNumbers(nn.Module):
    """A module that owns numbers which move with its device, keep their dtype and are in no state_dict.

    numbers: any shape, on the CPU. device: None: torch's default. The meta device takes nothing in, so a module that is
    made there keeps its numbers on the CPU until `to_empty` says where they go.

    >>> halved = FixedNumbers(torch.tensor([0.1], dtype=torch.float64), None).half()
    >>> halved.numbers(torch.device("cpu")), halved.state_dict()
    (tensor([0.1000], dtype=torch.float64), OrderedDict())
    """

    def __init__(self, numbers: Tensor, device: torch.device | str | None) -> None:
        super().__init__()
        self._numbers = self._placed = numbers
        self._place(torch.get_default_device() if device is None else torch.device(device))

    def numbers(self, device: torch.device) -> Tensor:
        """The numbers where they are needed; free of cost where the module itself is."""
        return self._placed if self._placed.device == device else self._on(device)

    def _place(self, device: torch.device) -> None:
        if device.type != "meta":
            self._placed = self._on(device)

    def _on(self, device: torch.device) -> Tensor:
        return self._numbers.to(device, kept_dtype(self._numbers.dtype, device))

    # no buffer: .half() would round it, and weights loaded into a module on the meta device would leave it empty
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._place(fn(torch.empty(0, device=self._placed.device)).device)
        return self


def kept_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype itself, but float32 for float64 on Apple's GPU, which has no float64.

    >>> kept_dtype(torch.float64, torch.device("cpu")), kept_dtype(torch.float64, torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" and dtype == torch.float64 else dtype
