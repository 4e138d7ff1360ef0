"""Tables of weight names, read both ways, with every key accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from headwise.errors import ConversionError

__all__ = ["Account", "Ignored", "Row", "Table", "fill"]


@dataclass(frozen=True)
class Row:
    """One weight under two names."""

    theirs: str
    ours: str


@dataclass(frozen=True)
class Ignored:
    """One of their weights that is left out on purpose, and why."""

    theirs: str
    why: str


@dataclass(frozen=True)
class Account:
    """What became of every key: used, ignored on purpose, missing from the weights, or unexpected in them."""

    used: tuple[Row, ...]
    ignored: tuple[Ignored, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A convention: which of their names is which of ours.

    >>> table = Table("demo", rows=(Row("query.weight", "q_proj.weight"),), ignored=(Ignored("norm", "not attention"),))
    >>> table.to_headwise({"query.weight": 1, "norm": 2})
    {'q_proj.weight': 1}
    >>> table.from_headwise({"q_proj.weight": 1})
    {'query.weight': 1}
    >>> table.account({"norm": 2, "bias": 3}).missing
    ('query.weight',)
    """

    name: str
    rows: tuple[Row, ...]
    ignored: tuple[Ignored, ...] = ()

    def account(self, theirs: Mapping[str, Tensor]) -> Account:
        """What becomes of every key of `theirs`, without converting."""
        return _account(theirs, [(row.theirs, row) for row in self.rows], self.ignored)

    def to_headwise(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their weights under our names. A missing or unexpected key raises ConversionError, naming all of them."""
        self._refuse_unless_complete(self.account(theirs), theirs)
        return {row.ours: theirs[row.theirs] for row in self.rows}

    def from_headwise(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our weights under their names; what is ignored on the way in is not there on the way out."""
        self._refuse_unless_complete(_account(ours, [(row.ours, row) for row in self.rows], ()), ours)
        return {row.theirs: ours[row.ours] for row in self.rows}

    def _refuse_unless_complete(self, account: Account, given: Mapping[str, Tensor]) -> None:
        if account.missing or account.unexpected:
            unexpected = [f"{key} {_shape(given[key])}" for key in account.unexpected]
            raise ConversionError(
                f"every key must be in the table {self.name!r} and every key of it must be given, but "
                f"{len(account.missing)} are missing ({_listed(account.missing)}) and {len(unexpected)} are unexpected "
                f"({_listed(unexpected)}): give the weights of exactly one attention layer of this convention"
            )


def fill(layer: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a layer, all or none of them.

    The names and shapes must be exactly those of the layer's state_dict, else ConversionError names each that is not.
    """
    wanted = {name: _shape(tensor) for name, tensor in layer.state_dict().items()}
    given = {name: _shape(tensor) for name, tensor in weights.items()}
    wrong = [
        f"{name} {given.get(name, 'is missing')}, the layer has {wanted.get(name, 'no such weight')}"
        for name in sorted(wanted.keys() | given.keys())
        if wanted.get(name) != given.get(name)
    ]
    if wrong:
        raise ConversionError(
            f"every weight must have the shape the layer gives it, but {'; '.join(wrong)}: "
            "build the layer with the sizes of the weights"
        )
    layer.load_state_dict(dict(weights))


def _account(given: Mapping[str, Tensor], rows: list[tuple[str, Row]], ignored: tuple[Ignored, ...]) -> Account:
    known = {name for name, _ in rows} | {leave.theirs for leave in ignored}
    return Account(
        used=tuple(row for name, row in rows if name in given),
        ignored=tuple(leave for leave in ignored if leave.theirs in given),
        missing=tuple(name for name, _ in rows if name not in given),
        unexpected=tuple(name for name in given if name not in known),
    )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) if names else "none"
