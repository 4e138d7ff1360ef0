"""torch: nn.MultiheadAttention by its names and with its weights, and `replace`, which swaps it in a whole model."""

from headwise.compat.torch.multi_head import MultiheadAttention

__all__ = ["MultiheadAttention"]
