"""Mask arguments: masks that are not passed on, not read, given twice, or needed though their default is None."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.calls import Plan, callee, mask_arguments, parameters
from headwise.dataflow import Run, attentions, causal_argument, mask_argument
from headwise.diagnosis.checks.mask_path import reached_by, uses
from headwise.diagnosis.checks.untaken_branches import is_elsewhere
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Failure, Operation
from headwise.source import Span

__all__ = ["default_suspects", "doubled_masks", "is_unread", "waits_for_another", "withheld"]

UNUSED = re.compile(r"not used|unused|ignored|compat|placeholder|noqa|未使用|没有用|兼容", re.IGNORECASE)
MODULE = re.compile(r"self\.(\w+)\(")


def doubled_masks(masked: Run) -> list[Suspect]:
    """Calls of scaled_dot_product_attention with attn_mask and is_causal=True, which torch documents as an error.

    masked: a run with a mask.
    """
    out = []
    for entry in masked.seen:
        if entry.last == "scaled_dot_product_attention":
            args, options = entry.rules
            if mask_argument(args, options) is not None and causal_argument(args, options):
                out.append(Suspect("mask-beside-is-causal", entry.span, proved=True))
    return out[:1]


def default_suspects(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """A mask whose default is None, without which the call raises since None is no tensor. plan: with the mask."""
    name = plan.mask
    if not any(parameter.name == name and parameter.default is None for parameter in parameters(callee(plan.target))):
        return []
    call = {key: each for key, each in plan.call.items() if key not in ("_mask", name)}
    failure = rerun(plan=replace(plan, call=call, mask="")).failure
    if failure is None or failure.span is None or not _is_of_none(failure):
        return []
    return [Suspect("mask-default-raises", failure.span, values={"name": name, "error": failure.words}, proved=True)]


def _is_of_none(failure: Failure) -> bool:
    """Whether an error comes of None where a tensor is needed."""
    error = failure.error
    if isinstance(error, AttributeError):
        return error.obj is None and "NoneType" in str(error)
    return isinstance(error, TypeError) and "NoneType" in str(error)


def withheld(run: Run, operation: Operation) -> Span | None:
    """Where the target calls what holds an operation and takes a mask, and gives it none; None: nowhere."""
    forward = f"{type(run.target).__qualname__}.forward"
    span = next((each for each in operation.chain if each.function == forward), None)
    reached = reached_by(run)
    # where it hides keys of another attention, it is not read for something else
    is_brought = any(uses(op, reached) for each in attentions(run) for op in (*each.path, each.context))
    if span is None or not isinstance(run.target, nn.Module):
        return None
    if not is_brought and is_elsewhere(run, run.plan.mask):
        return None
    match = MODULE.search(span.source)
    called = getattr(run.target, match[1], None) if match is not None else None
    function = called.forward if isinstance(called, nn.Module) else called
    if not inspect.ismethod(function) or re.search(rf"\b{re.escape(run.plan.mask)}\b", span.source):
        return None
    return span if mask_arguments(parameters(function)) else None


def is_unread(target: Any, name: str) -> bool:
    """Whether what is called reads an argument nowhere but to change it, and says nowhere that it does not."""
    try:
        function: Any = getattr(target, "forward", target) if isinstance(target, type) else callee(target)
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return False
    changes = {inner for node in ast.walk(tree) if _only_changes(node, name) for inner in ast.walk(node)}
    reads = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in changes
    ]  # fmt: skip
    return all(node.id not in (name, "locals") for node in reads) and not UNUSED.search(source)


def _only_changes(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a name another value, alone or where one was given, and does nothing else."""
    if isinstance(node, ast.If):
        return not node.orelse and all(_only_changes(statement, name) for statement in node.body)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def waits_for_another(run: Run) -> bool:
    """Whether the code reads a run's mask, and nowhere but where it asks for an argument that was not given: another
    mask, or the tokens that the mask belongs to.
    """
    name = run.plan.mask
    others = {parameter.name for parameter in parameters(callee(run.target))} - {name, *run.plan.call}
    reads = list(_reads(_tree(run), name, others, is_within=False)) if others else []
    return bool(reads) and all(reads)


def _tree(run: Run) -> ast.AST:
    """The function that is called."""
    kind = type(run.target)
    function: Any = getattr(kind, "forward", kind.__call__)
    function = run.target if inspect.isfunction(run.target) else function
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return ast.Pass()


def _reads(node: ast.AST, name: str, others: Set[str], *, is_within: bool) -> Iterator[bool]:
    """Of each place where a name is read, whether that is where one of others was asked for."""
    if isinstance(node, ast.Name):
        if node.id == name and isinstance(node.ctx, ast.Load):
            yield is_within
    elif isinstance(node, ast.If | ast.IfExp):
        asked = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
        body: list[ast.AST] = [*node.body] if isinstance(node, ast.If) else [node.body]
        orelse: list[ast.AST] = [*node.orelse] if isinstance(node, ast.If) else [node.orelse]
        yield from _reads(node.test, name, others, is_within=is_within or bool(asked & others))
        for part in body:
            yield from _reads(part, name, others, is_within=is_within or bool(asked & others))
        for part in orelse:
            yield from _reads(part, name, others, is_within=is_within)
    else:
        for part in ast.iter_child_nodes(node):
            yield from _reads(part, name, others, is_within=is_within)
