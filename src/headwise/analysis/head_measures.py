"""Head measures: how much of each head's weight lies on pairs of a pattern, in one pass over a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.analysis.token_pairs import PATTERNS, TokenPairs
from headwise.maps import AttentionMap
from headwise.maps.map_mask import open_pairs
from headwise.maps.score_tiles import pieces

__all__ = ["MEASURES", "HeadMeasures", "measured"]

# beside the patterns and the relations of a parse
MEASURES = ("entropy", "largest", "distance")
# entries of one strip of a map that are in memory at once
STRIP = 1 << 20


@dataclass(frozen=True)
class HeadMeasures:
    """The measures of one layer's heads, each (heads,); NaN where no query has such a pair.

    scores: by name. chance: the same of weights that are equal over the keys that a query may see. queries: over how
    many each mean is.
    """

    scores: dict[str, Tensor]
    chance: dict[str, Tensor]
    queries: dict[str, int]


def measured(layer: AttentionMap, tokens: TokenPairs, relations: Mapping[str, Sequence[Tensor]]) -> HeadMeasures:
    """The measures of a map (B, H, L, L). relations: of a parse, (n, 2) of query and key for each sample."""
    B, H, L, _ = layer.shape
    names = (*PATTERNS, *MEASURES)
    totals, evens, counts = (torch.zeros(len(names), H, dtype=torch.float64) for _ in range(3))
    best = {name: torch.zeros(H, dtype=torch.float64) for name in relations}
    for rows in pieces(L, max(1, STRIP // max(1, B * H * L))):
        weights = layer[:, :, rows].detach().cpu()
        # where heads share a mask, what equal weights give is computed once
        is_open = open_pairs(layer, rows).cpu() & tokens.is_token[:, None, None]
        even = is_open.to(weights.dtype) / is_open.sum(-1, keepdim=True).clamp(min=1)
        is_query = tokens.is_token[:, None, rows] & is_open.any(-1)
        for n, pattern in enumerate(tokens.of(rows)):
            has_pair = pattern.any(is_open) & is_query
            for total, share in ((totals, weights), (evens, even)):
                total[n] += _sum(torch.where(has_pair, pattern.sum(share), 0.0))
            counts[n] += _sum(has_pair)
        for total, share in ((totals, weights), (evens, even)):
            for n, values in enumerate(_of_rows(share, is_open, rows), start=len(PATTERNS)):
                total[n] += _sum(torch.where(is_query, values, 0.0))
        counts[len(PATTERNS) :] += _sum(is_query)
        if relations:
            _count_best(best, relations, weights, tokens, rows)
    scores, chance = totals / counts, evens / counts
    result = HeadMeasures(
        dict(zip(names, scores, strict=True)), dict(zip(names, chance, strict=True)),
        {name: int(count.max()) if H else 0 for name, count in zip(names, counts, strict=True)},
    )  # fmt: skip
    for name, sums in best.items():
        number = sum(len(pairs) for pairs in relations[name])
        result.scores[name], result.queries[name] = sums / number, number
        result.chance[name] = torch.full_like(sums, torch.nan)
    return result


def _sum(values: Tensor) -> Tensor:
    """Numbers (B, H|1, rows) of every head, added up, (H,) or (1,)."""
    return values.double().sum((0, 2))


def _of_rows(share: Tensor, is_open: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Entropy as a part of the largest that there can be, the largest weight, and the distance, each (B, H, rows)."""
    most = is_open.sum(-1).to(share.dtype).log()
    entropy = -torch.xlogy(share, share).sum(-1) / torch.where(most > 0, most, 1.0)
    L = share.shape[-1]
    distance = (torch.arange(L)[rows, None] - torch.arange(L)).abs().to(share.dtype)
    return entropy, share.amax(-1), torch.einsum("bhrk,rk->bhr", share, distance)


def _count_best(
    best: dict[str, Tensor],
    relations: Mapping[str, Sequence[Tensor]],
    weights: Tensor,
    tokens: TokenPairs,
    rows: slice,
) -> None:
    """Count the pairs of each relation whose key has the largest weight of its query among keys that part no text."""
    choice = weights.masked_fill((tokens.is_separator | ~tokens.is_token)[:, None, None], -1.0).argmax(-1)
    for name, samples in relations.items():
        for b, pairs in enumerate(samples):
            here = pairs[(pairs[:, 0] >= rows.start) & (pairs[:, 0] < rows.stop)]
            best[name] += (choice[b, :, here[:, 0] - rows.start] == here[:, 1]).sum(-1)
