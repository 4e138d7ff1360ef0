"""Conversions and drop-ins: the weights, the modules and the words of other libraries, one file for each of them."""

import typing as _typing

from headwise.lazy_names import lazy_names as _lazy_names

# each public name, and the file that it comes from
_HOME = {
    "Conversion": "conversion",
    "convert": "conversion",
    "replace": "torch.replacement",
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
    from headwise.compat.torch.replacement import replace as replace
else:
    __getattr__, __dir__ = _lazy_names(__name__, _HOME, _MODULES)
