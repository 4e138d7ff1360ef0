"""LastMap: the map of a module's last call, for drop-ins whose attribute holds the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.maps import AttentionMap

__all__ = ["LastMap"]


class LastMap:
    """The map of the last call, of which `read` makes a tensor; a copied or pickled module starts without one.

    >>> from headwise.maps import attention_map
    >>> last = LastMap()
    >>> last.read() is None
    True
    >>> last.keep(lambda: attention_map(torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 4, 8)))
    >>> last.read()
    tensor([[[[0.2500, 0.2500, 0.2500, 0.2500]]]])
    """

    def __init__(self) -> None:
        self._map: AttentionMap | None = None
        self._dtype = torch.float32

    def keep(self, make: Callable[[], AttentionMap], dtype: torch.dtype = torch.float32) -> None:
        """Keep the map that `make` gives, to be read in `dtype`; nothing under compile, export and torch.func."""
        # there the tensors are stand-ins, which must not outlive the call
        stands_in = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
        self._map = None if stands_in else make()
        self._dtype = dtype

    def read(self) -> Tensor | None:
        """The weights (B, Hq, Lq, Lk) in full, differentiable; None before a call, and after one that kept none."""
        return None if self._map is None else self._map.dense().to(self._dtype)

    def __deepcopy__(self, memo: dict[int, object]) -> LastMap:
        return LastMap()

    def __reduce__(self) -> tuple[type[LastMap], tuple[()]]:
        return LastMap, ()
