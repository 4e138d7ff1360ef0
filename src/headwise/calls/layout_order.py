"""Layout order: the layouts that the inputs of a target may have, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from headwise.calls import layouts
from headwise.calls.candidates import Wanted
from headwise.calls.layouts import Family, family
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.source_hints import Reading

__all__ = ["families", "image_sizes", "is_narrow"]

# what a vector of each sample is called, by which its tokens are shifted and scaled
CONDITION = re.compile(
    r"c|t|y|vec|(?:time|timestep|class|label|pooled|global|style|cond)\w*|[ct]_?emb\w*|emb", re.IGNORECASE
)
# what code about images speaks of
IMAGE_WORDS = frozenset({"w", "W", "width", "height", "img", "image", "hw", "HW"})
# the most channels of an image that are a number in the code; the widths of probes are larger
MOST_IMAGE_CHANNELS = 4
CHANNELS = ("channels", "in_channels", "in_chans", "num_channels")
# what a constructor calls the height and the width of the images that it is built for
SIDES = (("height", "width"), ("h", "w"), ("fmap_h", "fmap_w"), ("img_h", "img_w"), ("feat_h", "feat_w"))
# heads that come apart
SPLITS = (
    layouts.HEADS, layouts.HEADS_SAME, layouts.GROUPED, layouts.MERGED, layouts.MERGED_SAME, layouts.HEADS_LAST,
    layouts.MERGED_ALONE,
)  # fmt: skip


def families(roles: Wanted, reading: Reading, built: Any, sizes: Mapping[str, str]) -> list[Family]:
    """The layouts that an input may have, the likeliest first. sizes: what an image's are called here."""
    layers = [each for each in _built_of(built) if _has_weights(each)]
    packed = [layouts.TURNED, layouts.PACKED] if _is_turned(roles, reading, built) else [layouts.PACKED, layouts.TURNED]
    ways = [{**_channels_of(built), **sizes}, sizes] if "image" in sizes else []
    image = list(dict.fromkeys(map(_image, ways)))
    if roles.is_triple and not layers and "heads" not in roles.rest.values():
        order = [*SPLITS, *packed, layouts.ALONE]
    elif any(type(each).__name__.endswith("2d") for each in _built_of(built)):
        beside = [layouts.IMAGE_TO_TOKENS] if roles.key else []
        order = [*image, layouts.IMAGE, *beside, *packed, layouts.IMAGE_LAST, layouts.CHANNELS, layouts.ALONE]
    elif any(isinstance(layer, nn.Conv1d) for layer in layers):
        order = [*packed[:1], layouts.CHANNELS, *packed[1:], layouts.ALONE, layouts.IMAGE, layouts.IMAGE_LAST]
    elif isinstance(built, nn.Module):
        is_image = bool(IMAGE_WORDS & reading.words)
        rows = [*([] if is_image else [layouts.STACKED]), layouts.IMAGE_LAST, layouts.IMAGE]
        beside = [layouts.CONDITIONED] if CONDITION.fullmatch(roles.key) and not roles.value else []
        beside += [layouts.PROJECTED] if roles.is_triple else []
        order = [
            *image,
            packed[0],
            *beside,
            layouts.ALONE,
            *rows,
            packed[1],
            layouts.STACKED,
            layouts.CHANNELS,
            *SPLITS,
        ]
    else:
        order = [
            packed[0],
            layouts.ALONE,
            layouts.HEADS_SAME,
            layouts.HEADS_LAST,
            packed[1],
            layouts.IMAGE_LAST,
            layouts.IMAGE,
            layouts.CHANNELS,
        ]
    if any(isinstance(layer, nn.Conv3d) for layer in layers):
        order.insert(0, layouts.VIDEO)
    order += [layouts.ONE_STEP, layouts.VECTOR]
    if reading.is_batch_first(roles.query):
        # its first axis is said to be the batch
        order = [each for each in order if each is not layouts.ALONE]
    rank, batch = reading.rank(roles.query), reading.batch_axis(roles.query)
    if rank == len(layouts.STACKED.query) and 0 < batch < rank - 1:
        order.insert(0, _stacked(batch))
    # token numbers have no axis of features
    if rank and (
        roles.is_ids or (rank == len(layouts.ALONE.query) and any(isinstance(layer, nn.Embedding) for layer in layers))
    ):
        rank += 1
    return sorted(order, key=lambda layout: len(layout.query) != rank) if rank else order


def _channels_of(built: Any) -> dict[str, str]:
    """The "channels" of images, where the first convolution takes 1 (grey), 3 (RGB) or 4 (RGBA), as its code has it."""
    first = next((each for each in _built_of(built) if isinstance(each, nn.Conv2d)), None)
    return {} if first is None or first.in_channels > MOST_IMAGE_CHANNELS else {"channels": str(first.in_channels)}


def _stacked(batch: int) -> Family:
    """Rows of tokens whose batch is another axis than the first."""
    axes = [[size for size in shape if size != "B"] for shape in (layouts.STACKED.query, layouts.STACKED.key)]
    query, key = ([*shape[:batch], "B", *shape[batch:]] for shape in axes)
    return Family("".join(query), tuple(query), tuple(key), tuple(key))


def _built_of(built: Any) -> list[nn.Module]:
    """The modules that something built is made of."""
    return list(built.modules()) if isinstance(built, nn.Module) else []


def is_narrow(built: Any, reading: Reading) -> bool:
    """Whether widths that are primes leave a layer with nothing, or make groups of channels impossible."""
    weights = [
        parameter
        for module in _built_of(built)
        for parameter in module.parameters(recurse=False)
        if not is_lazy(parameter)
    ]
    return built is None or "GroupNorm" in reading.words or any(weight.numel() == 0 for weight in weights)


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _image(sizes: Mapping[str, str]) -> Family:
    return family("BDhw", f"B {sizes.get('channels', 'D')} {sizes['image']}")


def _is_turned(roles: Wanted, reading: Reading, built: Any) -> bool:
    """Whether a length comes before the batch."""
    for name in (roles.query, roles.key, roles.value):
        if reading.is_sequence_first(name):
            return True
        if reading.is_batch_first(name):
            return False
    if reading.says_batch_second:
        return True
    order = [each.batch_first for each in _built_of(built) if isinstance(each, nn.MultiheadAttention)]
    return bool(order) and not any(order) and not reading.says_batch_first


def _parameters_of(target: Any) -> list[inspect.Parameter]:
    """The parameters of a class's constructor; of others none."""
    return parameters(target) if isinstance(target, type) else []


def image_sizes(target: Any, init: Mapping[str, Any]) -> dict[str, str]:
    """The height and the width ("image"), as two expressions, and the number of "channels", where they are known."""
    out: dict[str, str] = {}
    for name, value in init.items():
        if init_role(name) == "image" and isinstance(value, str):
            out["image"] = f"{name} {name}"
        elif init_role(name) == "image" and isinstance(value, Mapping) and "_tuple" in value:
            out["image"] = " ".join(map(str, value["_tuple"]))
        elif init_role(name) == "patch" and isinstance(value, str):
            out.setdefault("image", f"n*{value} n*{value}")
    sides = {each.name: str(init.get(each.name, each.default)) for each in _parameters_of(target)}
    for names in SIDES:
        if set(names) <= set(sides) and "image" not in out:
            out["image"] = " ".join(sides[name] for name in names)
    for parameter in _parameters_of(target):
        if parameter.name in CHANNELS:
            out["channels"] = str(init.get(parameter.name, parameter.default))
    return out
