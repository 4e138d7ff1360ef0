"""Idle masks: masks that a class makes itself and that hide nothing: never read, or of conditions that never meet."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from headwise.calls import parameters
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
    """A mask that a function makes under a local name and reads nowhere, where nothing is hidden otherwise."""
    every = attentions(run)
    if not every or any(map(_hides, every)):
        # what is hidden may be what the mask describes
        return []
    by_function: dict[tuple[str, str], list[Span]] = {}
    for entry in run.seen:
        by_function.setdefault((entry.span.file, entry.span.function), []).append(entry.span)
    for spans in by_function.values():
        for statement, name in _unread(spans[0]):
            line, last = statement.lineno, statement.end_lineno or statement.lineno
            if any(line <= each.line <= last for each in spans):
                whole = Span(
                    spans[0].file, spans[0].function, line, statement.col_offset, last, statement.end_col_offset
                )
                return [Suspect("mask-unused", whole, said={"name": name}, proved=True)]
    return []


def _hides(attention: AttentionOps) -> bool:
    """Whether an attention hides anything, or a layer of torch's is given a mask or a flag."""
    pattern = find_pattern(attention)
    if pattern is not None:
        return not bool(pattern.visible.all())
    _, options = attention.context.rules
    return any(value is not None and value is not False for name, value in options.items() if MASKING.search(name))


def _unread(span: Span) -> Iterator[tuple[ast.Assign, str]]:
    """The statements of the function of a place that bind a name of a mask, which it never reads, and the names."""
    code = code_at(span)
    around = [] if code is None else [code.node, *code.around(code.node)]
    function = next((each for each in around if isinstance(each, ast.FunctionDef)), None)
    if function is None:
        return
    nodes = nodes_of(function)
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for node in nodes if not read & {"locals", "vars"} else ():
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Name) or target.id in read | shared:
            continue
        if NAMED.search(target.id) and not target.id.startswith("_"):
            yield node, target.id


def unmet_conditions(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Two conditions on places that a mask asks for at once and that never hold together, however long the sequence."""
    length = 2 * _numbers(run) + run.sizes.get("L", 0)
    is_joined = any(entry.name in JOINED or entry.last in JOINED for entry in run.seen)
    if "L" not in run.sizes or not is_joined or length > MOST:
        return []
    longer = rerun(sizes={name: length + size if name in ("L", "S") else size for name, size in run.sizes.items()})
    if longer.failure is not None:
        return []
    for entry in _unmet(longer):
        before = [each for each in run.seen if each.span == entry.span and each.value is not None]
        if before and all(_is_idle(each) for each in before):
            return [Suspect("mask-unmet", entry.span, proved=True)]
    return []


def _numbers(run: Run) -> int:
    """The sum of the whole numbers that may say how far a condition reaches: those of the class, and its parameters."""
    kind = run.target if isinstance(run.target, type) else type(run.target)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return MOST
    # those of a signature are the defaults
    signatures = [node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    spoken = {id(node) for each in signatures for node in ast.walk(each)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in spoken]
    written = {node.value for node in constants if type(node.value) is int}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    written |= {value for name in names if type(value := run.plan.namespace.get(name)) is int}
    sizes = [run.sizes[each] for each in map(str, run.plan.init.values()) if each in run.sizes and each not in WIDTHS]
    defaults = [each.default for each in parameters(kind) if each.name not in run.plan.init]
    return sum(written) + sum(sizes) + sum(each for each in defaults if type(each) is int)


def _unmet(run: Run) -> Iterator[MarkedOp]:
    """The joins of two conditions that no argument tells, of which the same comes everywhere, though of neither."""
    tensors = {tensor.number: tensor for entry in run.seen for tensor in entry.inputs}
    of_arguments = {
        number for number, tensor in tensors.items() if any(_is_of(tensor, each) for each in run.given.values())
    }
    for entry in run.seen:
        is_free = not entry.taken & of_arguments and not any(marks is not None for marks in entry.given)
        of_arguments |= set() if is_free else entry.results
        values = [each.value for each in entry.inputs]
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
