"""Operation demands: what the operations of torch ask of an argument that they take: its kind, axes and width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.calls.plan import Plan
from headwise.calls.roles import init_role
from headwise.calls.symbols import spoken, width_of
from headwise.calls.width_repairs import expression_of

__all__ = ["Demanded", "Demands", "Unmade", "unmade_in"]

# what is asked of whole numbers, with one beside
COMPARED = frozenset({"eq", "ne", "__eq__", "__ne__"})
# operations on two alike
ELEMENTWISE = frozenset({"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "mul", "__mul__", "__rmul__"})
# operations on what is true or false, and the place of that
TRUTHS: Mapping[str, int] = {
    "__invert__": 0, "bitwise_not": 0, "logical_not": 0, "__and__": 0, "__or__": 0, "logical_and": 0, "logical_or": 0,
    "masked_fill": 1, "masked_fill_": 1, "where": 0, "bool": 0,
}  # fmt: skip
# operations that look rows up: the place of the numbers, where it is not that of whatever is not made yet
TABLES: Mapping[str, int] = {"embedding": -1, "index_select": 2, "gather": 2, "__getitem__": 1, "take_along_dim": 1}
# by the number of axes that a convolution has: those that are no channels
CONVOLUTIONS: Mapping[str, tuple[str, ...]] = {"conv1d": ("L",), "conv2d": ("h", "w"), "conv3d": ("t", "h", "w")}
# what an input with so many axes most often has between its samples and its features
BETWEEN: Mapping[int, tuple[str, ...]] = {0: (), 1: ("L",), 2: ("n", "L"), 3: ("t", "h", "w"), 4: ("n", "m", "h", "w")}
IMAGE = frozenset("hw")
# a table has room for padding, and for what is masked
SPARE = 3
# rows that every table has, and so many of one whose size nothing tells
FEWEST, MOST = 2, 5
# so many of what is counted, as of the tokens before others
COUNTED = "L//2"


@dataclass
class Demanded:
    """What is known of an argument. axes: of what it is made; below: what bounds whole numbers, "": it has none. words:
    its axes if these are whole numbers, where its shape is unpacked; none: it is not. has_width: its last axis may be
    of features; is_open: nothing but its use tells what it is; is_told: its shape was unpacked.
    """

    axes: list[Any]
    below: str = ""
    made: Tensor | None = None
    has_width: bool = True
    is_open: bool = False
    is_told: bool = False
    is_truth: bool = False
    is_count: bool = False
    words: list[Any] = field(default_factory=list)

    @property
    def value(self) -> Any:
        """As `--call` takes it."""
        if self.is_count:
            return COUNTED
        numbers = {"_ids": self.axes, "below": self.below, **({"dtype": "bool"} if self.is_truth else {})}
        return numbers if self.below else self.axes


class Unmade(Tensor):
    """An argument that is made when an operation takes it. does: what an operation that takes it does."""

    argument: Demanded
    does: Callable[[Any, list[Any], dict[str, Any]], Any]

    @staticmethod
    def of(argument: Demanded, does: Callable[[Any, list[Any], dict[str, Any]], Any]) -> Unmade:
        """One that holds no numbers."""
        out = torch.empty(0).as_subclass(Unmade)
        out.argument, out.does = argument, does
        return out

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        return next(unmade_in([*args, *options.values()])).does(func, list(args), options)


def unmade_in(value: Any) -> Iterator[Unmade]:
    """The arguments in a value that are not made."""
    if isinstance(value, Unmade):
        yield value
    elif isinstance(value, Mapping):
        yield from unmade_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from unmade_in(part)


class Demands:
    """Notes what operations tell of arguments that are not made yet. sizes: of the symbols of a plan."""

    def __init__(self, plan: Plan, sizes: Mapping[str, int]) -> None:
        self.plan, self.sizes = plan, sizes

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note what an operation tells of the arguments that it takes."""
        given = [*args, *kwargs.values()]
        weight = next((each for each in given if not isinstance(each, Unmade) and isinstance(each, Tensor)), None)
        if name in TABLES and len(given) > TABLES[name]:
            at = TABLES[name]
            table: Any = given[0] if at > 0 else weight
            for unmade in unmade_in(given[at] if at > 0 else given[:2]):
                is_made = isinstance(table, Tensor) and not isinstance(table, Unmade)
                self._number(unmade.argument, table.shape[0] if is_made and table.dim() else FEWEST)
        elif name == "one_hot":
            self._number(next(unmade_in(given)).argument, given[1] if type(given[-1]) is int else FEWEST)
        elif name in ELEMENTWISE and weight is not None and weight.dim() > 1:
            self._lay_beside(weight.shape, [unmade.argument for unmade in unmade_in(given)])
        elif name in TRUTHS and len(args) > TRUTHS[name] and isinstance(args[TRUTHS[name]], Unmade):
            argument = args[TRUTHS[name]].argument
            argument.is_truth = argument.made is None
            self._number(argument, FEWEST)
        elif (name in COMPARED and type(given[-1]) is int) or name == "long":
            self._number(next(unmade_in(given)).argument, FEWEST)
        elif name in CONVOLUTIONS and weight is not None and isinstance(given[0], Unmade):
            groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
            channels = expression_of(weight.shape[1] * groups, self.plan, self.sizes)
            self._tell(given[0].argument, ["B", channels, *CONVOLUTIONS[name]])
        elif name == "linear" and weight is not None:
            self._widen(given[0], weight.shape[-1])
        elif name in ("layer_norm", "rms_norm") and len(given) > 1:
            self._widen(given[0], given[1][-1])
        elif name in ("matmul", "__matmul__") and isinstance(weight, torch.nn.Parameter) and weight.dim() == 2:
            self._widen(given[0], weight.shape[0])
        elif name == "einsum" and isinstance(given[0], str):
            terms = given[0].replace(" ", "").partition("->")[0].split(",")
            operands = given[1] if len(given) > 1 and isinstance(given[1], list | tuple) else given[1:]
            for term, operand in zip(terms, operands, strict=False):
                if isinstance(operand, Unmade) and "." not in term:
                    self._rank(operand.argument, len(term))

    def _lay_beside(self, shape: Sequence[int], arguments: Sequence[Demanded]) -> None:
        """Axes as those of what an argument is put beside; of one entry for all tokens, one for each."""
        usual = {1: "L", self.sizes.get("B"): "B"}
        for argument in arguments:
            if argument.is_open and argument.made is None and not argument.is_told:
                argument.axes = [usual.get(size) or expression_of(size, self.plan, self.sizes) for size in shape]

    def _number(self, argument: Demanded, rows: int) -> None:
        """Whole numbers, below the number of rows of a table."""
        if argument.made is not None and not argument.below:
            return
        if argument.has_width and len(argument.axes) > 1:
            # a number has no features: what was unpacked as such counts tokens too
            told = [*argument.axes[:-1], "L"] if argument.is_told else argument.axes[:-1]
            argument.axes = argument.words or told
        argument.has_width = False
        if rows > FEWEST or not argument.below:
            argument.below = self._bound(rows)

    def _bound(self, rows: int) -> str:
        """What token numbers are below: what the table is built with as many rows as, or a few more; else a number."""
        built = [symbol for symbol in self.plan.init.values() if isinstance(symbol, str) and symbol in self.sizes]
        free = [symbol for symbol in spoken([*self.plan.init.values()]) if symbol in self.sizes]
        fitting = (symbol for spare in range(SPARE) for symbol in [*built, *free] if self.sizes[symbol] == rows - spare)
        return next(fitting, str(min(rows, MOST)))

    def _tell(self, argument: Demanded, axes: list[Any]) -> None:
        if argument.made is None:
            argument.axes = axes

    def _widen(self, operand: Any, width: int) -> None:
        """Features, as many as a weight takes."""
        if isinstance(operand, Unmade) and operand.argument.made is None and operand.argument.axes:
            operand.argument.axes[-1] = expression_of(width, self.plan, self.sizes)

    def _rank(self, argument: Demanded, rank: int) -> None:
        if argument.made is None and not argument.is_told and rank != len(argument.axes):
            argument.axes = ["B", *BETWEEN.get(rank - 2, ()), argument.axes[-1]][:rank]

    def note_unpacked(self, argument: Demanded, names: Sequence[str], *, is_whole: bool) -> None:
        """Note into which names a shape is unpacked. is_whole: into all of its axes."""
        rank = len(names) if is_whole else max(len(argument.axes), len(names) + 1)
        if argument.made is not None or argument.is_told:
            return
        wide = next((at for at, each in enumerate(names) if at and init_role(each) == "width"), rank - 1)
        between = list(BETWEEN.get(rank - 2, ("L",)))
        if rank == len("bchw") and (wide == 1 or IMAGE <= {name.lower() for name in names}):
            between = ["h", "w"]
        width = width_of(argument.axes)
        argument.axes = ["B", *between[: wide - 1], width, *between[wide - 1 :]][:rank] if rank > 1 else ["B"]
        argument.words = ["B", *BETWEEN.get(rank - 1, between)] if is_whole else []
        argument.axes = (argument.words or [*argument.axes[:-1], "L"]) if argument.below else argument.axes
        argument.is_told = True
