"""Gradients: where a tensor leaves the graph although it should be trained through, and the switch that takes it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from headwise.calls import Plan, call_role
from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Span, code_at, function_node, span_like

__all__ = ["gradient_cut", "is_for_inference", "without_place"]

StandIns = dict[Site, Callable[..., Any]]
DETACHING = frozenset({"detach", "detach_", "data", "numpy", "item", "tolist"})
# what a forward says that is made for decoding
DECODING = re.compile(r"\b(?:inference|generation|decoding)\b|cache|past_|start_pos", re.IGNORECASE)
TRAINED = re.compile(r"\btrain|teacher", re.IGNORECASE)
SWITCHES = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})


def gradient_cut(
    run: Run,
    rerun: Callable[[StandIns], Run],
    is_better: Callable[[Run], bool],
    *,
    is_data: bool = False,
    values: Mapping[str, object] | None = None,
    kind: str = "gradient-cut",
) -> list[Suspect]:
    """The first operation without which the gradient passes: alone, with all that comes after it, or with the others.

    rerun: repeats the run with stand-ins. is_better: whether the gradient of a run passes. is_data: only operations on
    what follows from the inputs count. Under `torch.no_grad()` one operation alone changes nothing, and a view there
    says that it requires a gradient: so all that comes after it is computed within the graph too.
    """
    together: StandIns = {}
    first: MarkedOp | None = None
    for entry in _cutting(run, is_data=is_data):
        first = first or entry
        alone = {entry.site: _attached(entry)}
        together |= alone
        for stand_ins, place in ((alone, entry), (together, first)):
            if is_better(rerun(dict(stand_ins))):
                return [_suspect(kind, place, stand_ins, values)]
        later = [op for op in run.seen if op.at > entry.at and op.last not in DETACHING]
        sufficient = _fewest([_with(together, later[:count]) for count in range(len(later) + 1)],
                        lambda stand_ins: is_better(rerun(dict(stand_ins))))  # fmt: skip
        if sufficient is not None:
            return [_suspect(kind, first, sufficient, values)]
    return []


def is_for_inference(kind: Any) -> bool:
    """Whether the forward of a class is declared to run in inference mode, where nobody asks for gradients, or without
    them and for decoding, by its docstring, that of the class, or the names of its arguments.
    """
    function = inspect.unwrap(getattr(kind, "forward", kind))
    node = function_node(function.__code__) if inspect.isfunction(function) else None
    said = [ast.unparse(decorator) for decorator in node.decorator_list] if node is not None else []
    if any("inference_mode" in text and "False" not in text for text in said):
        return True
    names = [] if node is None else [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    docstring = (vars(kind).get("__doc__") if isinstance(kind, type) else "") or ""
    words = "" if node is None else " ".join([ast.get_docstring(node) or "", *names])
    # a class that is trained may speak of what it is used for later
    words += "" if TRAINED.search(docstring) else f" {docstring}"
    return DECODING.search(words) is not None and any("no_grad" in text for text in said)


def without_place(plan: Plan, rerun: Callable[..., Run]) -> Plan:
    """The plan with no place in a cache, where it runs so: what is told one decodes, and is not trained."""
    starts = {name for name, place in plan.call.items() if call_role(name) == "start" and type(place) is int}
    free = replace(plan, call={**plan.call, **dict.fromkeys(starts)})
    return free if starts and rerun(plan=free).failure is None else plan


def _with(stand_ins: StandIns, entries: Sequence[MarkedOp]) -> StandIns:
    return {**{entry.site: _attached(entry) for entry in entries}, **stand_ins}


def _fewest(choices: Sequence[StandIns], suffices: Callable[[StandIns], bool]) -> StandIns | None:
    """The first choice that suffices, where all after it do too; None: not even the last does."""
    if not suffices(choices[-1]):
        return None
    few, many = 0, len(choices) - 1
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if suffices(choices[middle]) else (middle, many)
    return choices[many]


def _suspect(kind: str, entry: MarkedOp, stand_ins: StandIns, values: Mapping[str, object] | None) -> Suspect:
    operation = entry.operation
    spans = [operation.span, *reversed(operation.chain)]
    home = None if entry.name in DETACHING else next(filter(None, map(_switch, spans)), None)
    return Suspect(kind, operation.span, Repair(dict(stand_ins)), values=dict(values or {}), home=home)


def _cutting(run: Run, *, is_data: bool) -> Iterator[MarkedOp]:
    """The operations that take what has a gradient and give what has none."""
    for entry in run.seen:
        has_gradient = any(tensor.requires_grad for tensor in entry.inputs)
        if not has_gradient or (is_data and not entry.is_marked):
            continue
        output = entry.outputs
        if entry.name in DETACHING if not output else _loses(entry):
            yield entry


def _loses(entry: MarkedOp) -> bool:
    output = entry.outputs[0]
    return output.dtype.is_floating_point and not output.requires_grad


def _attached(entry: MarkedOp) -> Callable[..., Any]:
    """A stand-in that computes the same within the graph."""
    function, is_detaching = entry.function, entry.last in DETACHING

    def right(*args: Any, **options: Any) -> Any:
        if is_detaching:
            return args[0]
        with torch.inference_mode(mode=False), torch.enable_grad():
            return function(*args, **options)

    return right


def _switch(span: Span) -> Span | None:
    """The `with torch.no_grad()` or the decorator that an operation stands under; None: there is none."""
    code = code_at(span)
    if code is None:
        return None
    for node in code.around(code.node):
        if isinstance(node, ast.With):
            expressions = [item.context_expr for item in node.items]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            expressions = node.decorator_list
        else:
            continue
        for expression in expressions:
            if _name(expression) in SWITCHES:
                return span_like(code, expression, span)
        if not isinstance(node, ast.With):
            return None
    return None


def _name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
