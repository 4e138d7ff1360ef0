"""Movements: patches of how tensors are split, merged, transposed and repeated."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwise.diagnosis.patches.expressions import called, receiver
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at

__all__ = [
    "Move", "keys_transposed", "permuted", "rearranged", "repeated_blockwise", "sized_otherwise", "swapped",
    "with_equation", "without_own",
]  # fmt: skip

RESHAPES = ("view", "reshape")


class Move(NamedTuple):
    """A movement of entries. before: the shape that is taken apart; parts: the sizes that its axes are taken apart
    into; order: in which these are laid out; after: the shape that is given; cuts: how many parts each of its axes has.
    """

    before: tuple[int, ...]
    parts: tuple[int, ...]
    order: tuple[int, ...]
    after: tuple[int, ...]
    cuts: tuple[int, ...]


def rearranged(code: Code, _: Suspect, *, move: Move) -> Iterator[Edits]:
    """A call that keeps together what belongs together, as other calls."""
    yield from ((code.edit(code.node, text),) for text in _rearranged(code, move))


def permuted(code: Code, _: Suspect, *, order: Sequence[int]) -> Iterator[Edits]:
    """The result with its axes in another order."""
    yield (code.edit(code.node, f"{code.bracketed(code.node)}.permute({', '.join(map(str, order))})"),)


def keys_transposed(code: Code, _: Suspect) -> Iterator[Edits]:
    """A product with its second operand transposed."""
    if not isinstance(code.node, ast.BinOp | ast.Call):
        return
    second = code.node.right if isinstance(code.node, ast.BinOp) else code.node.args[-1]
    if called(second) in ("transpose", "permute", "swapaxes") and isinstance(second, ast.Call):
        # a transposition of the wrong axes
        whose = receiver(second) or second.args[0]
        yield (code.edit(second, f"{code.bracketed(whose)}.transpose(-2, -1)"),)
    yield (code.edit(second, f"{code.bracketed(second)}.transpose(-2, -1)"),)


def swapped(
    _: Code, __: Suspect, *, splits: Sequence[tuple[Span, Sequence[int]]], merge: tuple[Span, Move] | None
) -> Iterator[Edits]:
    """Heads and tokens transposed where heads are split, and back where they are merged. merge: where, and how it goes;
    None: it fits.
    """
    entries = [(code_at(span), order) for span, order in splits]
    edits = tuple(code.edit(code.node, f"{code.of(code.node)}{_transposed(order)}") for code, order in entries if code)
    if merge is None:
        yield edits
    elif (there := code_at(merge[0])) is not None:
        yield from ((*edits, there.edit(there.node, text)) for text in _rearranged(there, merge[1]))


def with_equation(code: Code, _: Suspect, *, equation: str) -> Iterator[Edits]:
    """An einsum with other letters."""
    written = next((node for node in getattr(code.node, "args", [])[:1] if isinstance(node, ast.Constant)), None)
    if written is not None:
        yield (code.edit(written, code.of(written).replace(str(written.value), equation)),)


def without_own(code: Code, _: Suspect) -> Iterator[Edits]:
    """A running sum without the entry itself."""
    tensor = receiver(code.node) or next(iter(getattr(code.node, "args", [])), None)
    if tensor is not None:
        # what is true or false is not taken away
        for own in (code.bracketed(tensor), f"{code.bracketed(tensor)}.long()"):
            yield (code.edit(code.node, code.alone(f"{code.of(code.node)} - {own}", code.node)),)


def repeated_blockwise(code: Code, _: Suspect, *, axis: int) -> Iterator[Edits]:
    """Copies that stand beside each other, in place of copies of the whole."""
    node = code.node
    if isinstance(node, ast.Call) and called(node) in ("repeat", "tile"):
        tensor = receiver(node)
        if tensor is not None and axis < len(node.args):
            text = f"{code.of(tensor)}.repeat_interleave({code.of(node.args[axis])}, dim={axis})"
            yield (code.edit(node, text),)


def sized_otherwise(code: Code, _: Suspect, *, place: int) -> Iterator[Edits]:
    """A view or a reshape, one size of which is that of its tensor."""
    node = code.node
    if not isinstance(node, ast.Call):
        return
    sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List) else node.args
    tensor = receiver(node)
    if place < len(sizes):
        yield (code.edit(sizes[place], "-1"),)
        if tensor is not None:
            yield (code.edit(sizes[place], f"{code.bracketed(tensor)}.shape[1]"),)


def _rearranged(code: Code, move: Move) -> Iterator[str]:
    """A view, a reshape or a transpose that keeps together what belongs together, as other calls."""
    node = code.node
    if not isinstance(node, ast.Call):
        return
    before, parts, order, after, cuts = move
    tensor = receiver(node)
    given = list(node.args)
    if tensor is None and given:
        tensor, given = given[0], given[1:]
    if tensor is None:
        return
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        given = list(given[0].elts)
    is_reshape = called(node) in RESHAPES
    text = (
        code.of(tensor)
        if isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        else f"({code.of(tensor)})"
    )
    axes, arguments = _transposed(order), ", ".join(code.of(each) for each in given)
    again = {"view_as": "reshape_as", "reshape_as": "reshape_as", "flatten": "flatten"}.get(called(node), "reshape")
    if tuple(parts) == tuple(before):
        if all(cut == 1 for cut in cuts):
            yield f"{text}{axes}"
        elif is_reshape or again != "reshape":
            yield f"{text}{axes}.{again}({arguments})"
    elif is_reshape and (halves := _divided(code, given, before, parts, after)):
        yield f"{text}{halves}{axes}.reshape({arguments})"
    elif is_reshape and all(cut == 1 for cut in cuts) and len(given) == len(after):
        sizes = [""] * len(given)
        for at, place in enumerate(order):
            sizes[place] = code.of(given[at])
        yield f"{text}.{called(node)}({', '.join(sizes)}){axes}"


def _divided(
    code: Code, arguments: Sequence[ast.expr], before: Sequence[int], parts: Sequence[int], after: Sequence[int]
) -> str:
    """The call that divides one axis in two, by a size that a reshape is given; "": it is another case."""
    axis = next((at for at, (a, b) in enumerate(zip(before, parts, strict=False)) if a != b), None)
    if axis is None or len(parts) != len(before) + 1 or list(parts[axis + 2 :]) != list(before[axis + 1 :]):
        return ""
    sizes = {size: code.of(node) for size, node in zip(after, arguments, strict=False) if code.of(node) != "-1"}
    slow, fast = (sizes.get(part, "") for part in parts[axis : axis + 2])
    return f".unflatten({axis}, ({slow or -1}, {-1 if slow else fast}))" if slow or fast else ""


def _transposed(order: Sequence[int]) -> str:
    """A transpose, or where more than two axes move, a permute; "" where none does."""
    moved = [at for at, each in enumerate(order) if at != each]
    if not moved:
        return ""
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, order))})"
