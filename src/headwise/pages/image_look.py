"""Image look: every head of a vision model on one image, with the picture under its patches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.pages.models import Progress, first_line, folder_of, quiet, read_pretrained, weights_of
from headwise.pages.number_tables import PatchedImage
from headwise.pages.page_sources import page_of_maps
from headwise.pages.patched_image import check_pillow, data_of, patch_names
from headwise.pages.user_model import in_evaluation
from headwise.watching import watch
from headwise.watching.sequences import layers_of
from headwise.wording import refusal, say

if TYPE_CHECKING:
    from headwise.pages.page import Page

__all__ = ["ImageLook", "ImageRequest", "look_at_image"]


@dataclass(frozen=True)
class ImageRequest:
    """An image file, and the vision model that sees it."""

    image: Path
    model: str | os.PathLike[str]
    lang: str = "en"


@dataclass(frozen=True, eq=False)
class ImageLook:
    """What the heads of a vision model attend to in an image; `str` says how many there are.

    picture: what the model saw, and where its patches lie. tokens: names of the special tokens, row and column of each
    patch. maps: name and map of every layer.
    """

    model: str
    image: str
    picture: PatchedImage
    tokens: tuple[str, ...]
    maps: tuple[tuple[str, AttentionMap], ...]
    lang: str = "en"

    def page(self) -> Page:
        """Every head of every layer, which opens at the row of the first token of the last layer."""
        page = page_of_maps(
            LoadedMaps(dict(self.maps), None), tokens=list(self.tokens), query=None, layer=(), head=(), lang=self.lang
        )
        opening: dict[str, int | str] = {"view": "row", "layer": len(self.maps) - 1, "head": 0, "token": 0}
        return dataclasses.replace(page, title=self.model, text=self.image, opening=opening, picture=self.picture)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: {"schema": 1, ...}."""
        return {
            "schema": 1, "model": self.model, "image": self.image, "tokens": list(self.tokens),
            "patches": [self.picture.rows, self.picture.columns], "special": self.picture.first,
            "layers": [{"name": name, "heads": m.shape[1]} for name, m in self.maps],
        }  # fmt: skip

    def __str__(self) -> str:
        heads = sum(m.shape[1] for _, m in self.maps)
        return say(
            "image.title", lang=self.lang, model=self.model, image=self.image, layers=len(self.maps), heads=heads,
            rows=self.picture.rows, columns=self.picture.columns, special=self.picture.first,
        )  # fmt: skip


def look_at_image(asked: ImageRequest, tell: Progress) -> ImageLook:
    """Run a vision model on an image, alone and then watched; a Refusal where both do not give the same."""
    check_pillow()
    image = _image(asked.image)
    folder = folder_of(asked.model)
    place, name = (os.fspath(asked.model),) * 2 if folder is None else (str(folder), folder.resolve().name)
    from transformers import AutoImageProcessor

    with quiet(), torch.no_grad():
        model, config = weights_of(place, name, tell, _vision_loader)
        processor = read_pretrained(AutoImageProcessor, place, name)
        pixels: Tensor = processor(images=image, return_tensors="pt")["pixel_values"]
        with in_evaluation(model):
            tell("step.untouched", {})
            alone = _outputs(model, pixels, name)
            tell("step.watched", {})
            with watch(model) as seen:
                watched = _outputs(model, pixels, name)
    if not all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True)):
        raise refusal("refuse.unequal", difference=float("nan"), model=name)
    rows, columns = _grid(config, pixels)
    maps = tuple((n, m) for n, m in layers_of(seen) if m.shape[2] == m.shape[3] >= rows * columns)
    if not maps or len({m.shape[2] for _, m in maps}) > 1:
        sizes = sorted({tuple(m.shape[2:]) for _, m in seen.in_order()})
        reason = "; ".join(seen.unseen.values()) or f"its maps are {sizes}, and the patches {rows} x {columns}"
        raise refusal("refuse.no_attention", model=name, model_type=config.model_type, reason=reason)
    special = maps[0][1].shape[2] - rows * columns
    picture = PatchedImage(data_of(_unnormalised(pixels[0], processor)), rows, columns, special)
    return ImageLook(name, asked.image.name, picture, patch_names(rows, columns, special), maps, asked.lang)


def _image(file: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file).convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise refusal("refuse.no_image", file=file, reason=first_line(error)) from error


def _vision_loader(name: str, config: Any) -> str:
    """The class of transformers that reads a vision model, or the vision tower of one of text and images."""
    vision = getattr(config, "vision_config", None)
    if vision is not None:
        return f"{type(config).__name__.removesuffix('Config')}VisionModel"
    if not hasattr(config, "patch_size"):
        raise refusal("refuse.no_vision", model=name, model_type=config.model_type)
    return "AutoModel"


def _outputs(model: Any, pixels: Tensor, name: str) -> list[Tensor]:
    try:
        out = model(pixel_values=pixels)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise refusal("refuse.model_fails", model=name, got=0, reason=first_line(error)) from error
    leaves = pytree.tree_leaves(dict(out) if isinstance(out, Mapping) else out)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _grid(config: Any, pixels: Tensor) -> tuple[int, int]:
    """How many rows and columns of patches an image has."""
    size = getattr(config, "vision_config", config).patch_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return pixels.shape[2] // height, pixels.shape[3] // width


def _unnormalised(pixels: Tensor, processor: Any) -> Tensor:
    """The pixels (3, h, w) that a model saw, before they were normalised, between 0 and 1."""
    normal = {"image_mean": 0.0, "image_std": 1.0}
    if getattr(processor, "do_normalize", False):
        normal = {name: getattr(processor, name) for name in normal}
    mean, std = (torch.tensor(value, dtype=pixels.dtype).view(-1, 1, 1) for value in normal.values())
    return (pixels * std + mean).clamp(0, 1)
