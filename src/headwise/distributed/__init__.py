"""More than one device: heads split over ranks, or a sequence spread over them, with the same numbers on any number."""

from headwise.distributed.attention import attention, ways
from headwise.distributed.cache import SpreadCache, cache
from headwise.distributed.costs import LayerSize, Machine
from headwise.distributed.layouts import Layout, contiguous, striped, zigzag
from headwise.distributed.sequences import SpreadPair
from headwise.distributed.spread import Spread, spread
from headwise.distributed.tensor_parallel import Heads, plan

__all__ = [
    "Heads",
    "LayerSize",
    "Layout",
    "Machine",
    "Spread",
    "SpreadCache",
    "SpreadPair",
    "attention",
    "cache",
    "contiguous",
    "plan",
    "spread",
    "striped",
    "ways",
    "zigzag",
]
