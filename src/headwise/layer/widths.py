"""Widths: the sizes of a layer, from what its constructor was told."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from headwise.errors import ArgumentError, ShapeError


class Widths(NamedTuple):
    """Every width of a layer: model E, heads Hq and Hk, of a head D and Dv, of keys, values and output."""

    E: int
    Hq: int
    Hk: int
    D: int
    Dv: int
    key: int
    value: int
    out: int


def make_widths(
    embed_dim: int,
    num_heads: int,
    *,
    num_kv_heads: int | None,
    head_dim: int | None,
    v_head_dim: int | None,
    kdim: int | None,
    vdim: int | None,
    out_dim: int | None,
) -> Widths:
    """The widths that follow from these, each None replaced by its default; ArgumentError where they do not fit."""
    given = {
        "embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim,
        "v_head_dim": v_head_dim, "kdim": kdim, "vdim": vdim, "out_dim": out_dim,
    }  # fmt: skip
    for name, size in given.items():
        if size is not None and size < 1:
            raise ArgumentError(f"{name} must be 1 or more; got {name}={size}")
    if head_dim is None and embed_dim % num_heads:
        raise ArgumentError(
            f"num_heads={num_heads} must divide embed_dim={embed_dim} so that heads are equally wide: "
            "change one of them, or give head_dim="
        )
    Hk = num_heads if num_kv_heads is None else num_kv_heads
    if num_heads % Hk:
        raise ArgumentError(
            f"num_kv_heads={Hk} must divide num_heads={num_heads}: each key/value head serves an equal group of "
            "query heads"
        )
    D = embed_dim // num_heads if head_dim is None else head_dim
    key = embed_dim if kdim is None else kdim
    return Widths(
        E=embed_dim, Hq=num_heads, Hk=Hk, D=D, Dv=D if v_head_dim is None else v_head_dim, key=key,
        value=key if vdim is None else vdim, out=embed_dim if out_dim is None else out_dim,
    )  # fmt: skip


def check_width(name: str, t: Tensor, width: int, argument: str) -> None:
    """Raise ShapeError unless t is (B, L, width)."""
    if t.is_nested:
        raise ShapeError(f"{name} is a nested tensor: pad it, and say which tokens are real with mask=keys(keep)")
    if t.ndim != 3 or t.shape[-1] != width:
        raise ShapeError(
            f"{name} must be (B, L, {argument}={width}), or (L, {argument}={width}) where the query is unbatched, but "
            f"came as {tuple(t.shape)}: batch comes first, features last"
        )
