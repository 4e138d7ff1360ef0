"""What a tree of masks allows, by the definitions of the patterns: plain loops over plain lists."""

from typing import Any, NamedTuple

from tests.masks.trees import Shape, Tree


class Place(NamedTuple):
    """One pair: indices of sample, head, row and column, and positions i and j."""

    b: int
    h: int
    row: int
    column: int
    i: int
    j: int


def allowed(tree: Tree, s: Shape) -> list[list[list[list[bool]]]]:
    """True where a query may attend, (B, H, Lq, Lk); the last query sits at the last key."""
    return [
        [
            [
                [sees(tree, Place(b, h, row, column, row + s.Lk - s.Lq, column)) for column in range(s.Lk)]
                for row in range(s.Lq)
            ]
            for h in range(s.H)
        ]
        for b in range(s.B)
    ]


def sees(tree: Tree, at: Place) -> bool:
    """Whether the query of one pair may attend to its key."""
    kind, *parts = tree
    if kind == "and":
        return sees(parts[0], at) and sees(parts[1], at)
    if kind == "or":
        return sees(parts[0], at) or sees(parts[1], at)
    if kind == "not":
        return not sees(parts[0], at)
    if kind == "placed":
        mask, i, j, columns = parts
        column = at.column if columns is None else columns[at.column]
        return sees(mask, at._replace(i=_of(i, at.b)[at.row], j=_of(j, at.b)[at.column], column=column))
    return _leaf_sees(kind, parts, at)


def _leaf_sees(kind: str, parts: list[Any], at: Place) -> bool:
    if kind == "causal":
        return at.j <= at.i
    if kind == "window":
        return at.i - parts[0] <= at.j <= at.i + parts[1]
    if kind == "keys":
        return _of(parts[0], at.b)[at.column]
    if kind == "lengths":
        n = _of(parts[0], at.b)
        return at.column < (n[at.row] if isinstance(n, list) else n)
    if kind == "documents":
        ids, key_ids = parts
        return _of(ids, at.b)[at.row] == _of(ids if key_ids is None else key_ids, at.b)[at.column]
    if kind == "prefix":
        return at.j < (parts[0] if isinstance(parts[0], int) else _of(parts[0], at.b))
    if kind == "allowed":
        t = parts[0] if isinstance(parts[0][0][0], list) else [[parts[0]]]
        return _of(_of(_of(_of(t, at.b), at.h), at.row), at.column)
    if kind == "rule":
        return bool(parts[0](at.b, at.h, at.i, at.j))
    if kind == "flex":
        return bool(parts[0](at.b, at.h, at.row, at.column))
    raise ValueError(f"the oracle knows no {kind}")


def _of(rows: list[Any], index: int) -> Any:
    """An entry, or the only one, which serves all."""
    return rows[0] if len(rows) == 1 else rows[index]
