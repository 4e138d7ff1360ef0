"""The masks of Hugging Face models, made of the pieces that transformers passes: small where they can be."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from headwise.errors import ConversionError, MaskError
from headwise.masks import Mask, allowed, causal, documents, keys, window
from headwise.masks.leaves import Causal, Documents, Window
from headwise.ops.active_spread import SpreadSequence, active_spread

__all__ = ["HandedMask", "handed"]

# a window that ends nowhere on one side
ENDLESS = sys.maxsize


class HandedMask:
    """A mask on its way through a model of transformers, which takes it for a bool tensor (B, 1, Lq, Lk).

    mask: who may attend to whom, None: everyone to all. spread: whose whole sequence it is of, None: no spread's.
    A model hands its mask on to its layers as it came, and may cut it; whatever else it does with it needs a tensor,
    and is refused: it would add the bool as if it were scores.
    """

    dtype = torch.bool
    ndim = 4

    def __init__(
        self,
        mask: Mask | None,
        shape: Sequence[int],
        device: torch.device,
        spread: SpreadSequence | None = None,
    ) -> None:
        self.mask, self.spread = mask, spread
        self.shape = torch.Size(shape)
        self.device = device

    def dim(self) -> int:
        """The number of axes, 4."""
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        """The shape, or one size of it."""
        return self.shape if axis is None else self.shape[axis]

    def dense(self) -> Tensor:
        """The same as a bool tensor (B, 1, Lq, Lk)."""
        B, _, Lq, Lk = self.shape
        if self.mask is None:
            return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device).expand(self.shape)
        four = self.mask.allowed(Lq, Lk, batch=B, heads=1, device=self.device)
        return four.expand(self.shape)

    def contiguous(self) -> HandedMask:
        """Itself: there are no strides."""
        return self

    def to(self, *args: Any, **options: Any) -> HandedMask:
        """The same on another device; another dtype is refused."""
        arguments = [*args, *options.values()]
        if any(isinstance(value, torch.dtype) and value is not torch.bool for value in arguments):
            self._refuse(f"asks for it by to({', '.join(map(str, arguments))})")
        places = [
            value for value in arguments if isinstance(value, str | torch.device | int) and not isinstance(value, bool)
        ]
        device = torch.empty(0, device=places[0]).device if places else self.device
        return HandedMask(None if self.mask is None else self.mask.to(device), self.shape, device, self.spread)

    def __getitem__(self, index: Any) -> HandedMask:
        part = self.dense()[index]
        if part.ndim != self.ndim:
            self._refuse(f"takes a part of it of shape {tuple(part.shape)}")
        return HandedMask(allowed(part), part.shape, self.device)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        cls._refuse(f"calls {getattr(function, '__name__', function)} with it")

    @staticmethod
    def _refuse(action: str) -> NoReturn:
        raise MaskError(
            "a mask must reach the attention function of transformers as it was made, bool with True = may attend, but "
            f'the model {action}: load this model with attn_implementation="eager"'
        )

    def __repr__(self) -> str:
        return f"HandedMask({self.mask!r}, {tuple(self.shape)})"


def handed(*, attention_mask: Tensor | HandedMask | None = None, **pieces: Any) -> Tensor | HandedMask | None:
    """The mask function of transformers 5.23, in place of its `sdpa_mask`: the pieces of a mask as a headwise mask.

    attention_mask: bool (B, keys so far), True = a real token, None: no padding. pieces: batch_size, q_length,
    kv_length, q_offset, kv_offset, mask_function, device, and what only other implementations read. What is not
    recognised, or is being traced, is made dense by `sdpa_mask`. None only where no key is masked and the model says
    that it takes None for that; a causal mask is never left to a flag. In `with spread:` the mask is that of the whole
    sequence.
    """
    from transformers import masking_utils
    from transformers.utils.import_utils import is_tracing

    if isinstance(attention_mask, HandedMask):
        # made before the forward, as generate does for static caches
        return attention_mask
    _refuse_unrouted(pieces.get("config"))
    spread = active_spread()
    if spread is not None:
        parts = _recognised(pieces["mask_function"], masking_utils)
        return _spread_mask(spread, parts, attention_mask, pieces)
    is_step = _read_by_a_compiled_step(pieces)
    if not is_step and not is_tracing(attention_mask):
        parts = _recognised(pieces["mask_function"], masking_utils)
        if parts is not None:
            return _joined(parts, attention_mask, pieces)
    # it may leave a mask out where none is meant, but not where the kernel needs a causal one
    dense: Tensor | None = masking_utils.sdpa_mask(
        **{**pieces, "attention_mask": attention_mask, "allow_is_causal_skip": False}
    )
    if dense is None or is_step:
        return dense
    return HandedMask(allowed(dense), dense.shape, dense.device)


def _spread_mask(
    spread: SpreadSequence, parts: list[Mask] | None, attention_mask: Tensor | None, pieces: dict[str, Any]
) -> HandedMask:
    """The mask of the whole sequence, from the parts that a model names for its own and the mask of the spread."""
    if parts is None:
        raise MaskError(
            "a model in `with spread:` must make its mask of transformers' own causal, window and bidirectional parts, "
            "but it has one of its own: run it in one process"
        )
    if attention_mask is not None and not bool(attention_mask.all()):
        raise MaskError(
            f"attention_mask {tuple(attention_mask.shape)} pads a model in `with spread:`, whose masks are those of "
            "the whole sequence: give hw.keys(keep) to hw.distributed.spread(mask=) and leave attention_mask out"
        )
    # transformers takes positions that do not count up by one for packed sequences; those are in the spread's mask
    whole = _without_idle([part for part in parts if not isinstance(part, Documents)], spread.length, spread.length)
    whole += [] if spread.mask is None else [spread.mask]
    shape = (pieces["batch_size"], 1, pieces["q_length"], pieces["kv_length"])
    return HandedMask(reduce(and_, whole) if whole else None, shape, torch.device(pieces["device"]), spread)


def _read_by_a_compiled_step(pieces: dict[str, Any]) -> bool:
    """Whether a static cache asks: its mask enters a compiled graph, where only a tensor keeps its address."""
    may_skip = pieces.get("allow_is_causal_skip", True) or pieces.get("allow_is_bidirectional_skip", False)
    return isinstance(pieces["q_offset"], Tensor) or (pieces["q_length"] == 1 and not may_skip)


def _refuse_unrouted(config: Any) -> None:
    """Refuse a model whose own attention asks transformers for no function: it would add the mask to its scores."""
    home = sys.modules.get(type(config).__module__.replace(".configuration_", ".modeling_"))
    if home is None or hasattr(home, "ALL_ATTENTION_FUNCTIONS"):
        return
    classes = [name for name, part in vars(home).items() if "Attention" in name and _is_module_of(part, home.__name__)]
    if classes:
        raise ConversionError(
            f"a model must ask transformers for its attention function to run on headwise, but {classes[0]} and all of "
            f"{home.__name__.rpartition('.')[2]} compute attention by themselves: load it with "
            'attn_implementation="eager"'
        )


def _is_module_of(part: object, home: str) -> bool:
    return isinstance(part, type) and issubclass(part, nn.Module) and part.__module__ == home


def _recognised(function: Callable[..., Tensor], made_by: Any) -> list[Mask] | None:
    """The masks that together are one of transformers' mask functions, [] for all pairs; None: it is not known."""
    if function is made_by.causal_mask_function:
        return [causal()]
    if function is made_by.bidirectional_mask_function:
        return []
    if getattr(function, "__module__", "") != made_by.__name__ or not inspect.isfunction(function):
        return None
    kind, variables = function.__qualname__.partition(".")[0], inspect.getclosurevars(function).nonlocals
    if kind == "and_masks":
        masks = [_recognised(part, made_by) for part in variables["mask_functions"]]
        return None if None in masks else [mask for part in masks for mask in part or ()]
    if kind == "sliding_window_overlay" and variables["sliding_window"] > 0:
        return [window(before=variables["sliding_window"] - 1, after=ENDLESS)]
    if kind == "sliding_window_bidirectional_overlay":
        return [window(before=variables["sliding_window"], after=variables["sliding_window"])]
    if kind == "packed_sequence_mask_function":
        return [documents(variables["packed_sequence_mask"])]
    if kind == "remap_positions_for_packed_sequence":
        # positions count up by one within a sequence, and other sequences are hidden: distances stay
        return _recognised(variables["mask_function"], made_by)
    return None


def _padding(attention_mask: Tensor, Lk: int, kv_offset: int) -> Tensor | None:
    """Which of the keys of this call are real, bool (B, Lk); None: all of them."""
    missing = kv_offset + Lk - attention_mask.shape[-1]
    # what a static cache has not filled yet
    whole = torch.nn.functional.pad(attention_mask, (0, max(0, missing)))
    keep = whole[:, kv_offset : kv_offset + Lk]
    # a meta tensor has no values to read
    return None if not keep.is_meta and keep.all() else keep


def _joined(parts: list[Mask], attention_mask: Tensor | None, pieces: dict[str, Any]) -> HandedMask | None:
    """The parts and the padding as one mask, each only where it masks something; None where the model takes that."""
    Lq, Lk = pieces["q_length"], pieces["kv_length"]
    q_offset, kv_offset = pieces["q_offset"], pieces["kv_offset"]
    lag = kv_offset + Lk - q_offset - Lq
    if lag == 0:
        parts = _without_idle(parts, Lq, Lk)
    mask = reduce(and_, parts) if parts else None
    device = torch.device(pieces["device"])
    if mask is not None and lag:
        i, j = torch.arange(Lq, device=device) + q_offset, torch.arange(Lk, device=device) + kv_offset
        mask = mask.at(i, j)
    keep = None if attention_mask is None else _padding(attention_mask, Lk, kv_offset)
    if keep is not None:
        mask = keys(keep) if mask is None else keys(keep) & mask
    if mask is None and pieces.get("allow_is_bidirectional_skip", False):
        return None
    return HandedMask(mask, (pieces["batch_size"], 1, Lq, Lk), device)


def _without_idle(parts: list[Mask], Lq: int, Lk: int) -> list[Mask]:
    """The same parts for queries that are the last tokens, without those that mask nothing; a causal window is one."""
    is_causal = any(isinstance(part, Causal) for part in parts)
    kept: list[Mask] = [part for part in parts if not isinstance(part, Causal | Window)]
    for part in parts:
        if isinstance(part, Window):
            after = 0 if is_causal else part.after
            if part.before < Lk - 1 or (after < Lk - 1 and not is_causal):
                kept.append(window(before=part.before, after=after))
                is_causal = False
    return [*kept, causal()] if is_causal and Lq > 1 else kept
