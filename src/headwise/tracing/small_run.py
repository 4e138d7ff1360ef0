"""Small run: one run of a plan with sizes so small that every number can be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, evaluated
from headwise.dataflow import Follower, Origin
from headwise.recording import Record, record
from headwise.tracing.probe_runs import PROBES, calling, named_arguments

__all__ = ["Small", "run_small"]

# the first size to try, by the meaning of the symbol
FIRST = {
    "batch": 1, "queries": 3, "keys": 4, "heads": 2, "key_heads": 2, "groups": 2, "head_width": 2, "value_width": 2,
    "width": 4, "parameter": 4,
}  # fmt: skip
# larger sizes, where the code refuses these
LARGER: tuple[dict[str, int], ...] = (
    {"head_width": 4, "value_width": 4, "width": 8},
    {"head_width": 4, "value_width": 4, "width": 8, "parameter": 8},
    {"head_width": 4, "value_width": 4, "width": 16, "heads": 4, "parameter": 16},
    {"queries": 4, "keys": 4, "parameter": 2},
)


@dataclass(frozen=True)
class Small:
    """A run with small sizes. sizes: of each symbol; follower: the origins and moves of its tensors."""

    record: Record
    follower: Follower
    sizes: dict[str, int]


def run_small(plan: Plan, *, user_files: Sequence[str], equal: Mapping[str, str], fails: bool = False) -> Small:
    """The first run without a failure, from the smallest sizes to those of the plan; if all fail, the longest run.

    user_files: files of user code. equal: symbols with the size of another. fails: whether the code fails with sizes
    that all differ; runs where two sizes happen to be equal, and hide it, are then left out.
    """
    furthest: Small | None = None
    smallest: Small | None = None
    for sizes in _sizes(plan, equal):
        try:
            run = _run(plan, sizes, user_files)
        except Exception:  # noqa: BLE001  a constructor that refuses these sizes may take the next
            continue
        if run.record.failure is None:
            if not fails:
                return run
            smallest = smallest or run
            continue
        if furthest is None or len(run.record.operations) > len(furthest.record.operations):
            furthest = run
    # the target cannot be built with any of these sizes
    return furthest or smallest or _run(plan, plan.sizes(0), user_files)


def _sizes(plan: Plan, equal: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """The sizes to try, in order."""
    for more in ({}, *LARGER):
        sizes = {symbol.name: _least(symbol, (FIRST | more).get(symbol.meaning, 4)) for symbol in plan.symbols}
        sizes |= {name: sizes[equal_name] for name, equal_name in equal.items()}
        for symbol in plan.symbols:
            if symbol.equals:
                sizes[symbol.name] = evaluated(symbol.equals, sizes)
        yield sizes
    for probe in (-1, *range(PROBES)):
        sizes = dict(plan.sizes(probe))
        yield sizes | {name: sizes[equal_name] for name, equal_name in equal.items()}


def _least(symbol: Any, size: int) -> int:
    if symbol.fixed is not None:
        return int(symbol.fixed)
    size = max(size, symbol.least)
    return size + size % 2 if symbol.even else size


def _run(plan: Plan, sizes: dict[str, int], user_files: Sequence[str]) -> Small:
    target = plan.build(sizes)
    args, options = plan.arguments(sizes)
    _open_mask(plan, options)
    model = target if isinstance(target, nn.Module) else None
    origins = {id(each): Origin("argument", name) for name, each in named_arguments(plan, args, options).items()}
    if model is not None:
        origins |= {
            id(param): Origin("parameter", name) for name, param in model.named_parameters(remove_duplicate=False)
        }
        origins |= {id(each): Origin("buffer", name) for name, each in model.named_buffers(remove_duplicate=False)}
    follower = Follower(origins)
    with torch.no_grad():
        call = calling(target, args, options)
        recording = record(call, model=model, user_files=user_files, values=True, observe=follower.observe)
    return Small(recording, follower, sizes)


def _open_mask(plan: Plan, options: dict[str, Any]) -> None:
    """Fill a mask: causal where it has rows of queries; with one row of keys, the last key is masked."""
    mask = plan.call.get("_mask")
    if not isinstance(mask, Mapping) or mask["means"] == "lengths":
        return
    tensor = options.get(str(mask["argument"]))
    if not isinstance(tensor, Tensor) or tensor.ndim == 0:
        return
    rows, keys = (tensor.shape[-2] if tensor.ndim > 1 else 1), tensor.shape[-1]
    attend = torch.ones(tensor.shape, dtype=torch.bool)
    if rows > 1:
        attend = attend.tril(keys - rows)
    elif keys > 1:
        attend[..., -1] = False
    if mask["means"] == "additive":
        options[str(mask["argument"])] = torch.zeros(tensor.shape, dtype=tensor.dtype).masked_fill(
            ~attend, float("-inf")
        )
    else:
        options[str(mask["argument"])] = (attend if mask["means"] == "attend" else ~attend).to(tensor.dtype)
