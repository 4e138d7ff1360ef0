"""Provenance: facts about some tensors for as long as they live, and a function that has run on them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor

__all__ = ["ASSIGNMENTS", "Followed", "Ran", "tensors_of"]

T = TypeVar("T")

# functions that write to their first argument and give nothing
ASSIGNMENTS: frozenset[Any] = frozenset({Tensor.__setitem__, Tensor.data.__set__})  # type: ignore[attr-defined]
# functions that give the memory of their first argument to others, who may write to it unseen
LENDERS = frozenset({"numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage"})


class Followed(Generic[T]):
    """A fact about each of some tensors, for as long as they live."""

    def __init__(self) -> None:
        # by id
        self.facts: dict[int, tuple[weakref.ref[Tensor], T]] = {}

    def at(self, tensor: Any) -> T | None:
        """The fact about a tensor; None: there is none."""
        entry = self.facts.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def put(self, tensor: Tensor, facts: T) -> None:
        """Keep the fact about a tensor."""
        number = id(tensor)
        self.facts[number] = (weakref.ref(tensor, lambda _: self.facts.pop(number, None)), facts)

    def items(self) -> list[tuple[Tensor, T]]:
        """The tensors that live, and the fact about each."""
        entries = ((ref(), facts) for ref, facts in list(self.facts.values()))
        return [(tensor, facts) for tensor, facts in entries if tensor is not None]

    def clear(self) -> None:
        """Forget everything."""
        self.facts.clear()

    def __bool__(self) -> bool:
        return bool(self.facts)


class Ran(NamedTuple):
    """A function that has run: its arguments, and what it gave; of an assignment what it was written to."""

    function: Any
    args: Sequence[Any]
    options: Mapping[str, Any]
    result: Any

    @property
    def full_name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", ""))

    @property
    def name(self) -> str:
        """The name of the function, that of `masked_fill_` without its sign."""
        name = self.full_name
        return name if name.startswith("__") else name.rstrip("_")

    @property
    def is_in_place(self) -> bool:
        """Whether it writes to its first argument."""
        name = self.full_name
        if name.endswith("_") and not name.endswith("__"):
            return True
        return self.function in ASSIGNMENTS or self.options.get("inplace") is True

    @property
    def written(self) -> Iterator[Tensor]:
        """The tensors that it wrote to."""
        return tensors_of((*self.args[: int(self.is_in_place)], self.options.get("out")))

    @property
    def lent(self) -> Iterator[Tensor]:
        """The tensors whose memory it gave to others."""
        return tensors_of(self.args[: int(self.full_name in LENDERS)])

    @property
    def inputs(self) -> Iterator[Tensor]:
        """The tensors that it was given."""
        return tensors_of((*self.args, *self.options.values()))

    @property
    def results(self) -> Iterator[Tensor]:
        """The tensors that it gave."""
        return tensors_of(self.result if isinstance(self.result, tuple | list) else (self.result,))

    def position(self, tensor: Tensor) -> int:
        """Where among the arguments a tensor is; -1: not there by itself."""
        return next((n for n, value in enumerate(self.args) if value is tensor), -1)


def tensors_of(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some values, and in the lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from (tensor for tensor in value if isinstance(tensor, Tensor))
