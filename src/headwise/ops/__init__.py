"""Functions of q, k and v: no parameters, no state. `reference` is the definition, `backends` the table of ways."""

from headwise.ops.additive import additive_attention
from headwise.ops.attention import attention, backends

__all__ = ["additive_attention", "attention", "backends"]
