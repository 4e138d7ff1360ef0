"""Stand-ins: default values of names that code uses without an import, and placeholders of missing packages."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from headwise.wording import Refusal, refusal

__all__ = ["Missing", "d2l_modules", "import_of", "meant", "supplied"]

# the usual meaning of a name that was not imported: a module, or module:attribute
MEANT = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "functional": "torch.nn.functional",
    "optim": "torch.optim",
    "Tensor": "torch:Tensor",
    "Module": "torch.nn:Module",
    "Parameter": "torch.nn:Parameter",
    "einsum": "torch:einsum",
    "math": "math",
    "copy": "copy",
    "functools": "functools",
    "partial": "functools:partial",
    "dataclass": "dataclasses:dataclass",
    "typing": "typing",
    **{name: f"typing:{name}" for name in ("Any", "Callable", "Dict", "List", "Optional", "Tuple", "Union")},
    "np": "numpy",
    "numpy": "numpy",
    "einops": "einops",
    "rearrange": "einops:rearrange",
    "repeat": "einops:repeat",
    "reduce": "einops:reduce",
    "clones": "headwise.compat.annotated:clones",
    "attention": "headwise.compat.annotated:attention",
    "subsequent_mask": "headwise.compat.annotated:subsequent_mask",
    **{
        name: f"headwise.compat.d2l:{name}"
        for name in (
            *("AdditiveAttention", "DotProductAttention", "masked_softmax", "transpose_output", "transpose_qkv"),
        )
    },
}


def supplied(name: str) -> Any:
    """The usual value of an unbound name. Errors: LookupError where it is unknown or not installed."""
    if name == "d2l":
        return d2l_modules()["d2l.torch"]
    module, _, attribute = MEANT[name].partition(":")
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise LookupError(name) from error
    return getattr(imported, attribute) if attribute else imported


def meant(name: str) -> str:
    """The full name of the usual value of an unbound name; "": unknown."""
    return "d2l.torch" if name == "d2l" else MEANT.get(name, "").replace(":", ".")


def import_of(name: str) -> str:
    """The import statement of the usual value of a name; "": it is unknown, or comes from headwise.

    >>> import_of("F"), import_of("Optional"), import_of("math")
    ('import torch.nn.functional as F', 'from typing import Optional', 'import math')
    """
    if name == "d2l":
        return "from d2l import torch as d2l"
    module, _, attribute = MEANT.get(name, "").partition(":")
    if not module or module.startswith("headwise."):
        return ""
    if attribute:
        return f"from {module} import {attribute}"
    parent, _, leaf = module.rpartition(".")
    if leaf == name:
        return f"from {parent} import {name}" if parent else f"import {name}"
    return f"import {module} as {name}"


def d2l_modules() -> dict[str, types.ModuleType]:
    """A package d2l with what attention code uses: {"d2l": …, "d2l.torch": …}."""
    import torch
    from torch import nn
    from torch.nn import functional

    from headwise.compat import d2l

    package, submodule = types.ModuleType("d2l"), types.ModuleType("d2l.torch")
    package.__path__ = []
    submodule.__dict__.update({name: getattr(d2l, name) for name in d2l.__all__})
    submodule.__dict__.update(torch=torch, nn=nn, F=functional, add_to_class=_add_to_class)
    submodule.__dict__["Module"] = type("Module", (nn.Module,), {"save_hyperparameters": _save_hyperparameters})
    submodule.__getattr__ = lambda name: getattr(Missing("d2l", _no_d2l), name)  # type: ignore[method-assign]
    package.__dict__["torch"] = submodule
    return {"d2l": package, "d2l.torch": submodule}


def _no_d2l(name: str) -> Refusal:
    return refusal("refuse.target_package", name=name, package="d2l")


def _add_to_class(owner: type) -> Callable[[Callable[..., Any]], None]:
    """A decorator that adds a function to an existing class as a method."""

    def add(function: Callable[..., Any]) -> None:
        setattr(owner, function.__name__, function)

    return add


def _save_hyperparameters(self: Any, ignore: Sequence[str] = ()) -> None:
    """Store the arguments of the calling __init__ as attributes."""
    frame = sys._getframe(1)
    named = frame.f_code.co_varnames[1 : frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    for name in named:
        if name not in ignore and not name.startswith("_"):
            setattr(self, name, frame.f_locals[name])


class Missing:
    """A placeholder of a failed import: it may be named, and any use of it raises refuse(its name).

    Its attributes, its items and unions with it are Missing too, since annotations evaluate them.
    """

    def __init__(self, name: str, refuse: Callable[[str], Refusal]) -> None:
        self._name, self._refusal = name, refuse

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._refusal)

    def __mro_entries__(self, bases: object) -> NoReturn:
        self._refuse()

    def __getitem__(self, key: object) -> Missing:
        return self

    def __or__(self, other: object) -> Missing:
        return self

    __ror__ = __or__

    def _refuse(self, *args: object, **options: object) -> NoReturn:
        raise self._refusal(self._name)

    __call__ = __iter__ = __len__ = __bool__ = __enter__ = __instancecheck__ = _refuse
    __add__ = __mul__ = __sub__ = __truediv__ = __matmul__ = __lt__ = __gt__ = __int__ = __float__ = _refuse

    def __repr__(self) -> str:
        return f"<{self._name}, which could not be imported>"
