"""Conversions and drop-ins: the weights, the modules and the words of other libraries, one file for each of them."""

import typing as _typing
from importlib import import_module as _import_module

# each public name, and the file that it comes from
_HOME = {
    "Conversion": "conversion",
    "convert": "conversion",
    "replace": "torch.replacing",
    "to_state_dict": "conversion",
}
# the libraries that have a file of their own: hw.compat.torch.MultiheadAttention
_MODULES = ("annotated", "d2l", "huggingface", "keras", "notes", "onnx", "torch")

__all__ = list(_HOME)

if _typing.TYPE_CHECKING:
    from headwise.compat import annotated as annotated
    from headwise.compat import d2l as d2l
    from headwise.compat import huggingface as huggingface
    from headwise.compat import keras as keras
    from headwise.compat import notes as notes
    from headwise.compat import onnx as onnx
    from headwise.compat import torch as torch
    from headwise.compat.conversion import Conversion as Conversion
    from headwise.compat.conversion import convert as convert
    from headwise.compat.conversion import to_state_dict as to_state_dict
    from headwise.compat.torch.replacing import replace as replace
else:
    # hidden from type checkers, which would otherwise accept any misspelt name

    def __getattr__(name: str) -> object:
        """The public name or file asked for, imported at its first use."""
        if name in _HOME:
            found = getattr(_import_module(f"headwise.compat.{_HOME[name]}"), name)
        elif name in _MODULES:
            found = _import_module(f"headwise.compat.{name}")
        else:
            raise AttributeError(f"headwise.compat has no public name {name!r}: dir(headwise.compat) lists them all")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """The public names and files, whether they have been loaded or not."""
    return sorted([*_HOME, *_MODULES])
