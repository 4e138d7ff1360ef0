"""Nodes: what makes a class of mask a frozen dataclass and a pytree, so that it compiles, exports, maps and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar, dataclass_transform

import torch
from torch.utils import _pytree as pytree

from headwise.masks.mask import Mask

M = TypeVar("M", bound=Mask)
# name and value of each field that is no child
Constants = tuple[tuple[str, Any], ...]


@dataclass_transform(frozen_default=True, eq_default=False)
def node(*constants: str) -> Callable[[type[M]], type[M]]:
    """Make a class of mask a frozen dataclass and a pytree, whose children are all fields but constants and None.

    Constants are part of the tree's shape: an exported program is made for them, and vmap leaves them alone.
    """

    def decorate(cls: type[M]) -> type[M]:
        cls = dataclass(frozen=True, eq=False, repr=False)(cls)
        names = tuple(field.name for field in fields(cls))
        # an exported program is saved with the masks it was shown, and loaded with weights_only
        torch.serialization.add_safe_globals([cls])
        pytree.register_pytree_node(
            cls,
            partial(_flatten, names, constants),
            partial(_unflatten, cls, names),
            serialized_type_name=f"headwise.masks.{cls.__name__}",
            to_dumpable_context=lambda pairs: [list(pair) for pair in pairs],
            from_dumpable_context=lambda pairs: tuple((name, value) for name, value in pairs),
            flatten_with_keys_fn=partial(_flatten_with_keys, names, constants),
        )
        return cls

    return decorate


def _flatten_with_keys(
    names: tuple[str, ...], constants: tuple[str, ...], mask: Mask
) -> tuple[list[tuple[Any, Any]], Constants]:
    """The children of a mask, each with the key that names it, and its constants."""
    values = [(name, getattr(mask, name)) for name in names]
    fixed_values = tuple((name, value) for name, value in values if name in constants or value is None)
    fixed = [name for name, _ in fixed_values]
    return [(pytree.GetAttrKey(name), value) for name, value in values if name not in fixed], fixed_values


def _flatten(names: tuple[str, ...], constants: tuple[str, ...], mask: Mask) -> tuple[list[Any], Constants]:
    """The children of a mask and its constants."""
    children, fixed_values = _flatten_with_keys(names, constants, mask)
    return [child for _, child in children], fixed_values


def _unflatten(cls: type[M], names: tuple[str, ...], children: Iterable[Any], fixed_values: Constants) -> M:
    """The mask that `_flatten` took apart, with other children."""
    fixed = dict(fixed_values)
    free = [name for name in names if name not in fixed]
    return cls(**fixed, **dict(zip(free, children, strict=True)))
