"""Weight tables: names of weights, read both ways, with every key accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from headwise.errors import ConversionError
from headwise.layer.sizes import Widths

__all__ = ["Account", "Ignored", "WeightLayout", "WeightRow", "WeightStep", "WeightTable", "fill"]


class WeightLayout(NamedTuple):
    """What a step must know of the layer: its widths, and which of `turned` features of a head turn together."""

    widths: Widths
    # None: no rotation
    pairing: str | None = None
    turned: int = 0


Parts = tuple[Tensor, ...]


@dataclass(frozen=True)
class WeightStep:
    """A named change of weights and its inverse.

    read: theirs to ours, write: ours to theirs; each takes and gives a tuple, as many as the row has of them. said:
    what it does, as the report words it. shifts: whether it adds a constant, which gradients do not see.
    """

    sentence: str
    read: Callable[[Parts, WeightLayout], Parts]
    write: Callable[[Parts, WeightLayout], Parts]
    shifts: bool = False


@dataclass(frozen=True)
class WeightRow:
    """One weight of theirs and what it is of ours, after `steps`; several of ours where theirs packs them.

    group: rows of one group are there together or not at all; "": the row must be there.
    """

    theirs: str
    ours: str | tuple[str, ...]
    steps: tuple[WeightStep, ...] = ()
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Our names, as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True)
class Ignored:
    """One of their weights that is left out on purpose, and why."""

    theirs: str
    why: str


@dataclass(frozen=True)
class Account:
    """What became of every key: used, ignored on purpose, missing from the weights, or unexpected in them."""

    used: tuple[WeightRow, ...]
    ignored: tuple[Ignored, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


@dataclass(frozen=True)
class WeightTable:
    """A convention: which of their names is which of ours.

    refused: weights that mean something the layer cannot do, with the reason, told instead of "unexpected".

    >>> query = WeightRow("query.weight", "q_proj.weight")
    >>> table = WeightTable("demo", rows=(query,), ignored=(Ignored("norm", "not attention"),))
    >>> table.to_headwise({"query.weight": 1, "norm": 2})
    {'q_proj.weight': 1}
    >>> table.from_headwise({"q_proj.weight": 1})
    {'query.weight': 1}
    >>> table.account({"norm": 2, "bias": 3}).missing
    ('query.weight',)
    """

    name: str
    rows: tuple[WeightRow, ...]
    ignored: tuple[Ignored, ...] = ()
    refused: tuple[Ignored, ...] = ()

    def account(self, weights: Mapping[str, Tensor]) -> Account:
        """What becomes of every key of `weights`, without converting."""
        tabled = {row.theirs for row in self.rows} | {leave.theirs for leave in self.ignored}
        wanted = self._rows({row.group for row in self.rows if row.theirs in weights})
        return Account(
            used=tuple(row for row in self.rows if row.theirs in weights),
            ignored=tuple(leave for leave in self.ignored if leave.theirs in weights),
            missing=tuple(row.theirs for row in wanted if row.theirs not in weights),
            unexpected=tuple(name for name in weights if name not in tabled),
        )

    def to_headwise(
        self, weights: Mapping[str, Tensor], layout: WeightLayout | None = None, *, gradients: bool = False
    ) -> dict[str, Tensor]:
        """Their weights under our names. A missing or unexpected key raises ConversionError, naming all of them.

        layout: needed where a row has steps. gradients: what came are gradients of the weights, not weights.
        """
        account = self.account(weights)
        for leave in self.refused:
            if leave.theirs in account.unexpected:
                raise ConversionError(
                    f"{self.name!r} has {leave.theirs} {_shape(weights[leave.theirs])}, but {leave.why}"
                )
        self._refuse_unless_complete(account.missing, account.unexpected, weights)
        converted: dict[str, Tensor] = {}
        for row in account.used:
            parts: Parts = (weights[row.theirs],)
            for step in row.steps:
                if layout is not None and not (gradients and step.shifts):
                    parts = self._stepped(step.read, parts, layout, row)
            converted |= zip(row.names, parts, strict=True)
        return converted

    def from_headwise(self, ours: Mapping[str, Tensor], layout: WeightLayout | None = None) -> dict[str, Tensor]:
        """Our weights under their names; what is ignored on the way in is not there on the way out."""
        rows = self._rows({row.group for row in self.rows if any(name in ours for name in row.names)})
        tabled = {name for row in rows for name in row.names}
        missing = tuple(name for row in rows for name in row.names if name not in ours)
        self._refuse_unless_complete(missing, tuple(name for name in ours if name not in tabled), ours)
        converted = {}
        for row in rows:
            parts = tuple(ours[name] for name in row.names)
            for step in reversed(row.steps):
                if layout is not None:
                    parts = self._stepped(step.write, parts, layout, row)
            (converted[row.theirs],) = parts
        return converted

    def _rows(self, groups: set[str]) -> tuple[WeightRow, ...]:
        return tuple(row for row in self.rows if not row.group or row.group in groups)

    def _stepped(
        self, change: Callable[[Parts, WeightLayout], Parts], parts: Parts, layout: WeightLayout, row: WeightRow
    ) -> Parts:
        try:
            return change(parts, layout)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(str(_shape(part)) for part in parts)
            raise ConversionError(
                f"{row.theirs} of {self.name!r} must have the shape that the other weights and the heads ask for, but "
                f"came as {shapes} where {layout.widths}: give weights and heads of one layer"
            ) from error

    def _refuse_unless_complete(
        self, missing: tuple[str, ...], unexpected: tuple[str, ...], weights: Mapping[str, Tensor]
    ) -> None:
        if missing or unexpected:
            surplus = [f"{key} {_shape(weights[key])}" for key in unexpected]
            raise ConversionError(
                f"every key must be in the table {self.name!r} and every key of it must be given, but "
                f"{len(missing)} are missing ({_listed(missing)}) and {len(surplus)} are unexpected "
                f"({_listed(surplus)}): give the weights of exactly one attention layer of this convention"
            )


def fill(layer: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a layer, all or none of them.

    The names and shapes must be exactly those of the layer's state_dict, else ConversionError names each that is not.
    """
    wanted = {name: _shape(tensor) for name, tensor in layer.state_dict().items()}
    shapes = {name: _shape(tensor) for name, tensor in weights.items()}
    wrong = [
        f"{name} {shapes.get(name, 'is missing')}, the layer has {wanted.get(name, 'no such weight')}"
        for name in sorted(wanted.keys() | shapes.keys())
        if wanted.get(name) != shapes.get(name)
    ]
    if wrong:
        raise ConversionError(
            f"every weight must have the shape the layer gives it, but {'; '.join(wrong)}: "
            "build the layer with the sizes of the weights"
        )
    layer.load_state_dict(dict(weights))


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(names[:12]) + (f", and {len(names) - 12} more" if len(names) > 12 else "")
    return shown or "none"
