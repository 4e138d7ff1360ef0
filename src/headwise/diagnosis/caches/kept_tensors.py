"""Kept tensors: whether what a step hands on holds keys and values of tokens, or a state of all of them."""

from __future__ import annotations

from torch import Tensor

from headwise.calls import CacheProtocol
from headwise.dataflow import Decoded, Decoder

__all__ = ["holds_inputs", "holds_tokens", "is_read_alone"]


def is_read_alone(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether what was handed on is a state with no axis of tokens that no product reads but in a step, so that all
    tokens at once have another formula on purpose (Infini-attention, arXiv:2404.07143, equation 9).
    """
    if not way.names or way.pick is None or not _tensors_of(step) or holds_tokens(decoder, way, step):
        return False
    whole, parts = decoder.whole(decoder.total, recorded=True).run, decoder.parts(way, (3, 1), recorded=True)
    if whole is None or parts.run is None:
        return False
    sites = {entry.site for entry in whole.seen}
    later = [entry for entry in parts.run.seen if entry.at >= parts.bounds[-1]]
    return any(entry.joint is not None and entry.site not in sites for entry in later)


def holds_tokens(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether what was handed on may be keys and values: tensors, each with an axis as long as the tokens were many,
    and no scores.
    """
    longer, shorter = _tensors_of(step), _tensors_of(decoder.parts(way, (2, 1)))
    return len(longer) == len(shorter) > 0 and all(
        (3, 2) in zip(a.shape, b.shape, strict=False) and tuple(a.shape[-2:]) != (3, 3)
        for a, b in zip(longer, shorter, strict=True)
    )


def holds_inputs(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether the first tensor that was handed on has a row for each token that no other token changes: what is made
    of it alone, and not what it found among the others.
    """
    if not holds_tokens(decoder, way, step):
        return False
    before, disturbed = _tensors_of(step)[0], _tensors_of(decoder.parts(way, (3, 1), disturbed=1))
    if not disturbed or disturbed[0].shape != before.shape:
        return False
    shorter = _tensors_of(decoder.parts(way, (2, 1)))[0]
    axis = next(at for at, pair in enumerate(zip(before.shape, shorter.shape, strict=True)) if pair == (3, 2))
    changed = (before != disturbed[0]).movedim(axis, 0).flatten(1).any(dim=1)
    return changed.tolist() == [True, False, False]


def _tensors_of(step: Decoded) -> list[Tensor]:
    """The tensors that were handed on; none where other things were among them."""
    handed: list[Tensor] = []
    for value in step.cache.values():
        items = value if isinstance(value, tuple | list) else value.values() if isinstance(value, dict) else [value]
        for item in items:
            if not isinstance(item, Tensor):
                return []
            handed.append(item)
    return handed
