"""More than one device: heads split over ranks, with every option of the layer and the same numbers."""

from headwise.distributed.tensor_parallel import Heads, plan

__all__ = ["Heads", "plan"]
