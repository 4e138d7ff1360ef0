"""Patched image: a picture as the data of a page, and the names of its patches."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from headwise.errors import ArgumentError
from headwise.pages.axis_tokens import AxisTokens
from headwise.pages.models import is_installed
from headwise.pages.number_tables import PatchedImage
from headwise.wording import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from headwise.pages.page import Layer

__all__ = ["check_pillow", "data_of", "image_under", "patch_names"]


def check_pillow() -> None:
    """A Refusal where pillow is not installed, which reads and writes pictures."""
    if not is_installed("PIL"):
        raise refusal("refuse.extra", package="pillow", extra="plot")


def patch_names(rows: int, columns: int, special: int) -> tuple[str, ...]:
    """Names of special tokens, and row and column of each patch.

    >>> patch_names(1, 2, 2)
    ('[CLS]', '[1]', '0,0', '0,1')
    """
    names = [f"[{n}]" if n else "[CLS]" for n in range(special)]
    return (*names, *(f"{row},{column}" for row in range(rows) for column in range(columns)))


def image_under(
    layers: Sequence[Layer],
    sides: Sequence[AxisTokens],
    image: Any,
    patches: tuple[int, int],
    before: PatchedImage | None = None,
) -> tuple[PatchedImage, tuple[AxisTokens, ...]]:
    """A picture whose patches are the last tokens of every layer, and sides in which numbers are names of patches.

    image: a Tensor (3, h, w) of 0..1, or an image of pillow. patches: how many rows and columns. before: the
    picture that this one replaces, after whose patches sides are named.
    """
    check_pillow()
    is_pair = isinstance(patches, tuple | list) and len(patches) == 2
    if not is_pair or not all(type(n) is int and n > 0 for n in patches):
        raise ArgumentError(
            f"patches must be how many rows and columns of patches there are, but {patches!r} came: give two numbers, "
            "such as patches=(14, 14)"
        )
    rows, columns = patches
    shapes = {tuple(layer.map.shape[2:]) for layer in layers}
    length = max((shape[0] for shape in shapes), default=0)
    if shapes != {(length, length)} or length < rows * columns:
        raise ArgumentError(
            f"every map must be of all {rows} x {columns} patches among as many queries as keys, but the maps are "
            f"{sorted(shapes)}: watch the blocks of the vision model with only="
        )
    special = length - rows * columns
    unnamed = [AxisTokens(tuple(map(str, range(length))))]
    if before is not None:
        unnamed.append(AxisTokens(patch_names(before.rows, before.columns, before.first)))
    named = AxisTokens(patch_names(rows, columns, special))
    return PatchedImage(data_of(image), rows, columns, special), tuple(
        named if side in unnamed else side for side in sides
    )


def data_of(image: Any) -> str:
    """A picture as an address that holds it as a PNG. image: a Tensor (3, h, w) of 0..1, or an image of pillow."""
    import torch
    from PIL import Image

    if isinstance(image, torch.Tensor):
        image = _from_tensor(image, Image)
    if not isinstance(image, Image.Image):
        raise ArgumentError(
            f"an image must be a Tensor (3, h, w) of 0..1 or an image of pillow, but {type(image).__name__} came"
        )
    if 0 in image.size:
        raise ArgumentError(f"an image must have pixels, but one of {image.height} x {image.width} came: pass another")
    with io.BytesIO() as out:
        image.convert("RGB").save(out, "PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _from_tensor(image: Tensor, kind: Any) -> Any:
    import torch

    if image.ndim != 3 or image.shape[0] != 3 or not image.is_floating_point():
        raise ArgumentError(
            f"an image must be a Tensor (3, h, w) of 0..1, but {tuple(image.shape)} of {image.dtype} came: pass one "
            "image, before it was normalised"
        )
    if not image.numel():
        raise ArgumentError(
            f"an image must have pixels, but one of {image.shape[1]} x {image.shape[2]} came: pass another"
        )
    if not bool((image >= 0).all() and (image <= 1).all()):
        raise ArgumentError(
            f"the numbers of an image must lie in 0..1, but reach from {float(image.min()):.3g} to "
            f"{float(image.max()):.3g}: pass it as it was before it was normalised"
        )
    octets = image.detach().cpu().float().mul(255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
    height, width, _ = octets.shape
    return kind.frombytes("RGB", (width, height), bytes(octets.flatten().tolist()))
