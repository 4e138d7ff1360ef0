"""More than one device: a sequence spread over ranks, with every mask and the same numbers."""

from headwise.distributed.attention import attention, ways
from headwise.distributed.costs import LayerSize, Machine
from headwise.distributed.layouts import Layout, contiguous, striped, zigzag
from headwise.distributed.spread import Spread, spread

__all__ = ["LayerSize", "Layout", "Machine", "Spread", "attention", "contiguous", "spread", "striped", "ways", "zigzag"]
