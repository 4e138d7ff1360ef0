"""Shared layers: lists of layers that hold one layer or a part of one several times, and nothing says it is meant."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator

from torch import nn

from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, constructors, file_tree

__all__ = ["shared_layers"]

LISTS = (nn.ModuleList, nn.Sequential)
# one matrix may be a table of tokens that is the last projection too
LEAST_MATRICES = 2
# what all layers may read positions from
POSITIONS = re.compile(r"pos|rel|bias|rot|rope|emb", re.IGNORECASE)
# what says that layers share their weights
MEANT = re.compile(
    r"(?<![a-z])(shar(e|es|ed|ing)|tie[sd]?|tying|loop(s|ed)?|iterat\w*|deq|albert)(?![a-z])|universal|recurren|reuse|"
    r"same (block|layer|weights)|共享|同一(层|组权重)",
    re.IGNORECASE,
)
# what says that they do not, in a clause that says nothing of sharing
OWN = re.compile(
    r"\b(?:layer|block)s?\b[^.;\n]*\b(?:own|separate|independent|different|distinct) (?:set of )?(?:weights|parameters)"
    r"|层[^。；\n]*各自的(?:权重|参数)",
    re.IGNORECASE,
)
CLAUSES = re.compile(r"[.;。；\n]")


def shared_layers(run: Run) -> list[Suspect]:
    """The lists of a target that were made of one layer, as `[layer] * n` does, or of layers around one part."""
    target = run.target
    if not isinstance(target, nn.Module):
        return []
    return [
        Suspect("layers-shared", span, values={"name": name, "near": str(len(layers))}, proved=True)
        for name, holder, layers in _lists(target)
        if len({id(layer) for layer in layers}) == 1 < len(layers) and _is_large(layers[0])
        if not _is_meant(type(holder)) and not _is_meant(type(target))
        if (span := _made(type(holder), name.rpartition(".")[2], _repeats)) is not None
    ] + [
        Suspect("layers-shared", span, values={"name": f"{name}.*.{part}", "near": str(len(layers))}, proved=True)
        for name, holder, layers in _lists(target)
        if (part := _shared_part(layers))
        and _is_run_in_turn(run, f"{name}.0.{part}")
        and not _is_meant(type(holder))
        and not _is_meant(type(target))
        if (span := _made(type(holder), name.rpartition(".")[2], _comprehends)) is not None
    ]


def _shared_part(layers: list[nn.Module]) -> str:
    """The name of the outermost part with several matrices that all of several layers hold; "": there is none."""
    if len(layers) < 2 or len({id(layer) for layer in layers}) < len(layers):
        return ""
    common = set.intersection(*({id(part) for part in layer.modules()} for layer in layers))
    parts = ((name, part) for name, part in layers[0].named_modules() if id(part) in common and _is_large(part))
    return next((name for name, _ in parts if not POSITIONS.search(name)), "")


def _is_run_in_turn(run: Run, path: str) -> bool:
    """Whether a part takes other tensors in each of its calls, as in layers that run one after another."""
    inside = [
        operation
        for operation in run.record.operations
        if f"{operation.module}.".startswith(f"{path}.") and operation.inputs
    ]
    firsts = [each for each in inside if (each.span, each.module) == (inside[0].span, inside[0].module)]
    return len({each.inputs[0].number for each in firsts}) > 1


def _lists(target: nn.Module) -> Iterator[tuple[str, nn.Module, list[nn.Module]]]:
    """The lists of layers of a module and of those in it, with their names and what holds them."""
    for path, holder in target.named_modules():
        for name, child in holder.named_children():
            if isinstance(child, LISTS):
                yield f"{path}.{name}".lstrip("."), holder, list(child)


def _is_large(layer: nn.Module) -> bool:
    return sum(weight.ndim > 1 for weight in layer.parameters()) >= LEAST_MATRICES


def _is_meant(kind: type) -> bool:
    try:
        tree = file_tree(inspect.getsourcefile(kind) or "")
        docstring = (tree and ast.get_docstring(tree)) or ""
        text = inspect.getsource(kind) + docstring
        own = [each for each in CLAUSES.split(text) if OWN.search(each) and not MEANT.search(each)]
        return MEANT.search(text) is not None and not own
    except (OSError, TypeError):
        return True


def _made(kind: type, name: str, how: Callable[[ast.expr], bool]) -> Span | None:
    """Where a constructor makes a list of a name in a way; None: nowhere."""
    for constructor in constructors(kind):
        for node in ast.walk(constructor.tree):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            goals = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(goal, ast.Attribute) and goal.attr == name for goal in goals) and how(node.value):
                return constructor.span(node)
    return None


def _comprehends(value: ast.expr) -> bool:
    return any(isinstance(node, ast.ListComp | ast.GeneratorExp) for node in ast.walk(value))


def _repeats(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            items_of = [side.elts for side in (node.left, node.right) if isinstance(side, ast.List | ast.Tuple)]
            if any(len(items) == 1 and not isinstance(items[0], ast.Constant) for items in items_of):
                return True
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and isinstance(node.elt, ast.Name | ast.Attribute):
            names = {
                part.id for loop in node.generators for part in ast.walk(loop.target) if isinstance(part, ast.Name)
            }
            if not (isinstance(node.elt, ast.Name) and node.elt.id in names):
                return True
    return False
