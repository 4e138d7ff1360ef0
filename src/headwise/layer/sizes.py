"""Sizes: the dimensions of a layer, from the arguments of its constructor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, ConversionError, ShapeError
from headwise.layer.local_heads import Share
from headwise.ops.call import autocasts
from headwise.shapes import check_count, check_flag, check_number


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
    sizes = {
        "embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim,
        "v_head_dim": v_head_dim, "kdim": kdim, "vdim": vdim, "out_dim": out_dim,
    }  # fmt: skip
    for name, size in sizes.items():
        if size is not None or name in ("embed_dim", "num_heads"):
            check_count(name, size)
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


def check_options(bias: object, dropout: float, device: object, dtype: object) -> None:
    """Raise ArgumentError unless these are what the constructor of a layer takes beside its widths."""
    check_flag("bias", bias)
    check_number("dropout", dropout)
    if not 0.0 <= dropout <= 1.0:
        raise ArgumentError(f"dropout is the chance of zeroing a weight, so it must lie in 0..1; got {dropout}")
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ArgumentError(f"dtype must be a floating torch.dtype, such as torch.bfloat16, or None; got {dtype!r}")
    try:
        torch.device("cpu" if device is None else device)  # type: ignore[call-overload]  # what it is is asked here
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            f'device must be a torch.device, its name, such as "cpu", or None; got {device!r}'
        ) from error


def refuse_packed(state_dict: Mapping[str, object], prefix: str, w: Widths) -> None:
    """Raise ConversionError where a state_dict has the names of nn.MultiheadAttention at this prefix."""
    packed = [name for name in ("in_proj_weight", "q_proj_weight") if prefix + name in state_dict]
    if packed and prefix + "q_proj.weight" not in state_dict:
        raise ConversionError(
            f"MultiHeadAttention has the weights {prefix}q_proj, k_proj, v_proj and out_proj, but {prefix}{packed[0]} "
            "came, of nn.MultiheadAttention: take the layer of hw.compat.convert(its_module), or of hw.compat.convert("
            f'its_state_dict, convention="torch", num_heads={w.Hq})'
        )


def check_width(name: str, t: Tensor, width: int, argument: str) -> None:
    """Raise unless t is a dense floating tensor (B, L, width)."""
    if not isinstance(t, Tensor):
        raise ArgumentError(
            f"{name} must be a tensor (B, L, {argument}={width}), but {type(t).__name__} came: make it with "
            "torch.as_tensor()"
        )
    if t.is_nested:
        raise ShapeError(f"{name} is a nested tensor: pad it, and say which tokens are real with mask=keys(keep)")
    if not t.is_floating_point():
        is_ids = not t.is_complex() and t.dtype is not torch.bool
        remedy = "token ids where embeddings are meant: look them up in an nn.Embedding" if is_ids else "cast it first"
        raise ArgumentError(
            f"{name} must be floating, (B, L, {argument}={width}), but {t.dtype} {tuple(t.shape)} came: {remedy}"
        )
    if t.layout is not torch.strided:
        raise ArgumentError(f"{name} must be a dense tensor, but {t.layout} came: give {name}.to_dense()")
    if t.ndim != 3 or t.shape[-1] != width:
        raise ShapeError(
            f"{name} must be (B, L, {argument}={width}), or (L, {argument}={width}) where the query is unbatched, but "
            f"came as {tuple(t.shape)}: batch comes first, features last"
        )


def projected(share: Share, which: str, projection: nn.Module, name: str, t: Tensor, H: int, D: int) -> Tensor:
    """What a projection makes of t (B, L, E) for a share, by heads: (B, H, L, D).

    which: the name of the projection in its layer. name: that of t. ArgumentError where torch refuses t for its dtype
    or its device; ShapeError where the projection gave another width.

    Asked after torch has refused it, since a replaced, wrapped or hooked projection may well take another dtype. What
    failed for another reason is raised as it came: memory that ran out, and what a hook raised under autocast.
    """
    try:
        made = share.call(which, projection, t)
    except RuntimeError as error:
        weight = getattr(projection, "weight", None)
        # torch refuses by no class of its own; an error of a class needs no explanation
        if type(error) is not RuntimeError or not isinstance(weight, Tensor) or not _clash(weight, t):
            raise
        raise ArgumentError(
            f"{name} must be of the layer's dtype and on its device, {weight.dtype} on {weight.device}, but "
            f"{t.dtype} on {t.device} came: move one of them with .to()"
        ) from error
    B, L, width = made.shape
    if width != H * D:
        raise ShapeError(
            f"{which} must give {H} heads of {D}, {H * D} features, but gave {width}: to split a layer over "
            "ranks, give parallelize_module the plan of hw.distributed.plan(model)"
        )
    return made.reshape(B, L, H, D).transpose(1, 2)


def _clash(weight: Tensor, t: Tensor) -> bool:
    """Whether torch refuses t for its dtype or device; autocast casts all but float64."""
    if weight.device != t.device:
        return True
    is_cast = autocasts(t) and torch.float64 not in (weight.dtype, t.dtype)
    return weight.dtype is not t.dtype and not is_cast
