"""Cut inputs: whether a whole model detaches all that it makes of its inputs, so that the parts before never learn."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from headwise.dataflow import Run
from headwise.diagnosis.checks.backward import backward_error
from headwise.diagnosis.checks.gradients import gradient_cut
from headwise.diagnosis.checks.parameters import listed, used_parameters
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Span, code_at, file_tree, is_installed

__all__ = ["cut_inputs"]

DETACHING = frozenset({"detach", "detach_"})
# what a file says where a part is not to learn, or not from this loss, and what only keeps a past
MEANT = re.compile(
    r"froz|freez|teacher|student|pre-?train|(?:^|[^a-z])ema(?:$|[^a-z])|momentum|stop[ _-]?grad|\bprob(?:e|es|ing)\b"
    r"|fine-?tun|(?:no|not|without|never|don't|only)\b.{0,30}(?:gradient|grad\b|train|learn|backprop|updat)|requires_grad"
    r"|train.{0,30}\bonly|truncat|bptt|straight[ _-]?through|memor|cache|carry|recurren|separate|stage|altern"
    r"|(?<!\.)detach|\bsave\b|\.\w+\.parameters\(\)"
    r"|冻结|预训练|教师|学生|不更新|不训练|不参与|不回传|停止梯度|只训练|仅训练|截断|动量|缓存|记忆|微调|探针|阶段",
    re.IGNORECASE,
)


def cut_inputs(run: Run, rerun: Callable[[dict[Site, Callable[..., Any]]], Run]) -> list[Suspect]:
    """A `detach` behind which no gradient reaches what reads the inputs, though the output depends on it.

    run: one with gradients, after its backward. Two parts of a model at least get none: one alone may be a part that
    others have trained. What reaches the inputs on another way, a part that another method or another class of the file
    trains, a `detach` that an option turns on, and a file that speaks of parts that do not learn are left.
    """
    target = run.target
    cuts = [entry.span for entry in run.seen if entry.last in DETACHING]
    lacking = _lacking(run)
    if not cuts or not isinstance(target, nn.Module) or not lacking or _reaches_inputs(run, lacking):
        return []
    lacking &= used_parameters(run)
    owners = {name.partition(".")[0] for name in lacking}
    if len(owners) < 2 or any(map(_is_option, cuts)) or any(_is_meant(span.file) for span in cuts):
        return []
    if _is_read_elsewhere(target, owners, run):
        return []

    def is_better(repeated: Run) -> bool:
        is_run = repeated.failure is None and not backward_error(repeated)
        return is_run and _lacking(repeated) & used_parameters(repeated) < lacking

    suspects = gradient_cut(run, rerun, is_better, is_data=True, values={"name": listed(sorted(lacking))})
    return [suspect for suspect in suspects if suspect.span in cuts and suspect.home is None]


def _lacking(run: Run) -> set[str]:
    """The parameters to be trained that a backward did not reach; none where it reached none at all."""
    trained = {name: param for name, param in run.target.named_parameters() if param.requires_grad}
    lacking = {name for name, param in trained.items() if param.grad is None}
    return lacking if len(lacking) < len(trained) else set()


def _reaches_inputs(run: Run, lacking: set[str]) -> bool:
    """Whether a backward reached an input, or a parameter that is looked up or multiplied by one."""
    if any(tensor.grad is not None for tensor in run.named.values()):
        return True
    names = {param.untyped_storage().data_ptr(): name for name, param in run.target.named_parameters()}
    sources = {tensor.untyped_storage().data_ptr() for tensor in run.named.values()}
    is_read = False
    for entry in run.seen:
        storages = {tensor.untyped_storage().data_ptr() for tensor in entry.tensors}
        read = {names[storage] for storage in storages if storage in names}
        if read and storages & sources:
            is_read = True
            if read - lacking:
                return True
    return not is_read


def _is_option(span: Span) -> bool:
    """Whether a place in the source is reached on a condition, within its function."""
    code = code_at(span)
    for node in () if code is None else code.around(code.node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(node, ast.If | ast.IfExp | ast.With):
            return True
    return True


def _is_meant(file: str) -> bool:
    """Whether a file speaks of parts that do not learn, or of a past that is kept; one that cannot be read, or a
    library's, may.
    """
    if is_installed(file):
        return True
    try:
        with Path(file).open(encoding="utf-8") as text:
            return MEANT.search(text.read()) is not None
    except (OSError, UnicodeDecodeError):
        return True


def _is_read_elsewhere(target: nn.Module, owners: set[str], run: Run) -> bool:
    """Whether parts are read in the file of a class in a function that did not run, but for what builds them."""
    code = getattr(inspect.unwrap(type(target).forward), "__code__", None)
    tree = None if code is None else file_tree(code.co_filename)
    gone = {span.function.rpartition(".")[2] for span in run.spans} | {"__init__"}
    gone |= {span.function.rpartition(".")[2] for entry in run.seen for span in entry.operation.chain}
    for function in () if tree is None else (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if function.name in gone or re.match(r"_*(?:init|reset)", function.name):
            continue
        if any(isinstance(node, ast.Attribute) and node.attr in owners for node in ast.walk(function)):
            return True
    return tree is None
