"""Page data: which batch elements of the maps fit into a number of bytes, how finely, and the data of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.pages.document import as_base64, as_json, shell_bytes
from headwise.pages.encode_maps import NOTHING, Carried, bytes_needed, carry, fitting_block, read
from headwise.wording import refusal

if TYPE_CHECKING:
    from headwise.pages.models import Progress
    from headwise.pages.page import Layer, Page

__all__ = ["Packed", "packed"]

# every row is carried exactly where all of them take no more bytes than this
EXACT_BYTES = 75_000
# a page that may be larger than this may have any size
MOST_MB = 1e9
# more samples than this are carried only when they are asked for
MOST_SAMPLES = 64


@dataclass(frozen=True, eq=False)
class Packed:
    """What a page holds of its maps.

    samples: those that are carried. layers: what the header says of each. first: id -> base64, of what the first view
    needs; rest: the same of all else.
    """

    samples: tuple[int, ...]
    layers: tuple[dict[str, Any], ...]
    first: dict[str, str]
    rest: dict[str, str]


def packed(page: Page, max_mb: float, tell: Progress) -> Packed:
    """The maps of a page, so that it has at most so many million bytes. tell: called for each layer."""
    samples, chosen, block = _plan(page, max_mb)
    layers, first = list[dict[str, Any]](), dict[str, str]()
    rest = dict[str, str]()
    for n, layer in enumerate(page.layers):
        tell("step.carrying", {"done": n, "total": len(page.layers)})
        reading = read(layer.map, block)
        carried = [carry(layer.map, sample=sample, block=block, exact=chosen, cached=reading) for sample in samples]
        layers.append(_described(layer, carried))
        blocks = _blocks(n, carried)
        # the overview, which is seen first, needs the small pictures, or the maps that are no larger
        name = f"thumbs-{n}" if f"thumbs-{n}" in blocks else f"codes-{n}"
        first[name] = blocks.pop(name)
        rest |= blocks
    return Packed(samples, tuple(layers), first, rest)


def _plan(page: Page, max_mb: float) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The samples that are carried, the queries whose rows are exact, and how many tokens a byte stands for each way.

    All samples where they fit without being pooled, else as many as do, the one that the page opens at among them.
    """
    max_mb = min(max_mb, MOST_MB)
    shapes = [tuple(layer.map.shape) for layer in page.layers]
    spoken = 2 * len(as_json(page.to_dict()).encode()) + len(as_json(page.words()).encode())
    fixed = shell_bytes() + spoken + 20_000

    def room(count: int) -> int:
        rows = sum(4 * H * Lk * sum(row < Lq for row in _exact(page, count)) for _, H, Lq, Lk in shapes)
        numbers = 400 * len(shapes) + count * sum(120 + 44 * shape[1] for shape in shapes)
        return int(max_mb * 1e6) - fixed - numbers - math.ceil(count * rows * 4 / 3)

    def fits(count: int) -> bool:
        return bytes_needed(shapes, 1, count) <= room(count)

    if page.samples is not None:
        samples = page.samples
    else:
        # nearest to the one that is opened first
        others = [n for n in range(min(shape[0] for shape in shapes)) if n != page.sample]
        order = [page.sample, *sorted(others, key=lambda n: abs(n - page.sample))][:MOST_SAMPLES]
        count = next((count for count in range(len(order), 1, -1) if fits(count)), 1)
        samples = tuple(sorted(order[:count]))
    count = len(samples)
    block = fitting_block(shapes, room(count), count)
    if block is None:
        coarsest = -(-max(max(shape[2:]) for shape in shapes) // 32)
        least = math.ceil((int(max_mb * 1e6) - room(count) + bytes_needed(shapes, coarsest, count)) / 1e5) / 10
        key = "refuse.page_too_large" if count == 1 else "refuse.page_of_samples_too_large"
        raise refusal(key, limit=f"{max_mb:g}", least=f"{least:g}", layers=len(shapes), samples=count)
    return samples, _exact(page, count), block


def _exact(page: Page, count: int) -> tuple[int, ...]:
    """The queries whose rows are carried exactly, of so many samples."""
    sizes = [layer.map.shape for layer in page.layers]
    if 4 * count * sum(math.prod(size[1:]) for size in sizes) <= EXACT_BYTES:
        return tuple(range(max(size[2] for size in sizes)))
    return page.chosen if page.chosen is not None else ()


def _blocks(n: int, carried: Sequence[Carried]) -> dict[str, str]:
    """The data of layer n by the ids of their blocks, sample after sample."""
    blocks = {
        f"codes-{n}": torch.stack([each.codes for each in carried]),
        f"entropy-{n}": torch.stack([each.entropy for each in carried]),
        f"received-{n}": torch.stack([each.received for each in carried]),
    }
    if carried[0].thumbs is not None:
        blocks[f"thumbs-{n}"] = torch.stack([each.thumbs for each in carried if each.thumbs is not None])
    if carried[0].exact:
        blocks[f"exact-{n}"] = torch.stack([torch.stack(list(each.exact.values())) for each in carried])
    return {name: as_base64(numbers) for name, numbers in blocks.items()}


def _described(layer: Layer, carried: Sequence[Carried]) -> dict[str, Any]:
    """What the header says of a layer; what differs from sample to sample stands in "samples"."""
    first = carried[0]
    return {
        "name": layer.name,
        "heads": layer.map.shape[1],
        "queries": layer.queries,
        "keys": layer.keys,
        "lengths": list(first.lengths),
        "block": list(first.block),
        "size": list(first.codes.shape[1:]),
        "thumb": list((first.thumbs if first.thumbs is not None else first.codes).shape[1:]),
        "exact": list(first.exact),
        "samples": [
            {
                "entropy": _spoken(head.mean_entropy, head.mean_entropy),
                "distance": _spoken(head.distance, head.mean_entropy),
                "causal": head.is_causal,
                "hidden": head.hidden,
                "empty": head.empty,
                "nan": head.nan,
            }
            for head in carried
        ],
    }


def _spoken(values: Tensor, entropy: Tensor) -> list[float | str | None]:
    """One number of each head as JSON knows them: None is NaN, "empty" stands for a head that attends to nothing."""
    heads = zip(values.tolist(), entropy.tolist(), strict=True)
    return ["empty" if nats == NOTHING else value if math.isfinite(value) else None for value, nats in heads]
