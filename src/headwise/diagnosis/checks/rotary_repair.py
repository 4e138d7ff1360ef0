"""Rotary repair: which operation within a rotation by position breaks it, by trying what would put it right."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import MarkedOp, Run, attentions, chain_of, makers, place_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.recording import Site
from headwise.source import Span, code_at, constructors, function_of, span_like

__all__ = ["JOINTS", "mended_turn", "untouched"]

# trials of one rotation: each is a run
MOST = 80
NEAR = 1e-6
PRODUCTS = frozenset({"*", "mul", "*=", "mul_"})
JOINTS = ("cat", "concat", "concatenate", "stack")
# what gives each angle to two features
SPREADS = frozenset({"repeat_interleave", *JOINTS, "repeat", "tile", "flatten", "reshape", "view"})
Variant = Callable[[Callable[..., Any]], Callable[..., Any]]
# the signs of what an operation joins, with the places that these had; (): no patch is known
Sign = tuple[tuple[int, int], ...]


def mended_turn(
    run: Run, number: int, rerun: Callable[[Mapping[Site, Callable[..., Any]]], Run | None]
) -> tuple[Span, dict[Site, Callable[..., Any]], Sign] | None:
    """The operation that breaks a rotation, what stands in for it, and how a patch writes that; where several do, one
    that leaves the first token as it is. number: of the attention; rerun: a run with stand-ins, None: the rotation is
    not right with them. None: no single operation breaks it.
    """
    groups: dict[tuple[Span, str], list[MarkedOp]] = {}
    for entry in _within(run, number):
        groups.setdefault((entry.span, entry.name), []).append(entry)
    tried, second, late = 0, None, None
    for (span, _), entries in groups.items():
        for variant, sign in _variants(run, entries[0]):
            tried += 1
            if tried > MOST:
                return late or second
            stand_ins = {op.site: variant(op.function) for op in entries}
            again = rerun(stand_ins)
            if again is not None and _starts(again, number):
                if variant is not _added:
                    return late or (span, stand_ins, sign)
                # of two differences the second is written as a sum
                late = (span, stand_ins, sign)
            if again is not None:
                second = second or (span, stand_ins, sign)
    return late or second or _laid_otherwise(run, number, rerun)


def _laid_otherwise(
    run: Run, number: int, rerun: Callable[[Mapping[Site, Callable[..., Any]]], Run | None]
) -> tuple[Span, dict[Site, Callable[..., Any]], Sign] | None:
    """The same where cosines and sines were made before the run, for features that lie otherwise."""
    products = [
        (entry, at) for entry in _within(run, number) for at, marks in enumerate(entry.given)
        if entry.is_marked and entry.name in PRODUCTS and len(entry.tensors) == 2 and marks is None
    ]  # fmt: skip
    tables = [entry.tensors[at] for entry, at in products]
    if not tables or any(table.shape[-1] % 2 or not table.is_floating_point() for table in tables):
        return None
    for sizes in ((2, -1), (-1, 2)):
        stand_ins = {entry.site: _with_table(entry.function, at, sizes) for entry, at in products}
        again = rerun(stand_ins)
        if again is not None and _starts(again, number):
            # rows may have been taken of a table on the way
            taken = (tensor for entry in _within(run, number) for tensor in entry.tensors)
            span = next(filter(None, (_made(run.target, each) for each in (*tables, *taken))), products[0][0].span)
            return span, stand_ins, ()
    return None


def _with_table(function: Callable[..., Any], place: int, sizes: tuple[int, int]) -> Callable[..., Any]:
    def right(*args: Any, **options: Any) -> Any:
        return function(*(_turned(each, sizes) if at == place else each for at, each in enumerate(args)), **options)

    return right


def _made(target: Any, table: Tensor) -> Span | None:
    """Where the constructor of a module gives each angle to two features, for the buffer that a table is a part of."""
    for module in target.modules() if isinstance(target, nn.Module) else ():
        own = [buffer.untyped_storage().data_ptr() for buffer in module.buffers(recurse=False)]
        if table.untyped_storage().data_ptr() not in own:
            continue
        for constructor in constructors(type(module)):
            for node in ast.walk(constructor.tree):
                calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
                names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
                if isinstance(node, ast.Assign | ast.Expr) and names & SPREADS:
                    return constructor.span(node)
    return None


def _starts(run: Run, number: int) -> bool:
    """Whether the first token, whose angle is nothing, meets the others as it was projected."""
    for side in sides(attentions(run)[number]):
        joints = [entry for entry in chain_of(run, side.entry, side.operand) if entry.joint is not None]
        marks = joints[-1].output_marks[0] if joints else None
        value = joints[-1].outputs[0].value if joints else None
        if side.name == "v" or marks is None or value is None or marks.kind != "token":
            continue
        before = value[place_of(marks.arrays["t"]) == 0].sort().values
        after = side.x[place_of(side.t) == 0].flatten()
        if not before.numel() or not after.numel():
            continue
        near = before[torch.searchsorted(before, after - NEAR).clamp(max=before.numel() - 1)]
        if bool(((near - after).abs() > 2 * NEAR).any()):
            return False
    return True


def _within(run: Run, number: int) -> list[MarkedOp]:
    """The operations that turn queries and keys, since these were projected; then those that make the angles."""
    turning: dict[int, MarkedOp] = {}
    tables: dict[int, MarkedOp] = {}
    for side in sides(attentions(run)[number]):
        if side.name == "v":
            continue
        chain = chain_of(run, side.entry, side.operand)
        start = max((place for place, each in enumerate(chain) if each.joint is not None), default=-1)
        for entry in chain[start + 1 :]:
            turning[entry.at] = entry
            ahead = [(entry.at, tensor.number) for tensor in entry.unmarked_inputs]
            while ahead:
                before, own = ahead.pop()
                for maker in makers(run, before, own):
                    if maker.at not in tables and not maker.is_marked:
                        tables[maker.at] = maker
                        ahead += [(maker.at, tensor.number) for tensor in maker.inputs]
    return [turning[at] for at in sorted(turning)] + [tables[at] for at in sorted(tables)]


def _variants(run: Run, entry: MarkedOp) -> Iterator[tuple[Variant, Sign]]:
    """What else an operation may have been meant to do."""
    name, last = entry.name, entry.last
    is_turned = entry.is_marked
    if is_turned and name in ("+", "-", "add", "sub", "+=", "-=") and len(entry.inputs) == 2:
        is_taken = name.startswith(("-", "sub"))
        yield _added if is_taken else _taken, ((0, 1), (1, 1 if is_taken else -1))
    if is_turned and last in JOINTS and entry.args and isinstance(entry.args[0], tuple | list):
        yield from _joins(len(entry.args[0]))
    if is_turned and name in ("*", "mul", "*=") and len(entry.tensors) == 2:
        yield from ((each, ()) for each in _products(run, entry))
    shape = entry.outputs[0].shape if entry.outputs else ()
    if not is_turned and len(shape) > 1 and shape[-1] % 2 == 0 and last in SPREADS:
        yield _paired, ()
        yield _halved, ()


def _taken(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **__: args[0] - args[1]


def _added(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **__: args[0] + args[1]


def _joins(count: int) -> Iterator[tuple[Variant, Sign]]:
    """Parts with other signs, and in another order."""
    if count != 2:
        return
    for order in permutations(range(count)):
        for signs in product((1, -1), repeat=count):
            if (order, signs) == (tuple(range(count)), (1,) * count):
                continue

            def variant(
                function: Callable[..., Any], order: tuple[int, ...] = order, signs: tuple[int, ...] = signs
            ) -> Callable[..., Any]:
                return lambda parts, *args, **options: function(
                    [parts[at] * sign for at, sign in zip(order, signs, strict=True)], *args, **options
                )

            yield variant, tuple(zip(order, signs, strict=True))


def _products(run: Run, entry: MarkedOp) -> Iterator[Variant]:
    """The same with the sine in place of the cosine, or with the angle the other way round."""
    place = next((at for at, each in enumerate(entry.given) if each is None), None)
    if place is None:
        return
    table = entry.inputs[place].value
    if table is None:
        return
    if table.is_complex():
        yield lambda function: lambda *args, **options: function(args[1 - place], args[place].conj())
        return
    for partner in _partners(run, table):
        yield lambda function, partner=partner: lambda *args, **_: function(args[1 - place], partner)  # type: ignore[misc]


def _partners(run: Run, tensor: Tensor) -> list[Tensor]:
    """The sines that go with cosines, or the cosines that go with sines."""
    out: list[Tensor] = []
    for entry in run.seen:
        for value in (operand.value for operand in entry.unmarked_inputs):
            if value is None or value.shape != tensor.shape or not value.is_floating_point():
                continue
            is_known = any(torch.equal(value, partner) for partner in out)
            if not is_known and bool((((value * value + tensor * tensor) - 1).abs() < 1e-5).all()):
                out.append(value)
    return out


def _paired(function: Callable[..., Any]) -> Callable[..., Any]:
    """Halves side by side, where the one stood behind the other."""
    return lambda *args, **options: _turned(function(*args, **options), (2, -1))


def _halved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Halves one behind the other, where they stood side by side."""
    return lambda *args, **options: _turned(function(*args, **options), (-1, 2))


def _turned(t: Tensor, sizes: tuple[int, int]) -> Tensor:
    parts: Tensor = t.unflatten(-1, sizes)
    return parts.transpose(-1, -2).flatten(-2)


def untouched(entry: MarkedOp) -> Span | None:
    """Where a function that turns one tensor hands on another as it is; None: none does."""
    for span in (entry.span, *reversed(entry.operation.chain)):
        code = code_at(span)
        if code is None:
            continue
        function = function_of(code, code.node)
        if function is None or function.name == "__init__":
            continue
        parameters = {argument.arg for argument in function.args.args}
        for node in ast.walk(function):
            value = node.value if isinstance(node, ast.Assign | ast.Return) else None
            if isinstance(node, ast.Return) and isinstance(value, ast.Tuple):
                is_it = any(isinstance(element, ast.Name) and element.id in parameters for element in value.elts)
            elif isinstance(node, ast.Assign) and isinstance(value, ast.Name):
                is_it = value.id in parameters
            else:
                is_it = False
            if is_it and isinstance(node, ast.stmt):
                return span_like(code, node, span)
    return None
