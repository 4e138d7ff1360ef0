"""Function names: the short name of a torch function, such as "linear", "@" or "index"."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch.overrides import resolve_name

__all__ = ["is_question", "name_of"]

# operators, and the names of the functions by which torch runs them
SIGNS: dict[str, tuple[str, ...]] = {
    "+": ("add", "__add__", "__radd__"), "-": ("sub", "__sub__", "__rsub__", "rsub", "neg"),
    "*": ("mul", "__mul__", "__rmul__"), "@": ("matmul", "__matmul__", "__rmatmul__"),
    "/": ("div", "true_divide", "__truediv__", "__rtruediv__", "__rdiv__"),
    "//": ("floor_divide", "__floordiv__", "__rfloordiv__"), "%": ("remainder", "__mod__", "__rmod__"),
    "**": ("pow", "__pow__", "__rpow__"), "&": ("__and__", "bitwise_and"), "|": ("__or__", "bitwise_or"),
    "^": ("__xor__", "bitwise_xor"), "<<": ("__lshift__",), ">>": ("__rshift__",),
    "~": ("bitwise_not", "__invert__"), "==": ("eq",), "!=": ("ne",), "<": ("lt",), "<=": ("le",), ">": ("gt",),
    ">=": ("ge",),
    "+=": ("add_", "__iadd__"), "-=": ("sub_", "__isub__"), "*=": ("mul_", "__imul__"), "@=": ("__imatmul__",),
    "/=": ("div_", "__itruediv__", "__idiv__"), "//=": ("floor_divide_", "__ifloordiv__"), "%=": ("__imod__",),
    "**=": ("pow_", "__ipow__"), "&=": ("__iand__",), "|=": ("__ior__",), "^=": ("__ixor__",),
}  # fmt: skip
SPECIAL_METHODS = {
    "__getitem__": "index", "__setitem__": "write", "__invert__": "~", "__neg__": "-", "__bool__": "bool",
    "__float__": "float", "__int__": "int", "__index__": "int", "__iter__": "unbind", "__contains__": "in",
    "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
}  # fmt: skip
# torch lists these under another name of the same function
ALIASES = {"torch.spmm": "torch.mm", "torch.hspmm": "torch.hsmm", "torch.sspaddmm": "torch.saddmm"}
# these read properties of a tensor: they return no tensor and change none
QUESTIONS = frozenset({
    "shape", "dtype", "device", "ndim", "requires_grad", "layout", "names", "itemsize", "nbytes", "grad_fn", "name",
    "retains_grad", "output_nr", "size", "dim", "stride", "numel", "nelement", "element_size", "storage_offset", "type",
    "data_ptr", "get_device", "has_names", "untyped_storage", "storage", "storage_type", "_version", "_backward_hooks",
    "register_hook", "__len__", "__hash__", "__repr__", "__format__", "__dir__", "__reduce_ex__", "__deepcopy__",
})  # fmt: skip


def name_of(function: Callable[..., Any], sign: str = "") -> tuple[str, str]:
    """The short name of a function, and its full name in torch.

    sign: the operator in the source, "" where there is none; it is the short name if it calls this function.

    >>> import torch
    >>> name_of(torch.nn.functional.linear), name_of(torch.Tensor.div, "/"), name_of(torch.Tensor.mT.__get__)[0]
    (('linear', 'torch.nn.functional.linear'), ('/', 'torch.Tensor.div'), 'mT')
    """
    last, full = _names(function)
    if last in SIGNS.get(sign, ()):
        return sign, full
    if last in SPECIAL_METHODS:
        return SPECIAL_METHODS[last], full
    plain = next((each for each, names in SIGNS.items() if last in names), "") if last.startswith("__") else ""
    return plain or last, full


def is_question(function: Callable[..., Any], *, count: int = 1) -> bool:
    """Whether a function only reads a property of a tensor, such as its shape. count: the number of its arguments:
    `type` reads with one and converts with two.
    """
    last = _names(function)[0]
    return (last in QUESTIONS or last.startswith("is_")) and not (last == "type" and count > 1)


@lru_cache(maxsize=2048)
def _names(function: Callable[..., Any]) -> tuple[str, str]:
    """The last part of a function's name, and the full name."""
    owner = getattr(getattr(function, "__self__", None), "__name__", "")
    if owner and getattr(function, "__name__", "") in ("__get__", "__set__"):
        name = owner if function.__name__ == "__get__" else f"{owner} ="
        return name, f"torch.Tensor.{name}"
    full = resolve_name(function) or getattr(function, "__qualname__", "") or repr(function)
    full = ALIASES.get(full, full)
    return full.rpartition(".")[2], full
