"""Agreement: before the first call of a shape, ranks compare what they were given, so that none waits for nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from headwise.distributed.rank_failure import lost
from headwise.distributed.sequences import Sequences
from headwise.distributed.spread import Spread
from headwise.distributed.whole_call import WholeCall
from headwise.errors import DistributedError
from headwise.masks import Mask
from headwise.ops.call import Call

T = TypeVar("T")

# what ranks compare, in the order of the integers that they send; of the first, sizes, they are told the numbers
SIZES = ("B", "Hq", "Hk", "D", "Dv", "length", "Lk")
OTHERS = (
    "the dtype of q, k and v", "which of q, k and v need gradients", "the layout", "the layout of the keys",
    "the mask", "attn_bias", "positions", "weight", "scale", "softcap", "sink", "dropout", "the way",
)  # fmt: skip

_agreed: WeakKeyDictionary[Spread, set[Hashable]] = WeakKeyDictionary()


def agreed(spread: Sequences, way: str, device: torch.device, check: Callable[[], WholeCall]) -> WholeCall:
    """check(), once every rank is known to have been given the same; DistributedError where one was not.

    Ranks are asked at the first call of a shape with a spread: of the same sizes, dtype, gradients and rules; what
    differs at a later call of that shape is not seen. The numbers of q, k and v are never compared, not those of keys
    that each rank holds whole either. A rank whose check raises before any call has been agreed on with these keys in
    this way tells the others, which then raise too. Of a later call they learn nothing: where they wait for
    it, they do so until the timeout of the group, as for what raises before this, in a layer or a model.
    """
    queries = spread.queries
    if queries.ranks == 1 or queries.group is None or torch.compiler.is_compiling():
        return check()
    shapes, kind = _agreed.setdefault(queries, set()), (way, spread.source and spread.source.layout)
    try:
        call = check()
    except Exception:
        if kind not in shapes:
            _of_all([1, *[0] * len(SIZES + OTHERS)], queries, device)
        raise
    tensors = (call.attn_bias, call.by_distance, call.weight, call.sink, call.mask)
    rules = (call.scale, call.softcap, call.dropout, *(t is None for t in tensors))
    shape = (kind, call.sizes, call.k.shape, call.v.shape, call.q.dtype, _needs_gradients(call), rules)
    if shape not in shapes:
        compare(_of_all([0, *header(call, spread, way)], queries, device), SIZES, OTHERS)
        shapes.update((kind, shape))
    return call


def header(call: WholeCall, spread: Sequences, way: str) -> list[int]:
    """What a rank was given: an integer to each of SIZES and OTHERS, which is a hash where it is no size."""
    (B, Hq, _, D), (_, Hk, held, Dv) = call.q.shape, call.v.shape
    bias, weight, sink = (
        None if t is None else (tuple(t.shape), t.dtype, t.requires_grad)
        for t in (call.attn_bias, call.weight, call.sink)
    )
    at, source = call.distances, spread.source
    others = (
        call.q.dtype, _needs_gradients(call), spread.queries.layout.tokens, source and source.layout.tokens,
        call.mask, bias, at and (at.query_positions, at.key_positions), weight, call.scale,
        call.softcap, sink, call.dropout, way,
    )  # fmt: skip
    return [B, Hq, Hk, D, Dv, *spread.map_sizes(held), *map(digest, others)]


def digest(value: Any) -> int:
    """A number of 63 bits by which ranks compare a mask, tensors or numbers; a function by its name only."""
    hasher = hashlib.blake2b(digest_size=8)
    _add(hasher, value)
    return int.from_bytes(hasher.digest(), "little") >> 1


def _add(into: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        into.update(f"{value.dtype} {tuple(value.shape)}".encode())
        # a copy: one number may have any stride, even where it is contiguous
        flat = value.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
        into.update(flat.view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    elif isinstance(value, Mask):
        into.update(type(value).__name__.encode())
        for field in fields(value):
            _add(into, getattr(value, field.name))
    elif isinstance(value, tuple | list):
        into.update(str(len(value)).encode())
        for part in value:
            _add(into, part)
    elif callable(value):
        into.update(getattr(value, "__qualname__", type(value).__name__).encode())
    else:
        into.update(repr(value).encode() + b";")


def _needs_gradients(call: Call) -> tuple[bool, ...]:
    return tuple(torch.is_grad_enabled() and t.requires_grad for t in (call.q, call.k, call.v))


def _of_all(mine: list[int], spread: Spread, device: torch.device) -> list[list[int]]:
    return exchanged(mine, spread.group, spread.ranks, device, f"the first call of attention of {spread.length} tokens")


def exchanged(
    mine: list[int], group: dist.ProcessGroup | None, ranks: int, device: torch.device, call: str
) -> list[list[int]]:
    """The headers of all ranks: 1 where one refused its call, else 0, and what it was given. call: named by errors."""
    sent = torch.tensor(mine, device=device)
    came = [torch.empty_like(sent) for _ in range(ranks)]
    try:
        dist.all_gather(came, sent, group=group)
    except RuntimeError as error:
        raise lost(error, group, call) from error
    return [row.tolist() for row in came]


def compare(rows: list[list[int]], sizes: tuple[str, ...], others: tuple[str, ...]) -> None:
    """Raise DistributedError unless all headers agree, naming the first of `sizes`, or of `others`, that does not."""
    failed = [rank for rank, row in enumerate(rows) if row[0]]
    if failed:
        raise DistributedError(
            f"every rank must be given a call that is right, but {_listed(failed)} refused its own: see the error there"
        )
    for at, name in enumerate((*sizes, *others), start=1):
        came = [row[at] for row in rows]
        odd = [rank for rank, value in enumerate(came) if value != came[0]]
        if odd and name in sizes:
            raise DistributedError(
                f"ranks must agree on {name}, but rank 0 has {name}={came[0]} and rank {odd[0]} has "
                f"{name}={came[odd[0]]}: give every rank its part of one batch"
            )
        if odd:
            raise DistributedError(
                f"ranks must agree on {name}, but {_listed(odd)} differs from rank 0: give every rank the same"
            )


def _listed(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"each of the ranks {', '.join(map(str, ranks))}"
