"""Layer layouts: whether torch's attention layers get batch elements along the axis where they expect tokens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from headwise.calls.plan import Plan
from headwise.calls.trial import quiet

__all__ = ["are_swapped"]

# sizes of the 4 probes differ: a batch of one probe may be as large as a length of another
PROBE = 0


def are_swapped(plan: Plan) -> bool:
    """Whether a plan gives nn.MultiheadAttention keys with the batch along the axis of tokens, and the reverse."""
    shapes: list[tuple[int, ...]] = []

    def keep(layer: nn.Module, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        key = options.get("key", args[1] if len(args) > 1 else None)
        if isinstance(key, Tensor) and key.ndim == 3:
            shape = tuple(key.shape)
            shapes.append((shape[1], shape[0]) if getattr(layer, "batch_first", False) else shape[:2])

    with quiet(), ExitStack() as hooks:
        try:
            sizes = plan.sizes(PROBE)
            target = plan.build(sizes)
            layers = target.modules() if isinstance(target, nn.Module) else ()
            for layer in layers:
                if isinstance(layer, nn.MultiheadAttention):
                    handle = layer.register_forward_pre_hook(keep, with_kwargs=True)
                    hooks.callback(handle.remove)
            args, options = plan.arguments(sizes)
            target(*args, **options)
        except Exception:  # noqa: BLE001  user code may raise anything
            return False
    lengths = {sizes[name] for name in ("L", "S") if name in sizes}
    return any(tokens == sizes.get("B") and batch in lengths for tokens, batch in shapes)
