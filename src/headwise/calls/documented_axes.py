"""Documented axes: the shapes that docstrings and comments give arguments, and the calls that have them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwise.calls.plan import Plan
from headwise.calls.roles import call_role

__all__ = ["documented_axes", "documented_calls", "is_degenerate"]

# a shape in brackets on the line of an argument: two names or more
SHAPE = r"\b{name}\b[^()\[\]\n]{{0,24}}[(\[]([^()\[\]\n]+)[)\]]"
NAME = re.compile(r"[^\W\d]\w*")
FEWEST = 2
BATCH = frozenset({"b", "bs", "bsz", "bn", "batch", "batch_size", "nb"})
WIDTH = frozenset({
    "c", "d", "e", "dim", "dims", "d_model", "embed_dim", "embedding_dim", "hidden", "hidden_size", "hidden_dim",
    "channels", "feat", "features", "model_dim", "emb", "width", "feat_dim", "size", "n_feat",
})  # fmt: skip
HEADS = frozenset({"heads", "n_heads", "num_heads", "num_head", "n_head", "nhead", "nh"})
# the height and the width of an image
SIDES = frozenset({"h", "w"})
# what stands behind the shape of whole numbers
WHOLE = SHAPE + r"[^\n]{{0,12}}\b(?:ids?|tokens?|types?|degrees?|ind(?:ex|ices)|path)"
# what token numbers are below, and where a table is smaller than that
BELOW = ("5", "3")


def documented_axes(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names of the axes of each argument whose shape the docstring of a class or of its forward gives."""
    return _axes(_docstrings(target), names, NAME)


def documented_calls(target: Any, names: Sequence[str], built: Sequence[inspect.Parameter]) -> Iterator[dict[str, Any]]:
    """The call, as `--call` takes it, whose arguments have the shapes that docstrings and comments of a class tell.

    names: of the arguments that it needs, which must all be told. built: the parameters of its constructor, whose names
    axes may have.
    """
    text = "\n".join((_docstrings(target), *_comments(target)))
    axes = _axes(text, names, re.compile(r"\w+"))
    if not names or len(axes) < len(names):
        return
    words = {part.lower() for parts in axes.values() for part in parts}
    # with no other word for it, N is the batch
    batch = BATCH if words & BATCH else BATCH | {"n"}
    sizes = {each.name: each.default for each in built if type(each.default) is int}
    lengths: list[str] = []

    def symbol(part: str) -> Any:
        low = part.lower()
        if part.isdigit() or part in sizes:
            return int(part) if part.isdigit() else sizes[part]
        if low in SIDES and SIDES <= words:
            return low
        for name, among in (("B", batch), ("D", WIDTH), ("H", {*HEADS, "h"})):
            if low in among:
                return name
        if part not in lengths:
            lengths.append(part)
        at = lengths.index(part)
        return ("L", "S")[at] if at < len(("L", "S")) else low

    shapes = {name: [symbol(part) for part in parts] for name, parts in axes.items()}
    whole = {
        name for name in shapes
        if re.search(WHOLE.format(name=re.escape(name)), text, re.IGNORECASE) or call_role(name) == "ids"
    }  # fmt: skip
    for below in BELOW[: len(BELOW) if whole else 1]:
        yield {name: {"_ids": each, "below": below} if name in whole else each for name, each in shapes.items()}


def _axes(text: str, names: Sequence[str], form: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
    axes: dict[str, tuple[str, ...]] = {}
    for name in names:
        shapes = re.findall(SHAPE.format(name=re.escape(name)), text)
        parts = tuple(part.strip() for part in shapes[0].split(",")) if shapes else ()
        if len(parts) >= FEWEST and all(form.fullmatch(part) for part in parts):
            axes[name] = parts
    return axes


def _kind_of(target: Any) -> Any:
    return target if isinstance(target, type) or inspect.isfunction(target) else type(target)


def _docstrings(target: Any) -> str:
    kind = _kind_of(target)
    forward = vars(kind).get("forward") if isinstance(kind, type) else None
    return "\n".join(each for each in (kind.__doc__, getattr(forward, "__doc__", None)) if isinstance(each, str))


def _comments(target: Any) -> Iterator[str]:
    """The comments that stand by themselves in a forward."""
    kind = _kind_of(target)
    function = vars(kind).get("forward") if isinstance(kind, type) else kind
    try:
        lines = inspect.getsource(function).splitlines() if inspect.isfunction(function) else []
    except (OSError, TypeError):
        return
    yield from (line.strip().lstrip("# ") for line in lines if line.strip().startswith("#"))


def is_degenerate(plan: Plan, axes: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a plan gives one entry to an axis that is documented under a name."""
    mask = plan.call.get("_mask")
    shapes = {name: value for name, value in plan.call.items() if isinstance(value, list)}
    if isinstance(mask, Mapping):
        shapes[str(mask["argument"])] = list(mask["shape"])
    return any(len(shape) == len(axes.get(name, ())) and "1" in map(str, shape) for name, shape in shapes.items())
