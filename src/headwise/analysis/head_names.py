"""Head names: what each head of a model does, by published measures, each with its score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.analysis.head_measures import MEASURES, HeadMeasures, measured
from headwise.analysis.head_table import HeadTable, checked_count, heat_map, plain_number
from headwise.analysis.layer_maps import named_layers
from headwise.analysis.token_pairs import PATTERNS, SEPARATORS, TokenPairs, Tokens, token_rows
from headwise.errors import ArgumentError
from headwise.maps.files import LoadedMaps
from headwise.watching import Seen

__all__ = ["DEFINITIONS", "HeadName", "HeadNames", "name_heads"]

# what each measure is, and where it comes from
DEFINITIONS = {
    "previous": "mean weight on the token before (Clark et al. 2019, arXiv:1906.04341, sec. 3.1)",
    "next": "mean weight on the token after (Clark et al. 2019, sec. 3.1)",
    "same": "mean weight on the query's own token (Clark et al. 2019, sec. 3.1)",
    "first": "mean weight on the first token, of all other queries (Xiao et al. 2023, arXiv:2309.17453, sec. 3.1)",
    "separator": "mean weight on separators, of queries that are none (Clark et al. 2019, sec. 3.2)",
    "duplicate": "mean weight on other places of the query's token (Wang et al. 2022, arXiv:2211.00593, sec. 3)",
    "induction": "mean weight on what came after other places of the query's token: prefix matching "
    "(Olsson et al. 2022, arXiv:2209.11895)",
    "entropy": "mean entropy of the rows, over the logarithm of how many keys each may see",
    "largest": "mean of the largest weight of each row: broad at 0.1 or less (Clark et al. 2019, sec. 3.1)",
    "distance": "mean of |i - j| by weight, in tokens (Vig & Belinkov 2019, arXiv:1906.04284, sec. 4)",
}
RELATION = (
    "share of the pairs given whose key has the largest weight of its query (Voita et al. 2019, arXiv:1905.09418)"
)
# the largest weight of a broad head, on average
BROAD = 0.1


class HeadName(NamedTuple):
    """What a head does most: its pattern, "broad", or "" where it is neither; and the score that says so."""

    pattern: str
    score: float


@dataclass(frozen=True, eq=False)
class HeadNames(HeadTable):
    """What the heads of a model do, by measures of their weights; made by `name_heads`.

    names: of the modules, in running order. heads: how many each has. scores: each measure, (layers, most heads), NaN
    where a layer has fewer heads or no query has such a pair; patterns and relations are between 0 and 1. chance: the
    same of weights that are equal over the keys that a query may see, NaN for relations. queries: over how many queries
    each mean is. least: the score from which a pattern names a head. left_out: layers without measures, and why.
    """

    scores: Mapping[str, Tensor]
    chance: Mapping[str, Tensor]
    queries: Mapping[str, int]
    least: float
    left_out: Mapping[str, str]

    def name(self, module: str, head: int) -> HeadName:
        """The pattern of the largest score of a head, if it is `least` or more; else "broad", or ""."""
        best, score = self.best(module, head)
        if score >= self.least:
            return HeadName(best, score)
        largest = float(self.scores["largest"][self.names.index(module), head])
        return HeadName("broad", largest) if largest <= BROAD else HeadName("", score)

    def best(self, module: str, head: int) -> HeadName:
        """The pattern of the largest score of a head, however small that is."""
        if (module, head) not in set(self.places()):
            raise ArgumentError(f'there is no head {head} of "{module}": names and heads say which there are')
        at = (self.names.index(module), head)
        patterns = [name for name in self.scores if name not in MEASURES]
        best = max(patterns, key=lambda name: float(self.scores[name][at].nan_to_num(-1.0)))
        return HeadName(best, float(self.scores[best][at]))

    def top(self, measure: str, k: int = 5) -> list[tuple[str, int, float]]:
        """The k heads of the largest score in a measure: module, head and score, the largest first."""
        values = self.scores[self._checked(measure)]
        rows = [(name, head, float(values[self.names.index(name), head])) for name, head in self.places()]
        return sorted((row for row in rows if not math.isnan(row[2])), key=lambda row: -row[2])[: checked_count(k)]

    def plot(self, measure: str, *, ax: Any = None) -> Any:
        """A measure as a heat map, layers by heads, on matplotlib's `ax`, None: on axes of its own; those axes."""
        return heat_map(self.scores[self._checked(measure)], self.names, label=measure, has_sign=False, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: each head with its name, its scores and those of chance; the definitions of the measures."""
        rows = [
            {
                "name": module, "head": head, "pattern": self.name(module, head).pattern,
                "scores": {m: plain_number(float(t[self.names.index(module), head])) for m, t in self.scores.items()},
                "chance": {m: plain_number(float(t[self.names.index(module), head])) for m, t in self.chance.items()},
            }
            for module, head in self.places()
        ]  # fmt: skip
        return {
            "heads": rows, "queries": dict(self.queries), "least": self.least, "left_out": dict(self.left_out),
            "definitions": {m: DEFINITIONS.get(m, RELATION) for m in self.scores},
        }  # fmt: skip

    def __str__(self) -> str:
        width = max((len(name) for name in self.names), default=6)
        lines = [f"{len(self.names)} layers, {sum(self.heads)} heads; a pattern names a head from {self.least:g} on"]
        lines.append(f"{'module':{width}}  head  does         score  chance  entropy  distance")
        for module, head in self.places():
            at = (self.names.index(module), head)
            does, best = self.name(module, head), self.best(module, head)
            # the strongest pattern of a head without a name stands in brackets
            label = does.pattern or f"({best.pattern})"
            measure = "largest" if does.pattern == "broad" else best.pattern
            lines.append(
                f"{module:{width}}  {head:4d}  {label:11}  {does.score:5.2f}  {float(self.chance[measure][at]):6.2f}  "
                f"{float(self.scores['entropy'][at]):7.2f}  {float(self.scores['distance'][at]):8.1f}"
            )
        lines += [f'"{name}" left out: {reason}' for name, reason in self.left_out.items()]
        return "\n".join(lines)

    def _checked(self, measure: str) -> str:
        if measure not in self.scores:
            raise ArgumentError(f"measure must be one of {', '.join(self.scores)}, but {measure!r} came")
        return measure


def name_heads(
    seen: Seen | LoadedMaps,
    tokens: Tokens,
    *,
    separators: Iterable[Any] = SEPARATORS,
    parse: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    least: float = 0.5,
) -> HeadNames:
    """What each head of a watched run does, by published measures: a table of layers by heads, never a bare label.

    Measured are patterns, as the mean weight that queries give to such keys: previous, next, same and first token,
    separators, duplicate tokens and induction (prefix matching; run the model on repeated random tokens for it); and
    entropy, the largest weight, and distance. `DEFINITIONS` in `headwise.analysis.head_names` has each with its source.
    Beside each stands what equal weights over the open keys would give. Weights are read in strips, O(L) memory.

    seen: what `watch` gives, or `load_maps`. tokens: names of the tokens, a list for each sample, or ids (B, L); None,
    "[PAD]" and "<pad>" are no tokens, and neither asks nor is asked. separators: which tokens part a text. parse:
    relation -> pairs (query, key), of each sample, None: none is given, and none is measured. least: the score from
    which a pattern names a head; more than half of its weight, as in Clark et al. 2019. Layers that are no
    self-attention over these tokens are left out, and listed.

    >>> import torch, headwise as hw
    >>> attn = hw.MultiHeadAttention(8, 2)
    >>> with hw.watch(attn) as seen:
    ...     _ = attn(torch.randn(1, 5, 8), mask=torch.eye(5).bool().roll(1, dims=0))
    >>> heads = hw.name_heads(seen, ["the", "cat", "sat", "the", "end"])
    >>> heads.name("", 0)
    HeadName(pattern='previous', score=1.0)
    >>> heads.queries["duplicate"], heads.top("previous", 1)
    (0, [('', 0, 1.0)])
    """
    if not isinstance(least, int | float) or not 0 < least <= 1:
        raise ArgumentError(f"least must be a score above 0 and at most 1, but {least!r} came")
    layers = named_layers("name_heads", seen)
    B = layers[0][1].shape[0]
    rows = token_rows(tokens, B)
    length = max(layer.shape[2] for _, layer in layers) if all(len(r) == 0 for r in rows) else max(map(len, rows))
    left_out = {name: why for name, layer in layers if (why := _unfit(tuple(layer.shape), B, length))}
    fitting = [(name, layer) for name, layer in layers if name not in left_out]
    if not fitting:
        raise ArgumentError(f"name_heads needs a map over the {length} tokens, but {'; '.join(left_out.values())}")
    pairs = TokenPairs(rows, length, separators)
    relations = _relations(parse, B, length)
    measures = [measured(layer, pairs, relations) for _, layer in fitting]
    heads = HeadTable(tuple(name for name, _ in fitting), tuple(layer.shape[1] for _, layer in fitting))
    names = (*PATTERNS, *relations, *MEASURES)
    return HeadNames(
        heads.names, heads.heads, _tables(heads, measures, names, "scores"), _tables(heads, measures, names, "chance"),
        {name: max(layer.queries[name] for layer in measures) for name in names}, float(least), left_out,
    )  # fmt: skip


def _tables(heads: HeadTable, layers: list[HeadMeasures], names: Iterable[str], kind: str) -> dict[str, Tensor]:
    return {name: heads._rows_filled([getattr(layer, kind)[name] for layer in layers]) for name in names}


def _unfit(shape: tuple[int, ...], B: int, length: int) -> str:
    """Why a map is no self-attention over the tokens; "" where it is."""
    if (shape[0], *shape[2:]) == (B, length, length):
        return ""
    return f"its map is {shape}, and the tokens are {B} x {length}"


def _relations(parse: Any, B: int, length: int) -> dict[str, list[Tensor]]:
    """Relation -> pairs (n, 2) of each sample."""
    if parse is None:
        return {}
    samples = [parse] if isinstance(parse, Mapping) else list(parse)
    if len(samples) != B or not all(isinstance(sample, Mapping) for sample in samples):
        raise ArgumentError(f"parse must map relations to pairs, for each of the B={B} samples")
    reserved = set(PATTERNS) | set(MEASURES)
    out: dict[str, list[Tensor]] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample):
        if name in reserved:
            raise ArgumentError(f'a relation of parse must have a name of its own, but "{name}" is a measure')
        out[name] = []
        for sample in samples:
            pairs = torch.tensor(list(sample.get(name, ())), dtype=torch.long).reshape(-1, 2)
            if pairs.numel() and not (0 <= int(pairs.min()) and int(pairs.max()) < length):
                raise ArgumentError(f"the pairs of {name} must lie in 0..{length - 1}, but reach {int(pairs.max())}")
            out[name].append(pairs)
    return out
