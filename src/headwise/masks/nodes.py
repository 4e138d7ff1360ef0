"""Nodes: what makes a class of mask a frozen dataclass and a pytree, so that it compiles, exports, maps and moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar, dataclass_transform

from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.masks.mask import Mask

M = TypeVar("M", bound=Mask)
# name and value of each field that holds neither a tensor nor a mask
Constants = tuple[tuple[str, Any], ...]


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[M]) -> type[M]:
    """A class of mask as a frozen dataclass and a pytree: tensors and masks are its children, the rest is constant."""
    cls = dataclass(frozen=True, eq=False, repr=False)(cls)
    pytree.register_pytree_node(
        cls,
        _flatten,
        partial(_unflatten, cls),
        serialized_type_name=f"headwise.masks.{cls.__name__}",
        to_dumpable_context=lambda constants: [list(pair) for pair in constants],
        from_dumpable_context=lambda pairs: tuple((name, value) for name, value in pairs),
        flatten_with_keys_fn=_flatten_with_keys,
    )
    return cls


def _flatten(mask: Mask) -> tuple[list[Any], Constants]:
    pairs, constants = _flatten_with_keys(mask)
    return [child for _, child in pairs], constants


def _flatten_with_keys(mask: Mask) -> tuple[list[tuple[Any, Any]], Constants]:
    pairs, constants = [], []
    for field in fields(mask):
        value = getattr(mask, field.name)
        if isinstance(value, Tensor | Mask):
            pairs.append((pytree.GetAttrKey(field.name), value))
        else:
            constants.append((field.name, value))
    return pairs, tuple(constants)


def _unflatten(cls: type[M], children: Iterable[Any], constants: Constants) -> M:
    known = dict(constants)
    names = [field.name for field in fields(cls) if field.name not in known]
    return cls(**known, **dict(zip(names, children, strict=True)))
