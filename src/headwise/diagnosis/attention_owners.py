"""Attention owners: the person's own modules inside a target that hold its attentions."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headwise.dataflow import LAYERS, AttentionOps, Run, attentions
from headwise.diagnosis.checks.inputs import makings
from headwise.diagnosis.modules import module_at
from headwise.source import is_library

__all__ = ["Owner", "around", "holds_layers", "insides", "is_of_torch", "own_files", "owners"]

SOFTMAX = re.compile(r"softmax\(|scaled_dot_product_attention\(")
HEADWISE = f"{Path(__file__).parents[1]}/"


@dataclass(frozen=True)
class Owner:
    """A class that holds an attention. path: of a module of it in the target, "": it is the target itself."""

    kind: type[nn.Module]
    path: str

    def module(self, target: nn.Module) -> nn.Module:
        """The module in a target."""
        return module_at(target, self.path)


def owners(run: Run, files: Sequence[str]) -> list[Owner]:
    """The classes that hold the attentions of a run, each once, in order.

    Who holds an attention is the innermost module of the person's in which its projections, its scores and its
    weighted sum are made; where several such stand side by side on the same tokens, it is who holds them all.
    """
    if not isinstance(run.target, nn.Module):
        return []
    owners_of = [
        (_holder(run.target, _modules(run, attention), files), _taken(run, attention)) for attention in attentions(run)
    ]
    out: dict[type[nn.Module], Owner] = {}
    for path, taken in owners_of:
        stem = path.rpartition(".")[0]
        beside = {
            owner_path
            for owner_path, tokens in owners_of
            if owner_path.rpartition(".")[0] == stem
            and tokens == taken
            and taken is not None
            and _is_numbered(owner_path)
        }
        if _is_numbered(path) and len(beside) > 1:
            path = _own_path(run.target, stem, files)
        kind = type(module_at(run.target, path))
        out.setdefault(kind, Owner(kind, path))
    return list(out.values())


def around(target: nn.Module, holders: Sequence[Owner], files: Sequence[str]) -> list[Owner]:
    """The other classes of the person's in which attention may be wrong: those around its holders, which lay out and
    add what these take and give, and those that write a softmax and were not seen to run one; the innermost first.
    """
    known, out = {holder.kind for holder in holders} | {type(target)}, dict[type[nn.Module], Owner]()
    paths = [holder.path for holder in holders]
    for path, module in target.named_modules():
        kind = type(module)
        is_around = any(each.startswith(f"{path}.") for each in paths)
        if path and kind not in known and _is_own(module, files) and (is_around or _writes_softmax(kind)):
            out.setdefault(kind, Owner(kind, path))
    return sorted(out.values(), key=lambda owner: -owner.path.count("."))


def _writes_softmax(kind: type[nn.Module]) -> bool:
    try:
        return SOFTMAX.search(inspect.getsource(kind)) is not None
    except (OSError, TypeError):
        return False


def insides(target: nn.Module, files: Sequence[str]) -> list[Owner]:
    """The classes of the person's inside a module that may hold an attention, the innermost first."""
    out: dict[type[nn.Module], Owner] = {}
    for path, module in target.named_modules():
        kind = type(module)
        weights = sum(parameter.ndim > 1 for parameter in module.parameters())
        if path and weights > 1 and _is_own(module, files) and kind is not type(target):
            out.setdefault(kind, Owner(kind, path))
    return sorted(out.values(), key=lambda owner: -owner.path.count("."))


def _modules(run: Run, attention: AttentionOps) -> list[str]:
    """The names of the modules in which the parts of an attention were made."""
    parts = [attention.context, *([] if attention.scores is None else [attention.scores])]
    parts += [entry.projection for entry in makings(run, attention).values() if entry.projection is not None]
    return [part.operation.module for part in parts]


def _taken(run: Run, attention: AttentionOps) -> int | None:
    """The number of the tensor of which the queries are made."""
    origins = makings(run, attention).get("q")
    if origins is None or origins.projection is None:
        return None
    return next((tensor.number for tensor in origins.projection.inputs), None)


def _holder(target: nn.Module, names: Sequence[str], files: Sequence[str]) -> str:
    """The path of the innermost module of the person's around some modules."""
    parts = [name.split(".") for name in names]
    common = []
    for part in zip(*parts, strict=False):
        if len(set(part)) > 1:
            break
        common.append(part[0])
    return _own_path(target, ".".join(common), files)


def _own_path(target: nn.Module, path: str, files: Sequence[str]) -> str:
    """The path, or that of the nearest module around it which is the person's and is called."""
    while path and not _is_own(module_at(target, path), files):
        path = path.rpartition(".")[0]
    return path


def _is_own(module: nn.Module, files: Sequence[str]) -> bool:
    """Whether a module's class is the person's, and does something when it is called."""
    function: Any = inspect.unwrap(type(module).forward)
    code = getattr(function, "__code__", None)
    return code is not None and (code.co_filename in files or not is_library(code.co_filename))


def _is_numbered(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def is_of_torch(target: Any) -> bool:
    """Whether a target is torch's own code, which runs as one step."""
    kind = type(target) if isinstance(target, nn.Module) else target
    return str(getattr(kind, "__module__", "")).partition(".")[0] == "torch"


def own_files(target: Any, files: Iterable[str]) -> tuple[str, ...]:
    """Of some files those that are the person's own; where the target is headwise's own, its file. Else headwise's are
    no one's, even where they lie beside the target.
    """
    kind = target if isinstance(target, type) else type(target)
    home = str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    if home.startswith(HEADWISE):
        return (home,)
    return tuple(file for file in files if not file.startswith(HEADWISE))


def holds_layers(run: Run) -> bool:
    """Whether a layer of torch's own makes the attention of a run in one step."""
    return any(entry.last in LAYERS for entry in run.seen)
