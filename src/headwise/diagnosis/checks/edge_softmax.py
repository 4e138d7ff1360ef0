"""Edge softmax: whether the weights of a graph's edges sum to 1 at the nodes where their messages are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Run, TokenSum, attentions, chain_of, token_sums
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import weighed
from headwise.recording import Site
from headwise.source import Span

__all__ = ["wrong_ends"]

# what takes an index of the edges
GATHERED = frozenset({"gather", "index_select", "__getitem__", "take_along_dim"})
# and brings the numbers of several edges together
INDEXED = GATHERED | {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
                      "index_reduce", "index_reduce_"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Elsewhere:
    """Calls a function with the other ends of the edges as its index."""

    function: Callable[..., Any]
    ends: Tensor
    wanted: Tensor

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(
            *(self._at_ends(argument) for argument in args),
            **{name: self._at_ends(each) for name, each in options.items()},
        )

    def _at_ends(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._at_ends, value))
        if not _is_index(value, self.ends):
            return value
        return self.wanted.view(-1, *[1] * (value.ndim - 1)).expand_as(value)


def wrong_ends(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The softmax over edges that goes over those that share another end than that where their messages are added up
    (Velickovic et al. 2018, arXiv:1710.10903, equation 3).

    Proved by the weights that sum to 1 there with the other ends in its place.
    """
    if run.failure is not None or attentions(run):
        return []
    for total in token_sums(run):
        wanted = total.ends
        if wanted is None or weighed(run, rerun, total) is not None:
            continue
        for ends, entries in _shared_out(run, total, wanted):
            stand_ins: dict[Site, Callable[..., Any]] = {}
            stand_ins |= {entry.site: _Elsewhere(entry.function, ends, wanted) for entry in entries}
            if weighed(run, rerun, total, stand_ins) is not None:
                return [Suspect("softmax-edges", _asked_at(entries), Repair(stand_ins), proved=True)]
    return []


def _shared_out(run: Run, total: TokenSum, wanted: Tensor) -> Iterator[tuple[Tensor, list[MarkedOp]]]:
    """The indices by which the numbers of edges are brought together, other than that of the sum, each with the
    operations that do so and that hand the results back.
    """
    chains = [chain_of(run, total.product, tensor.number) for tensor in total.product.inputs]
    # the values are looked up, and brought together nowhere
    shared = [chain for chain in chains if any(entry.last in INDEXED - GATHERED for entry in chain)]
    entries = {entry.at: entry for chain in shared for entry in chain if entry.last in INDEXED}
    met: list[Tensor] = []
    for first in (each for _, each in sorted(entries.items()) if each.last not in GATHERED):
        for ends in (_first_axis(tensor) for tensor in first.tensors if _is_of_edges(tensor, wanted)):
            if torch.equal(ends, wanted) or any(torch.equal(ends, each) for each in met):
                continue
            met.append(ends)
            # what is looked up before belongs to the scores
            led = [each for at, each in sorted(entries.items()) if at >= first.at]
            yield ends, [each for each in led if any(_is_index(tensor, ends) for tensor in each.tensors)]


def _is_of_edges(value: Tensor, wanted: Tensor) -> bool:
    return value.dtype == torch.int64 and value.ndim > 0 and value.shape[0] == wanted.shape[0]


def _first_axis(value: Tensor) -> Tensor:
    return value.reshape(value.shape[0], -1)[:, 0]


def _is_index(value: Any, ends: Tensor) -> bool:
    """Whether a tensor holds nothing but these ends of the edges."""
    return isinstance(value, Tensor) and _is_of_edges(value, ends) and torch.equal(_first_axis(value), ends)


def _asked_at(entries: list[MarkedOp]) -> Span:
    """The call of the function that shares out, if that is one of its own, or else its first step."""
    chains = {entry.operation.chain[-1:] for entry in entries}
    calls = chains.pop() if len(chains) == 1 else ()
    return calls[0] if calls else entries[0].span
