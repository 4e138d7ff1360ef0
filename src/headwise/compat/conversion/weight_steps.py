"""Weight steps: the transforms between another library's weights and headwise's, each with its name and inverse."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.compat.conversion.weight_tables import Parts, WeightLayout, WeightStep
from headwise.wording import Sentence

__all__ = [
    "BLOCK_COLUMNS", "BLOCK_ROWS", "EINSUM_BIAS", "EINSUM_KEY", "EINSUM_OUT", "EINSUM_QUERY", "EINSUM_VALUE",
    "ONE_MORE", "PACKED", "PACKED_PAIR", "TRANSPOSED", "paired",
]  # fmt: skip


def _rows(layout: WeightLayout) -> list[int]:
    w = layout.widths
    return [w.Hq * w.D, w.Hk * w.D, w.Hk * w.Dv]


PACKED = WeightStep(
    Sentence("convert.step.unpack_all"),
    lambda parts, layout: parts[0].split(_rows(layout)),
    lambda parts, layout: (torch.cat(parts),),
)
PACKED_PAIR = WeightStep(
    Sentence("convert.step.unpack_pair"),
    lambda parts, layout: parts[0].split(_rows(layout)[1:]),
    lambda parts, layout: (torch.cat(parts),),
)
TRANSPOSED = WeightStep(
    Sentence("convert.step.transpose"),
    lambda parts, layout: (parts[0].mT,),
    lambda parts, layout: (parts[0].mT.contiguous(),),
)
ONE_MORE = WeightStep(
    Sentence("convert.step.one_more"),
    lambda parts, layout: (parts[0] + 1,),
    lambda parts, layout: (parts[0] - 1,),
    shifts=True,
)


def _reshape(before: str, after: str) -> Sentence:
    return Sentence("convert.step.reshape", before=before, after=after)


def _einsum(heads: str, width: str) -> WeightStep:
    """A kernel (in, heads, width) as the (heads · width, in) of a Linear."""

    def write(parts: Parts, layout: WeightLayout) -> Parts:
        sizes = layout.widths._asdict()
        return (parts[0].mT.reshape(-1, sizes[heads], sizes[width]).contiguous(),)

    return WeightStep(
        _reshape(f"(in, {heads}, {width})", f"({heads}·{width}, in)"),
        lambda parts, layout: (parts[0].flatten(1).mT,),
        write,
    )


EINSUM_QUERY, EINSUM_KEY, EINSUM_VALUE = _einsum("Hq", "D"), _einsum("Hk", "D"), _einsum("Hk", "Dv")
EINSUM_OUT = WeightStep(
    _reshape("(Hq, Dv, out)", "(out, Hq·Dv)"),
    lambda parts, layout: (parts[0].flatten(0, 1).mT,),
    lambda parts, layout: (parts[0].mT.reshape(layout.widths.Hq, layout.widths.Dv, -1).contiguous(),),
)


def _einsum_bias(heads: str, width: str) -> WeightStep:
    def write(parts: Parts, layout: WeightLayout) -> Parts:
        sizes = layout.widths._asdict()
        return (parts[0].reshape(sizes[heads], sizes[width]),)

    return WeightStep(
        _reshape(f"({heads}, {width})", f"({heads}·{width})"), lambda parts, layout: (parts[0].flatten(),), write
    )


EINSUM_BIAS = {"query": _einsum_bias("Hq", "D"), "key": _einsum_bias("Hk", "D"), "value": _einsum_bias("Hk", "Dv")}


def _order(layout: WeightLayout) -> Tensor:
    """Which of their query heads, in tile order (head h reads h % Hk), is our head h' (reads h' // group)."""
    w = layout.widths
    return torch.arange(w.Hq, device="cpu").view(w.Hq // w.Hk, w.Hk).T.flatten()


def _heads_moved(t: Tensor, order: Tensor, heads: int) -> Tensor:
    moved: Tensor = t.unflatten(0, (heads, -1)).index_select(0, order.to(t.device)).flatten(0, 1)
    return moved


BLOCK_ROWS = WeightStep(
    Sentence("convert.step.rows"),
    lambda parts, layout: (_heads_moved(parts[0], _order(layout), layout.widths.Hq),),
    lambda parts, layout: (_heads_moved(parts[0], _order(layout).argsort(), layout.widths.Hq),),
)
BLOCK_COLUMNS = WeightStep(
    Sentence("convert.step.columns"),
    lambda parts, layout: (_heads_moved(parts[0].mT, _order(layout), layout.widths.Hq).mT,),
    lambda parts, layout: (_heads_moved(parts[0].mT, _order(layout).argsort(), layout.widths.Hq).mT.contiguous(),),
)


def paired(pairing: str) -> WeightStep:
    """Features of each head put so that rotation pairs them as `pairing` does.

    The layer that is read into pairs as the convention does, so reading moves nothing; writing moves the features of a
    layer that pairs otherwise.
    """

    def write(parts: Parts, layout: WeightLayout) -> Parts:
        if layout.pairing in (None, pairing):
            return parts
        D, turned = layout.widths.D, layout.turned
        # where the features of half pairing lie among interleaved ones: 0, 2, 4, ..., 1, 3, 5, ...
        order = torch.arange(turned, device="cpu").view(-1, 2).T.flatten()
        order = order if pairing == "half" else order.argsort()
        order = torch.cat([order, torch.arange(turned, D, device="cpu")])
        return tuple(part.unflatten(0, (-1, D)).index_select(1, order.to(part.device)).flatten(0, 1) for part in parts)

    return WeightStep(Sentence("convert.step.paired", pairing=pairing), lambda parts, layout: parts, write)
