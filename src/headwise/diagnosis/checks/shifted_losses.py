"""Shifted losses: whether a class that looks back takes its loss of tokens that it has been shown."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionOps, Run, attentions, find_pattern
from headwise.diagnosis.checks.next_tokens import assigned_in, cut_of, losses_of, read_class
from headwise.diagnosis.distance import distance
from headwise.diagnosis.plans.mask_variants import looks_back
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, file_tree, is_installed

__all__ = ["shown_targets"]

# what only changes the form of a tensor
FORMS = frozenset({"view", "reshape", "flatten", "contiguous", "long", "transpose"})
# torch's losses of one token each, as functions and as modules
LOSSES, MODULES = frozenset({"cross_entropy", "nll_loss"}), (nn.CrossEntropyLoss, nn.NLLLoss)
NEAR = 1e-9
# words that say that labels are the inputs, right before their name, and that they are moved, but for within the model
ALIKE = r"(?:usually|typically|normally|often|simply|just|merely|can be|may be|equals?(?: to)?|identical to|a copy of)"
MOVED = re.compile(
    r"shift|next|ahead|following|future|offset|roll|1:|:-1|by one|mov(?:e|ing)|left|right", re.IGNORECASE
)
WITHIN = re.compile(
    r"\bshift(?:ed)? (?:internally|(?:inside|within|in) (?:the |this )?(?:model|module|forward|loss))\b", re.IGNORECASE
)


def shown_targets(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The loss of a forward whose outputs are held against tokens which they have seen: the ones before their own,
    `x[:, 1:]` against `ids[:, :-1]`, or their own, where all calls in the file hand the same tokens over as labels, or
    the docstring says that they are the labels.

    Proved by runs in which such a token alone is another: the output that should tell it differs. What looks ahead too,
    as one half of a model of both directions does, is held so on purpose.
    """
    kind = type(run.target)
    if not isinstance(run.target, nn.Module) or run.output is None or not all(map(_looks_back, attentions(run))):
        return []
    file = getattr(getattr(inspect.unwrap(kind.forward), "__code__", None), "co_filename", "")
    if not file or is_installed(file):
        return []
    tree, _ = read_class(kind)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")
    for forward in functions:
        docstrings = [ast.get_docstring(node) or "" for node in (forward, *getattr(tree, "body", [])[:1])]
        for loss, name, ahead in _held(forward, run.target, file, docstrings):
            tokens = run.named.get(name)
            is_ids = tokens is not None and not tokens.is_floating_point() and tokens.ndim == 2
            if is_ids and looks_back(run) and _is_shown(run, rerun, name, ahead):
                line = inspect.getsourcelines(kind)[1] + loss.args[0].lineno - 1
                place = Span(file, f"{kind.__name__}.forward", line)
                return [Suspect("loss-shift", place, values={"name": name}, proved=True)]
    return []


def _looks_back(attention: AttentionOps) -> bool:
    """Whether no query of an attention sees a later key, as far as that is known."""
    sight = find_pattern(attention)
    return sight is None or not bool(sight.visible[sight.column > sight.row].any())


def _held(
    forward: ast.FunctionDef, target: nn.Module, file: str, docstrings: Sequence[str]
) -> list[tuple[ast.Call, str, int]]:
    """The losses of a forward that hold its output but for the first token against the tokens of an argument but the
    last, or all of it against the same tokens; that argument, and how many places ahead of a token the output is that
    is held against it. None where another holds them the other way.
    """
    assigned, arguments = assigned_in(forward), {each.arg for each in forward.args.args[1:]}
    turned: list[tuple[ast.Call, str, int]] = []
    for loss in losses_of(forward):
        called = ast.unparse(loss.func).rpartition(".")[2]
        is_torch = called in LOSSES or isinstance(getattr(target, called, None), MODULES)
        if len(loss.args) < 2 or not is_torch:
            continue
        output, tokens = (_resolved(each, assigned) for each in loss.args[:2])
        name, cuts = _base(tokens), (_cut(output), _cut(tokens))
        if cuts == ("head", "tail"):
            # one of the two directions
            return []
        if name not in arguments or name in assigned or _base(output) in arguments:
            continue
        if cuts == ("tail", "head"):
            turned.append((loss, name, 1))
        elif cuts == ("", ""):
            alike = _handed_over(file, forward, name) or {_documented(docstrings, forward, name)}
            turned += [(loss, argument, 0) for argument in alike if argument and len(alike) == 1]
    return turned


def _handed_over(file: str, forward: ast.FunctionDef, labels: str) -> set[str]:
    """The arguments that get the same as the labels in calls of a file that give them; "" for calls where none does."""
    names = [argument.arg for argument in forward.args.args[1:]]
    alike: set[str] = set()
    for call in (node for node in ast.walk(file_tree(file) or ast.Module([], [])) if isinstance(node, ast.Call)):
        handed = {name: ast.unparse(each) for name, each in zip(names, call.args, strict=False)}
        handed |= {str(keyword.arg): ast.unparse(keyword.value) for keyword in call.keywords}
        # a model that is called by its name
        is_model = isinstance(call.func, ast.Name) and not hasattr(builtins, call.func.id)
        if labels in handed and handed.keys() <= set(names) and is_model:
            alike |= {next((name for name in names if name != labels and handed.get(name) == handed[labels]), "")}
    return alike


def _documented(docstrings: Sequence[str], forward: ast.FunctionDef, labels: str) -> str:
    """The argument of which docstrings say that the labels are the same tokens, not moved; "": they say of none.

    "labels: usually simply the input ids", "set `labels = input_ids`"; words of the same shape say nothing.
    """
    names = [argument.arg for argument in forward.args.args[1:] if argument.arg != labels]
    # what is said of the labels, to the next argument
    entry = rf"\b{labels}\b(?: \([^)]*\))? ?[:=].*?(?=$|\s(?:{'|'.join(names)})(?: \([^)]*\))?:)"
    for docstring in docstrings:
        text = WITHIN.sub("", " ".join(re.sub(r"[`*]", "", docstring).split()))
        told = " ".join(re.findall(entry, text, re.IGNORECASE)) if names else ""
        for name in [] if MOVED.search(told) else names:
            spelled = rf"(?:{name}|{name.replace('_', ' ')})"
            said = rf"\b{ALIKE} (?:the )?(?:same as )?(?:the )?{spelled}(?=$|[.;,)]| themselves| again)"
            if re.search(rf"{said}|\b{labels} ?= ?{spelled}\b(?! ?\[)", told, re.IGNORECASE):
                return name
    return ""


def _resolved(value: ast.expr, assigned: Mapping[str, ast.expr]) -> ast.expr:
    """What an argument is, where it is a name that was given to a part of something just before."""
    bare = _form(value)
    if isinstance(bare, ast.Name) and isinstance(_form(assigned.get(bare.id, bare)), ast.Subscript | ast.Name):
        return assigned.get(bare.id, bare)
    return value


def _form(value: ast.expr) -> ast.expr:
    """What is given another form."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in FORMS:
        value = value.func.value
    return value


def _base(value: ast.expr) -> str:
    value = _form(value)
    while isinstance(value, ast.Subscript):
        value = _form(value.value)
    return value.id if isinstance(value, ast.Name) else ""


def _cut(value: ast.expr) -> str:
    """Which part is left: "head" of `x[:, :-1]`, "tail" of `x[:, 1:]`; "": all; "?": another."""
    value = _form(value)
    if not isinstance(value, ast.Subscript):
        return ""
    return next((which for _, which in cut_of(value)), "?")


def _is_shown(run: Run, rerun: Callable[..., Run], name: str, ahead: int) -> bool:
    """Whether the output of each token, or behind it, changes with it."""
    tokens, output = run.named[name], run.output
    length = tokens.shape[1]
    if output is None or output.ndim <= tokens.ndim or output.shape[: tokens.ndim] != tokens.shape:
        return False
    for place in range(length - 1):

        def change(_: Any, options: dict[str, Any], place: int = place) -> None:
            ids: Tensor = options[name].clone()
            # another that is there too
            ids[:, place] = torch.where(ids[:, place] == ids.min(), ids.max(), ids.min())
            options[name] = ids

        again: Run = rerun(more_change=change)
        if again.output is None or distance(output[:, place + ahead], again.output[:, place + ahead]) <= NEAR:
            return False
    return True
