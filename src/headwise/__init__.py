"""The public names, loaded when they are first used: importing headwise alone does not import torch."""

import typing as _typing
from importlib import import_module as _import_module

__version__ = "1.0.0"

# each public name, sorted, and the part it comes from
_HOME = {
    "Additive": "layer",
    "Alibi": "positions",
    "AttentionMap": "maps",
    "DotProduct": "layer",
    "KVCache": "layer",
    "Mask": "masks",
    "Memory": "layer",
    "MultiHeadAttention": "layer",
    "RelativeBias": "positions",
    "Rotary": "positions",
    "additive_attention": "ops",
    "allowed": "masks",
    "attention": "ops",
    "attention_map": "maps",
    "backends": "ops",
    "causal": "masks",
    "compare": "analysis",
    "doctor": "diagnosis",
    "documents": "masks",
    "head_effects": "intervening",
    "intervene": "intervening",
    "keys": "masks",
    "lengths": "masks",
    "load_maps": "maps",
    "look": "pages",
    "name_heads": "analysis",
    "prefix": "masks",
    "relevance": "analysis",
    "rollout": "analysis",
    "rule": "masks",
    "trace": "tracing",
    "watch": "watching",
    "window": "masks",
}
# the parts that are public as modules: hw.masks.from_additive
_MODULES = ("compat", "distributed", "errors", "maps", "masks", "ops", "positions", "shapes", "testing")

__all__ = list(_HOME)

if _typing.TYPE_CHECKING:
    from headwise import compat as compat
    from headwise import distributed as distributed
    from headwise import errors as errors
    from headwise import maps as maps
    from headwise import masks as masks
    from headwise import ops as ops
    from headwise import positions as positions
    from headwise import shapes as shapes
    from headwise import testing as testing
    from headwise.analysis import compare as compare
    from headwise.analysis import name_heads as name_heads
    from headwise.analysis import relevance as relevance
    from headwise.analysis import rollout as rollout
    from headwise.diagnosis import doctor as doctor
    from headwise.intervening import head_effects as head_effects
    from headwise.intervening import intervene as intervene
    from headwise.layer import Additive as Additive
    from headwise.layer import DotProduct as DotProduct
    from headwise.layer import KVCache as KVCache
    from headwise.layer import Memory as Memory
    from headwise.layer import MultiHeadAttention as MultiHeadAttention
    from headwise.maps import AttentionMap as AttentionMap
    from headwise.maps import attention_map as attention_map
    from headwise.maps import load_maps as load_maps
    from headwise.masks import Mask as Mask
    from headwise.masks import allowed as allowed
    from headwise.masks import causal as causal
    from headwise.masks import documents as documents
    from headwise.masks import keys as keys
    from headwise.masks import lengths as lengths
    from headwise.masks import prefix as prefix
    from headwise.masks import rule as rule
    from headwise.masks import window as window
    from headwise.ops import additive_attention as additive_attention
    from headwise.ops import attention as attention
    from headwise.ops import backends as backends
    from headwise.pages import look as look
    from headwise.positions import Alibi as Alibi
    from headwise.positions import RelativeBias as RelativeBias
    from headwise.positions import Rotary as Rotary
    from headwise.tracing import trace as trace
    from headwise.watching import watch as watch
else:
    # hidden from type checkers, which would otherwise accept any misspelt name

    def _likely(name: str) -> str:
        """A question for the public names that are spelt almost so; "": there are none."""
        import difflib

        near = difflib.get_close_matches(name, __dir__(), n=3, cutoff=0.75)
        return f"did you mean {', '.join(near)}? " if near else ""

    def __getattr__(name: str) -> object:
        """The public name or module asked for, imported at its first use."""
        if name in _HOME:
            value = getattr(_import_module(f"headwise.{_HOME[name]}"), name)
        elif name in _MODULES:
            value = _import_module(f"headwise.{name}")
        else:
            raise AttributeError(f"headwise has no public name {name!r}: {_likely(name)}dir(headwise) lists them all")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names and modules, whether they have been loaded or not."""
    return sorted([*_HOME, *_MODULES])
