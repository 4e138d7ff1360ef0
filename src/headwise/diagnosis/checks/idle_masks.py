"""Idle masks: masks that a class makes itself and that hide nothing: never read, or of conditions that never meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from headwise.calls import parameters, written
from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, find_pattern
from headwise.diagnosis.suspects import Suspect
from headwise.recording import TensorSeen
from headwise.source import Span, code_at, nodes_of

__all__ = ["unmet_conditions", "unread_masks_of"]

# how two conditions are joined, and what holds nowhere of what both ask for
JOINED = {
    "&": False, "&=": False, "logical_and": False, "bitwise_and": False,
    "|": True, "|=": True, "logical_or": True, "bitwise_or": True,
}  # fmt: skip
# a local name of a mask, and not of what was masked
NAMED = re.compile(r"(^|_)mask$|^mask_\w+$", re.IGNORECASE)
MASKING = re.compile(r"mask|is_causal")
# as many tokens as conditions on places are tried with
MOST = 160
# sizes that no distance is compared with
WIDTHS = frozenset({"D", "H", "d", "dv", "Hkv"})


def unread_masks_of(run: Run) -> list[Suspect]:
    """A mask that a function makes under a local name and reads nowhere, where nothing is hidden otherwise.

    A mask is what is called one, or pairs of places some of which are true.
    """
    every = attentions(run)
    if not every or any(map(_hides, every)):
        # what is hidden may be what the mask describes
        return []
    by_function: dict[tuple[str, str], list[MarkedOp]] = {}
    for entry in run.seen:
        by_function.setdefault((entry.span.file, entry.span.function), []).append(entry)
    for entries in by_function.values():
        span = entries[0].span
        for statement, name in _unread(span):
            line, last = statement.lineno, statement.end_lineno or statement.lineno
            inside = [entry for entry in entries if line <= entry.span.line <= last]
            if inside and (NAMED.search(name) or any(map(_is_of_pairs, inside))):
                whole = Span(span.file, span.function, line, statement.col_offset, last, statement.end_col_offset)
                return [Suspect("mask-unused", whole, values={"name": name}, proved=True)]
    return []


def _is_of_pairs(entry: MarkedOp) -> bool:
    """Whether an operation gives truth values of pairs, some true and some false."""
    pairs = entry.outputs[0].shape[-2:] if entry.outputs else ()
    return len(pairs) > 1 and min(pairs) > 1 and _varies(entry.value)


def _hides(attention: AttentionOps) -> bool:
    """Whether an attention hides anything, or a layer of torch's is given a mask or a flag."""
    pattern = find_pattern(attention)
    if pattern is not None:
        return not bool(pattern.visible.all())
    _, options = attention.context.rules
    return any(value is not None and value is not False for name, value in options.items() if MASKING.search(name))


def _unread(span: Span) -> Iterator[tuple[ast.Assign, str]]:
    """The statements of the function of a place that bind a name that it never reads, and the names."""
    code = code_at(span)
    around = [] if code is None else [code.node, *code.around(code.node)]
    function = next((outer for outer in around if isinstance(outer, ast.FunctionDef)), None)
    if function is None:
        return
    nodes = nodes_of(function)
    single = (node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1)
    bound = [(node, node.targets[0].id) for node in single if isinstance(node.targets[0], ast.Name)]
    renewals = {
        id(part)
        for statement, name in bound
        for part in ast.walk(statement.value)
        if isinstance(part, ast.Name) and part.id == name
    }
    # what is made anew of what it was is not read for that
    loads = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    read = {node.id for node in loads if id(node) not in renewals}
    shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for statement, name in reversed(bound) if not read & {"locals", "vars"} else ():
        if name not in read | shared and not name.startswith("_"):
            yield statement, name


def unmet_conditions(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Two conditions on places that a mask asks for at once and that never hold together, however long the sequence."""
    if "L" not in run.sizes or not any(map(_is_idle, run.seen)):
        return []
    length = 2 * _numbers(run) + run.sizes["L"]
    if length > MOST:
        return []
    longer = rerun(sizes={name: length + size if name in ("L", "S") else size for name, size in run.sizes.items()})
    if longer.failure is not None:
        return []
    for entry in _unmet(longer):
        before = [op for op in run.seen if op.span == entry.span and op.value is not None]
        if before and all(_is_idle(each) for each in before):
            return [Suspect("mask-unmet", entry.span, proved=True)]
    return []


def _numbers(run: Run) -> int:
    """The sum of the whole numbers that may say how far a condition reaches: those that the code of a class, of its
    helpers and of its layers writes, and those that these are built with.
    """
    plan, target = run.plan, run.target
    kind = target if isinstance(target, type) else type(target)
    nodes = [node for _, tree in written(kind, plan.namespace) for part in tree.body for node in ast.walk(part)]
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    layers = {type(module) for module in target.modules()} if isinstance(target, nn.Module) else {kind}
    user_layers = [layer for layer in layers if not layer.__module__.startswith("torch.")]
    numbers = {node.value for node in nodes if isinstance(node, ast.Constant)}
    values = [
        *numbers,
        *(plan.namespace.get(name) for name in named),
        *(value for layer in user_layers for value in vars(layer).values()),
        *(run.sizes[name] for name in map(str, plan.init.values()) if name in run.sizes and name not in WIDTHS),
        *(parameter.default for layer in user_layers for parameter in parameters(layer)
          if layer is not kind or parameter.name not in plan.init),
    ]  # fmt: skip
    return sum(value for value in values if type(value) is int)


def _unmet(run: Run) -> Iterator[MarkedOp]:
    """The joins of two conditions that no argument tells, of which the same comes everywhere, though of neither."""
    tensors = {tensor.number: tensor for entry in run.seen for tensor in entry.inputs}
    of_arguments = {
        number for number, tensor in tensors.items() if any(_is_of(tensor, marks) for marks in run.given.values())
    }
    for entry in run.seen:
        is_free = not entry.taken & of_arguments and not any(marks is not None for marks in entry.given)
        of_arguments |= set() if is_free else entry.results
        values = [tensor.value for tensor in entry.inputs]
        if is_free and _is_idle(entry) and len(values) == len("ab") and all(map(_varies, values)):
            yield entry


def _is_idle(entry: MarkedOp) -> bool:
    """Whether two conditions are joined, and what comes of it is the same everywhere."""
    idle = JOINED.get(entry.name, JOINED.get(entry.last))
    return idle is not None and entry.value is not None and bool((entry.value == idle).all())


def _is_of(tensor: TensorSeen, value: Tensor) -> bool:
    return tensor.value is not None and tensor.value.shape == value.shape and torch.equal(tensor.value, value)


def _varies(value: Tensor | None) -> bool:
    return value is not None and value.dtype == torch.bool and bool(value.any()) and not bool(value.all())
