"""Run comparison: how the heads of two watched runs differ, in their rows, their entropy and what keys receive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.analysis.head_table import HeadTable, checked_count, heat_map, plain_number
from headwise.analysis.layer_maps import NamedMaps, named_layers
from headwise.analysis.token_alignment import Alignment, aligned, in_place
from headwise.analysis.token_pairs import Tokens, token_rows
from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.watching import Seen

__all__ = ["HeadDifference", "RunComparison", "compare"]

# entries of one strip of a map that are in memory at once
STRIP = 1 << 20
# lines of a `str`
MOST_LINES = 12
MEASURES = ("divergence", "entropy", "received")


class HeadDifference(NamedTuple):
    """How one head differs between two runs, as `RunComparison` says."""

    name: str
    head: int
    divergence: float
    entropy: float
    received: float


@dataclass(frozen=True, eq=False)
class RunComparison(HeadTable):
    """How the heads of two runs differ; made by `compare`.

    names: of the modules of the first run, in running order. heads: how many each has. Each (layers, most heads), NaN
    where a layer has fewer heads: divergence, the mean Jensen-Shannon divergence of the rows, in nats, 0 to log 2;
    entropy, the mean entropy of the second less that of the first, in nats; received, the total variation of the share
    that each key receives, 0 to 1. alignment: a sentence on what was compared with what.
    """

    divergence: Tensor
    entropy: Tensor
    received: Tensor
    alignment: str

    def top(self, k: int = 10) -> list[HeadDifference]:
        """The k heads whose rows differ most, the first of them first."""
        rows = [HeadDifference(name, head, *self._at(name, head)) for name, head in self.places()]
        return sorted(rows, key=lambda row: -math.inf if math.isnan(row.divergence) else row.divergence, reverse=True)[
            : checked_count(k)
        ]

    def plot(self, measure: str = "divergence", *, ax: Any = None) -> Any:
        """A heat map of "divergence", "entropy" or "received", on matplotlib's `ax`, None: on its own; those axes."""
        if measure not in MEASURES:
            raise ArgumentError(f"measure must be one of {', '.join(MEASURES)}, but {measure!r} came")
        return heat_map(getattr(self, measure), self.names, label=measure, has_sign=measure == "entropy", ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: each head with its three differences, and what was compared with what."""
        rows = [
            {"name": name, "head": head, **dict(zip(MEASURES, map(plain_number, self._at(name, head)), strict=True))}
            for name, head in self.places()
        ]
        return {"alignment": self.alignment, "heads": rows}

    def __str__(self) -> str:
        width = max((len(name) for name in self.names), default=6)
        lines = [f"{len(self.names)} layers, {sum(self.heads)} heads; {self.alignment}"]
        lines.append(f"{'module':{width}}  head  divergence   entropy  received")
        lines += [
            f"{row.name:{width}}  {row.head:4d}  {row.divergence:10.4f}  {row.entropy:+8.3f}  {row.received:8.4f}"
            for row in self.top(MOST_LINES)
        ]
        return "\n".join(lines)

    def _at(self, name: str, head: int) -> tuple[float, float, float]:
        at = (self.names.index(name), head)
        return float(self.divergence[at]), float(self.entropy[at]), float(self.received[at])


def compare(
    a: Seen | LoadedMaps, b: Seen | LoadedMaps, *, tokens: tuple[Tokens, Tokens] | None = None
) -> RunComparison:
    """How the heads of two watched runs differ: two texts, two checkpoints, before and after an edit; (layers, heads).

    a, b: what `watch` gives, or `load_maps`; layers belong together by name, or else by their order. tokens: those of
    the two runs, each as `name_heads` takes them, None: tokens of the same number belong together. With tokens, queries
    and keys are compared where both runs have the same token in the same order; in each row the keys that have no
    counterpart count as one, so that a divergence is at most that of the whole rows. Rows that may attend to nothing in
    both runs differ by 0. Weights are read in strips, O(L) memory; gradients are not followed.
    Lin 1991, Divergence measures based on the Shannon entropy, eq. 4.1.

    >>> import torch, headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    >>> with hw.watch(attn) as before, torch.no_grad():
    ...     _ = attn(x)
    >>> with hw.watch(attn) as after, torch.no_grad(), hw.intervene(attn) as edits:
    ...     _ = edits.find("").temperature(0.5, heads=[1])
    ...     _ = attn(x)
    >>> found = hw.compare(before, after)
    >>> found.divergence[0, 0], found.top(1)[0].head
    (tensor(0., dtype=torch.float64), 1)
    """
    pairs = _paired(named_layers("compare", a), named_layers("compare", b))
    B = pairs[0][1].shape[0]
    words = None if tokens is None else [token_rows(side, B, name="each of tokens") for side in tokens]
    if words is not None and len(words) != 2:
        raise ArgumentError(f"tokens must be a pair, of the first run and of the second, but {len(words)} came")
    differences, sentences = [], []
    with torch.no_grad():
        for name, first, second in pairs:
            sides = [_alignments(name, first, second, axis, words) for axis in (2, 3)]
            sentences.append(_sentence(sides[0]))
            differences.append(_difference(first, second, *sides))
    heads = HeadTable(tuple(name for name, _, _ in pairs), tuple(first.shape[1] for _, first, _ in pairs))
    divergence, entropy, received = (
        heads._rows_filled([layer[n] for layer in differences]) for n in range(len(MEASURES))
    )
    return RunComparison(heads.names, heads.heads, divergence, entropy, received, "; ".join(dict.fromkeys(sentences)))


def _paired(first: NamedMaps, second: NamedMaps) -> list[tuple[str, AttentionMap, AttentionMap]]:
    """The layers that belong together, in the order of the first run."""
    by_name = dict(second)
    has_same_names = len(by_name) == len(second) and by_name.keys() == dict(first).keys()
    if len(first) != len(second):
        raise ArgumentError(
            f"compare needs two runs of as many layers, but {len(first)} and {len(second)} came: watch the same ones "
            "with only="
        )
    pairs = [(name, layer, by_name[name] if has_same_names else second[n][1]) for n, (name, layer) in enumerate(first)]
    B = first[0][1].shape[0]
    for name, mine, other in pairs:
        if mine.shape[:2] != other.shape[:2] or mine.shape[0] != B:
            raise ArgumentError(
                f'compare needs as many samples and heads in both runs, but "{name}" has {tuple(mine.shape)} and '
                f"{tuple(other.shape)}"
            )
    return pairs


def _alignments(
    name: str, first: AttentionMap, second: AttentionMap, axis: int, rows: Sequence[list[list[Any]]] | None
) -> list[Alignment]:
    """Which queries (axis 2) or keys (axis 3) belong together, of each sample."""
    B, sizes = first.shape[0], (first.shape[axis], second.shape[axis])
    if rows is None:
        return [in_place(*sizes)] * B
    lengths = tuple(max(map(len, side)) for side in rows)
    if sizes == lengths:
        padded = [
            [row + [None] * (length - len(row)) for row in side] for side, length in zip(rows, lengths, strict=True)
        ]
        return [aligned(*sample) for sample in zip(*padded, strict=True)]
    if sizes[0] == sizes[1]:
        return [in_place(*sizes)] * B
    raise ArgumentError(
        f'the tokens must be those of the maps, but "{name}" has {sizes[0]} and {sizes[1]} where {lengths[0]} and '
        f"{lengths[1]} tokens came"
    )


def _sentence(sides: list[Alignment]) -> str:
    """What was compared with what, in words."""
    if all(side.is_whole for side in sides):
        return f"all {sides[0].lengths[0]} queries compared"
    some = ", ".join(f"{side.first.numel()} of {side.lengths[0]} and {side.lengths[1]}" for side in sides[:3])
    return f"{some} queries compared, whose tokens are the same"


def _difference(
    first: AttentionMap, second: AttentionMap, queries: list[Alignment], keys: list[Alignment]
) -> tuple[Tensor, Tensor, Tensor]:
    """Divergence, change of entropy and of what keys receive, each (H,)."""
    B, H = first.shape[:2]
    device = first.device
    divergence, entropy, received = (torch.zeros(H, dtype=torch.float64, device=device) for _ in range(3))
    # of each map (B, H, ...), computed in one pass
    entropies, shares = (
        [read(m).double().to(device) for m in (first, second)] for read in (lambda m: m.entropy(), _shares)
    )
    count = sum(side.first.numel() for side in queries)
    for b in range(B):
        rows, columns = queries[b], keys[b]
        if rows.first.numel() == 0:
            continue
        size = max(1, STRIP // max(1, H * max(first.shape[3], second.shape[3])))
        for places in zip(rows.first.split(size), rows.second.split(size), strict=True):
            p, q = (
                _lumped(m[b : b + 1, :, _as_run(at)][0].to(device), columns, side)
                for side, (m, at) in enumerate(zip((first, second), places, strict=True))
            )
            divergence += _jensen_shannon(p, q).double().sum(-1)
        entropy += (entropies[1][b][:, rows.second] - entropies[0][b][:, rows.first]).sum(-1)
        p, q = (_lumped(shares[side][b], columns, side) for side in range(2))
        received += (p - q).abs().sum(-1) / 2
    return divergence / count, entropy / count, received / B


def _as_run(places: Tensor) -> Tensor | slice:
    """Ascending places as a slice where none is left out, which takes no copy of the keys."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == places.numel() else places


def _shares(m: AttentionMap) -> Tensor:
    """The share of all weight that each key of a head receives, (B, H, Lk)."""
    received = m.received().double()
    return received / received.sum(-1, keepdim=True).clamp(min=1e-300)


def _lumped(weights: Tensor, keys: Alignment, side: int) -> Tensor:
    """Weights (..., n + 1) at the keys of one side, and last what the others have together; (..., n) without others."""
    if keys.is_whole:
        return weights
    columns = (keys.first, keys.second)[side].to(weights.device)
    rest = torch.ones(weights.shape[-1], dtype=torch.bool, device=weights.device)
    rest[columns] = False
    return torch.cat([weights.index_select(-1, columns), weights[..., rest].sum(-1, keepdim=True)], dim=-1)


def _jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """The divergence of rows (..., n), in nats; what a row lacks to 1, as by a sink, counts as one more key."""
    p, q = (torch.cat([t, (1.0 - t.sum(-1, keepdim=True)).clamp(min=0.0)], dim=-1) for t in (p, q))
    mean = (p + q) / 2
    # 0 log 0 is 0; a mean of 0 has two such terms
    safe = torch.where(mean > 0, mean, 1.0)
    terms = torch.xlogy(p, p / safe) + torch.xlogy(q, q / safe)
    return (terms.sum(-1) / 2).clamp(min=0.0)
