"""Model run: every attention weight of a model on one text, watched while the untouched model runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils import _pytree as pytree

from headwise.maps import AttentionMap
from headwise.pages.models import LoadedModel, Progress, first_line, quiet, silent
from headwise.pages.shape_walk import Walk, full_walk, short_walk
from headwise.pages.text_tokens import TextTokens
from headwise.pages.user_model import called_with, in_evaluation, parts_of
from headwise.watching import Seen, watch
from headwise.wording import refusal

__all__ = ["ModelRun", "run"]

Sizes = tuple[int, ...]
# the projections of queries, keys, values and outputs, as families name them, seen from the module that attends
PROJECTIONS = (
    ("query", "key", "value", "..output.dense"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("q", "k", "v", "o"),
)


@dataclass(frozen=True, eq=False)
class ModelRun:
    """The weights of every layer (H, L, L), the walk through each, and what was not seen, with the reason.

    maps: name and map of every layer, in running order.

    difference: the largest of any output between the watched run and the one before it: 0, or there is no Run.
    """

    maps: tuple[tuple[str, AttentionMap], ...]
    weights: Mapping[int, Tensor]
    walks: Mapping[int, Walk]
    unseen: Mapping[str, str]
    difference: float


def run(loaded: LoadedModel, reading: TextTokens, progress: Progress) -> ModelRun:
    """Run a model alone, then watched, and read its weights.

    Outputs that are not bit-equal in both runs, and a model whose attention was not seen, raise a Refusal.
    """
    length, model = len(reading.tokens), loaded.model
    with quiet(), torch.no_grad(), in_evaluation(model):
        progress("step.untouched", {})
        alone = _outputs(loaded, reading)
        progress("step.watched", {})
        with watch(model) as maps, _sizes_of_projections(model) as sizes, _reporting(model, progress):
            watched = _outputs(loaded, reading)
        difference = _difference(loaded, alone, watched)
        named = _maps(loaded, maps, length)
        weights = {n: layer_map.dense()[0].float() for n, (_, layer_map) in enumerate(named)}
        walks = {n: _walk(name, layer_map, sizes, watched) for n, (name, layer_map) in enumerate(named)}
    return ModelRun(tuple(named), weights, walks, _others(maps, length) | dict(maps.unseen), difference)


def _outputs(loaded: LoadedModel, reading: TextTokens) -> list[Tensor]:
    """Every tensor that a model gives, its last hidden state first."""
    try:
        out = called_with(loaded, reading.inputs)()
    except Exception as error:
        raise refusal(
            "refuse.model_fails", model=loaded.name, got=len(reading.tokens), reason=first_line(error)
        ) from error
    leaves = pytree.tree_leaves(dict(out) if isinstance(out, Mapping) else out)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _difference(loaded: LoadedModel, alone: list[Tensor], watched: list[Tensor]) -> float:
    """0.0, or a Refusal where an output is not bit for bit the same; NaN is the same as NaN."""
    differences = [(a.double() - b.double()).nan_to_num().abs() for a, b in zip(alone, watched, strict=True)]
    largest = max((float(d.max()) for d in differences if d.numel()), default=0.0)
    is_same = all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(alone, watched, strict=True))
    if not is_same:
        raise refusal("refuse.unequal", difference=largest, model=loaded.name)
    return largest


def _maps(loaded: LoadedModel, maps: Seen, length: int) -> list[tuple[str, AttentionMap]]:
    """The maps of the text's tokens over themselves, in running order."""
    named = [(name, layer_map) for name, layer_map in maps.in_order() if tuple(layer_map.shape[2:]) == (length, length)]
    if not named:
        reasons = [f"{name}: {reason}" for name, reason in (*_others(maps, length).items(), *maps.unseen.items())]
        reason = "; ".join(reasons[:4]) if reasons else f"found {parts_of(loaded.model)}, and no attention was seen"
        kind = loaded.config.model_type
        raise refusal("refuse.no_attention", model=loaded.name, model_type=kind, reason=reason)
    return named


def _others(maps: Seen, length: int) -> dict[str, str]:
    """The maps of other things than the text's tokens over themselves, which links between its words do not show."""
    shapes = {name: tuple(layer_map.shape[2:]) for name, layer_map in maps.in_order()}
    return {
        name: f"its {Lq} queries and {Lk} keys are not the {length} tokens"
        for name, (Lq, Lk) in shapes.items()
        if (Lq, Lk) != (length, length)
    }


def _walk(name: str, layer_map: AttentionMap, sizes: Mapping[str, tuple[Sizes, Sizes]], outputs: list[Tensor]) -> Walk:
    B, H, L, _ = layer_map.shape
    for names in PROJECTIONS:
        paths = [_path(name, each) for each in names]
        if all(path in sizes for path in paths):
            steps = [(each.lstrip("."), *sizes[path]) for each, path in zip(names, paths, strict=True)]
            if all(steps[0][2] == out for _, _, out in steps[:3]):
                return full_walk(steps, (B, H, L, steps[0][2][-1] // H))
    hidden = [tuple(each.shape) for each in outputs if each.ndim == 3 and each.shape[1] == L]
    return short_walk(hidden[0] if hidden else (B, L), tuple(layer_map.shape))


def _path(module: str, projection: str) -> str:
    """The name of a projection in the model; one that begins with .. lies beside the module."""
    if projection.startswith(".."):
        return f"{module.rpartition('.')[0]}.{projection[2:]}"
    return f"{module}.{projection}"


@contextmanager
def _reporting(model: nn.Module, progress: Progress) -> Iterator[None]:
    """A block that reports how many of a model's layers have run; layers are those of its longest list."""
    lists = [list(each) for each in model.modules() if isinstance(each, nn.ModuleList)]
    layers = max(lists, key=len, default=[])
    if progress is silent or not layers:
        yield
        return
    left = {id(layer) for layer in layers}

    def note(module: nn.Module, *_: Any) -> None:
        if id(module) in left:
            left.remove(id(module))
            progress("step.watched", {"done": len(layers) - len(left), "total": len(layers)})

    # of all modules, since a hook of its own can turn a module's fast path off
    hook = register_module_forward_hook(note)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _sizes_of_projections(model: nn.Module) -> Iterator[dict[str, tuple[Sizes, Sizes]]]:
    """The sizes that went into and came out of each Linear of a model, by its name, measured while a block runs."""
    measured: dict[str, tuple[Sizes, Sizes]] = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):

                def note(_: Any, inputs: Any, out: Tensor, *, name: str = name) -> None:
                    measured[name] = tuple(inputs[0].shape), tuple(out.shape)

                hooks.callback(module.register_forward_hook(note).remove)
        yield measured
