"""Versions: tensors kept by reference, and whether one of them has been changed in place since."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.errors import StaleMapError
from headwise.ops.call import Call


class Versions:
    """The tensors of a call, each with the version it had; `check` raises StaleMapError where one has another now."""

    def __init__(self, call: Call, lse: Tensor | None) -> None:
        named = {"q": call.q, "k": call.k, "attn_bias": call.attn_bias, "sink": call.sink, "weight": call.weight}
        self._versions = [(name, t, t._version) for name, t in (*named.items(), ("lse", lse)) if t is not None]
        for n, leaf in enumerate(pytree.tree_leaves(call.mask) if call.mask is not None else ()):
            if isinstance(leaf, Tensor) and not leaf.is_inference():
                self._versions.append((f"tensor {n} of the mask", leaf, leaf._version))

    def check(self) -> None:
        """Raise StaleMapError where a tensor has been changed in place."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise StaleMapError(
                    f"{name} {tuple(tensor.shape)} must stay as it was when the map was made, but has been changed in "
                    f"place since (version {tensor._version}, not {version}): make the map from {name}.clone()"
                )


def lasting(call: Call, lse: Tensor | None) -> tuple[Call, Tensor | None]:
    """The call and lse with copies of inference tensors, which have no version and serve no gradient."""
    if call.mask is None and call.v is call.k and not any(t.is_inference() for t in call.tensors):
        return call, _normal_or_none(lse)
    k = _normal(call.k)
    kept = replace(
        call, q=_normal(call.q), k=k, v=k, attn_bias=_normal_or_none(call.attn_bias), sink=_normal_or_none(call.sink),
        weight=_normal_or_none(call.weight),
        mask=None if call.mask is None else pytree.tree_map_only(Tensor, _normal, call.mask),
    )  # fmt: skip
    return kept, _normal_or_none(lse)


def _normal(tensor: Tensor) -> Tensor:
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def _normal_or_none(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else _normal(tensor)
