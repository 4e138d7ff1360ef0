"""Relative terms: whether what is added to scores, made of queries and a table of distances, is of its own pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import ADDITIONS, AttentionOps, MarkedOp, Marks, Run, chain_of, place_of, source_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.observation import Observation, changed

__all__ = ["is_shifted", "misplaced", "unshifted"]

# what puts a column of zeros beside a product, by which its rows are shifted
PADS = frozenset({"cat", "concat", "concatenate", "pad"})
# how many axes the table and its numbers have at least, and a weight below which a pair is hidden
TABLE, NOTHING = 2, 1e-9
# as many queries and keys tell rows apart
LEAST = 3


def is_shifted(observation: Observation) -> bool:
    """Whether a visible pair gets the term of another query, or none although a number of the table is left over.

    Such a term is a product of queries and a table, moved so that each pair has the number of its distance.
    """
    run, attention = observation.run, observation.attention
    for term in _terms(run, attention):
        pair_terms = _pair_terms(run, attention, observation.rerun, *term)
        if pair_terms is None or not _are_same_queries(run, attention, term[0]):
            continue
        is_of_keys = _is_of_keys(run, attention, term[0])
        if pair_terms.lacking or not pair_terms.are_of(pair_terms.key if is_of_keys else pair_terms.query):
            return True
    return False


def _is_of_keys(run: Run, attention: AttentionOps, product: MarkedOp) -> bool:
    """Whether a product of a table is with the keys and not with the queries."""
    numbers = [each.number for each, marks in zip(product.inputs, product.given, strict=True) if marks is not None]
    mine = {op.at for number in numbers for op in chain_of(run, product.at, number)}
    chains = {side.name: {op.at for op in chain_of(run, side.entry, side.operand)} for side in sides(attention)}
    keys, queries = chains.get("k", set()), chains.get("q", set())
    return bool(mine & (keys - queries)) and not mine & (queries - keys)


def misplaced(run: Run, attention: AttentionOps, rerun: Callable[..., Run]) -> MarkedOp | None:
    """What pads the product of queries and a table, or that product, where visible pairs get the terms of other
    queries; None: there is none. One of keys and a table gives each pair that of its key. rerun: the same run with
    stand-ins.
    """
    for product, total, place in _terms(run, attention):
        if not _are_same_queries(run, attention, product):
            continue
        pair_terms = _pair_terms(run, attention, rerun, product, total, place)
        if pair_terms is None:
            continue
        if pair_terms.lacks_few() or not pair_terms.are_mixed():
            chain = chain_of(run, total.at, total.inputs[place].number)
            return next((entry for entry in chain if entry.at > product.at and entry.last in PADS), product)
    return None


def unshifted(run: Run, attention: AttentionOps, rerun: Callable[..., Run]) -> MarkedOp | None:
    """A product of queries and a table with a row for each distance, of which all queries read the same row for a key;
    None: there is none. rerun: the same run with stand-ins.
    """
    for product, total, place in _terms(run, attention):
        marks, columns = total.pair, _columns(run, product)
        if marks is None or columns is None:
            continue
        count = int(columns.max())
        query, key = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
        lengths = int(query.max()) + 1, int(key.max()) + 1
        if count != sum(lengths) - 1 or min(lengths) < LEAST or bool((query < 0).any() | (key < 0).any()):
            continue
        used = _moved(run, rerun, product, total, place, columns)
        if used is None or used.shape != marks.shape:
            continue
        rows = used.new_full((lengths[0], lengths[1]), -1.0)
        rows[query, key] = used
        if bool((rows == rows[:1]).all()) and int(rows[0].unique().numel()) == lengths[1]:
            return product
    return None


def _terms(run: Run, attention: AttentionOps) -> list[tuple[MarkedOp, MarkedOp, int]]:
    """Products of queries and a table, the sums that add them to scores, and which operand of the sum they are."""
    out = []
    sums = [entry for entry in attention.path if entry.name in ADDITIONS and len(entry.inputs) == TABLE]
    for total in sums:
        for place, tensor in enumerate(total.inputs):
            chain = chain_of(run, total.at, tensor.number)
            if any(each is attention.scores for each in chain):
                continue
            out += [(each, total, place) for each in chain if _columns(run, each) is not None]
    return out


def _columns(run: Run, entry: MarkedOp) -> Tensor | None:
    """The row of a table, counted from 1, of which each number of its product with queries is; None: no input is in no
    operand, or the rows lie along no axis or several.
    """
    joint, product_marks = entry.joint, entry.output_marks[0] if entry.output_marks else None
    if joint is None or product_marks is None or not joint.summed:
        return None
    if product_marks.kind == "pair" and _is_of_table(run, product_marks):
        return place_of(product_marks.arrays["y"]).double() + 1
    if product_marks.kind != "token":
        return None
    marks = dict(zip(map(id, entry.tensors), entry.given, strict=True))
    tables = [letters for tensor, letters in ((joint.a, joint.left), (joint.b, joint.right))
              if marks.get(id(tensor)) is None and tensor.ndim >= TABLE]  # fmt: skip
    others = joint.right if tables == [joint.left] else joint.left
    shape = entry.outputs[0].shape
    axes = [
        at for at, letter in enumerate(joint.out) if len(tables) == 1 and letter in tables[0] and letter not in others
    ]
    # a table of one row has no distances
    if len(axes) != 1 or len(joint.out) != len(shape) or shape[axes[0]] == 1:
        return None
    line = [-1 if at == axes[0] else 1 for at in range(len(shape))]
    return (torch.arange(shape[axes[0]]).double() + 1).view(line).expand(shape)


def _is_of_table(run: Run, pairs: Marks) -> bool:
    """Whether the second tokens of pairs are the rows of a table of places that a call is given, more than there are
    queries and at most twice as many: one for each distance.
    """
    queries, rows = (int(place_of(pairs.arrays[name]).max()) + 1 for name in "xy")
    sources = source_of(pairs.arrays["y"])
    names = {name for name, source in run.sources.items() if bool((sources == source).all())}
    is_place = bool(names) and all(call_role(name) == "encoding" for name in names)
    return is_place and queries < rows <= 2 * queries


def _are_same_queries(run: Run, attention: AttentionOps, product: MarkedOp) -> bool:
    """Whether a product and the scores are made of the same projection of queries."""
    if attention.scores is None:
        return False
    made = []
    for entry in (product, attention.scores):
        numbers = [each.number for each, marks in zip(entry.inputs, entry.given, strict=True) if marks is not None]
        chains = [chain_of(run, entry.at, number) for number in numbers]
        made.append({op.at for chain in chains for op in [each for each in chain if each.joint is not None][-1:]})
    return bool(made[0] & made[1])


@dataclass(frozen=True)
class _PairTerms:
    """What a term gives each pair. rows: the place, from 1, of the token of which its number is made; used: the rows of
    the table that are used, of so many. visible: the pairs that are, taken: those of them that get a number.
    """

    rows: Tensor
    used: Tensor
    count: int
    query: Tensor
    key: Tensor
    visible: Tensor
    taken: Tensor

    @property
    def lacking(self) -> int:
        """How many visible pairs of a head get no number, although some of the table are left over."""
        pairs = (self.visible & ~self.taken).reshape(-1, *self.visible.shape[-2:]).any(dim=0)
        return int(pairs.sum()) if len(self.used) < self.count else 0

    def lacks_few(self) -> bool:
        """Whether some visible pairs get no number, and fewer than there are queries: no triangle is left out."""
        return 0 < self.lacking < self.visible.shape[-2]

    def are_mixed(self) -> bool:
        """Whether they are made of the query and the key of their own pair, by the same share everywhere."""
        rows, query, key = (each.double()[self.taken] for each in (self.rows - 1, self.query, self.key))
        apart = (query - key) != 0
        shares = (rows - key)[apart] / (query - key)[apart]
        is_of_both = shares.numel() == 0 or bool(torch.isclose(shares, shares[:1]).all())
        return is_of_both and bool(torch.isclose(rows[~apart], key[~apart]).all())

    def are_of(self, places: Tensor) -> bool:
        """Whether the numbers of pairs are made of the tokens at these places."""
        return bool(torch.isclose(self.rows, places.double() + 1)[self.taken].all())


def _pair_terms(
    run: Run, attention: AttentionOps, rerun: Callable[..., Run], product: MarkedOp, total: MarkedOp, place: int
) -> _PairTerms | None:
    """What a term gives each pair; None: more is done with it than to move it, or it is not known."""
    product_marks, marks, softmax = product.output_marks[0], total.pair, attention.softmax
    weights = None if softmax is None else softmax.value
    columns = _columns(run, product)
    if product_marks is None or marks is None or weights is None or columns is None or weights.shape != marks.shape:
        return None
    rows = place_of(product_marks.arrays["t" if product_marks.kind == "token" else "x"]).double() + 1
    numbers = (torch.ones_like(rows), rows, columns)
    shifts = [_moved(run, rerun, product, total, place, number) for number in numbers]
    if any(shift is None or shift.shape != marks.shape for shift in shifts):
        return None
    ones, row, column = (shift for shift in shifts if shift is not None)
    query, key = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
    visible = (weights > NOTHING) & (query >= 0) & (key >= 0)
    taken = visible & (ones != 0)
    unit = ones[taken][:1]
    if not taken.any() or not bool(torch.isclose(ones[taken], unit).all()):
        return None
    used = torch.unique((column[taken] / unit).round())
    return _PairTerms(row / unit, used, int(columns.max()), query, key, visible, taken)


def _moved(
    run: Run, rerun: Callable[..., Run], product: MarkedOp, total: MarkedOp, place: int, numbers: Tensor
) -> Tensor | None:
    """What a sum takes where a product gives certain numbers, spread over what it gives; None: such a run fails."""

    def instead(output: Tensor) -> Tensor:
        return numbers.to(output.dtype)

    changes: list[tuple[MarkedOp, Callable[[Tensor], Tensor]]] = [(product, instead)]
    changed_run = rerun(changed(run, changes))
    entry = next((op for op in changed_run.seen if op.at == total.at), None)
    if changed_run.failure is not None or entry is None or entry.name != total.name:
        return None
    value = entry.inputs[place].value
    whole = entry.outputs[0].shape
    return None if value is None or value.ndim != len(whole) else value.detach().double().expand(whole)
