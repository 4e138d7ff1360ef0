"""Argument origins: the arguments of a call that each tensor of its run comes of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from headwise.recording import tensors

__all__ = ["LARGEST", "Origins"]

# numbers in a tensor after which a call is not worth to be run as often as it has to be
LARGEST = 10_000_000


class Origins(TorchFunctionMode):
    """A block whose operations are counted, and whose tensors are followed back to the arguments that they come of.

    error: of the last operation that raised; operands: the shape of each of its tensors, and the arguments behind it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.error: Exception | None = None
        self.operands: tuple[tuple[tuple[int, ...], frozenset[str]], ...] = ()
        # the tensors are kept, so that no other gets the number of one
        self._origins: dict[int, tuple[Tensor, frozenset[str]]] = {}

    def begin(self, options: Mapping[str, Any]) -> None:
        """Take the arguments of the call that follows."""
        for name, value in options.items():
            self._note(value, frozenset({name}))

    def of(self, value: Any) -> frozenset[str]:
        """The arguments that a tensor, or those in a value, come of."""
        found = (self._origins.get(id(tensor)) for tensor in tensors(value))
        return frozenset().union(*(origin[1] for origin in found if origin is not None))

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        operands = [*args, *(kwargs or {}).values()]
        try:
            out = func(*args, **(kwargs or {}))
        except Exception as error:
            self.error = error
            self.operands = tuple((tuple(tensor.shape), self.of(tensor)) for tensor in tensors(operands))
            raise
        self._note(out, self.of(operands))
        if isinstance(out, Tensor) and out.numel() > LARGEST:
            raise TimeoutError
        return out

    def _note(self, value: Any, names: frozenset[str]) -> None:
        for tensor in tensors(value):
            # what is changed in place comes of both
            self._origins[id(tensor)] = (tensor, names | self.of(tensor))
