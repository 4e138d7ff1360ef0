"""Small run: a plan run once with sizes so small that every number can be shown, and with telling arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, evaluated
from headwise.dataflow import Follower, Source
from headwise.recording import Record, record
from headwise.tracing.probe_runs import PROBES, calling, named_arguments

__all__ = ["Small", "run_small"]

# what each symbol is given first, by what it means
FIRST = {
    "batch": 1, "queries": 3, "keys": 4, "heads": 2, "key_heads": 2, "groups": 2, "head_width": 2, "value_width": 2,
    "width": 4, "parameter": 4,
}  # fmt: skip
# then, where the code refuses these: what is larger
LARGER: tuple[dict[str, int], ...] = (
    {"head_width": 4, "value_width": 4, "width": 8},
    {"head_width": 4, "value_width": 4, "width": 8, "parameter": 8},
    {"head_width": 4, "value_width": 4, "width": 16, "heads": 4, "parameter": 16},
    {"queries": 4, "keys": 4, "parameter": 2},
)


@dataclass(frozen=True)
class Small:
    """A run. sizes: of each symbol; follower: where its tensors came from and how they moved."""

    record: Record
    follower: Follower
    sizes: dict[str, int]


def run_small(plan: Plan, *, own: Sequence[str], equal: Mapping[str, str]) -> Small:
    """The first run that does not fail, from the smallest sizes to the plan's own; if all fail, what came furthest.

    own: files that are the person's own. equal: symbols that have the size of another.
    """
    furthest: Small | None = None
    for sizes in _sizes(plan, equal):
        try:
            done = _run(plan, sizes, own)
        except Exception:  # noqa: BLE001  a constructor that refuses these sizes may take the next
            continue
        if done.record.failure is None:
            return done
        if furthest is None or len(done.record.operations) > len(furthest.record.operations):
            furthest = done
    # building failed with all of them, as it then does when it is traced
    return furthest if furthest is not None else _run(plan, plan.sizes(0), own)


def _sizes(plan: Plan, equal: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """The sizes to try, in order."""
    for more in ({}, *LARGER):
        sizes = {each.name: _least(each, (FIRST | more).get(each.meaning, 4)) for each in plan.symbols}
        sizes |= {name: sizes[other] for name, other in equal.items()}
        for each in plan.symbols:
            if each.equals:
                sizes[each.name] = evaluated(each.equals, sizes)
        yield sizes
    for probe in (-1, *range(PROBES)):
        sizes = dict(plan.sizes(probe))
        yield sizes | {name: sizes[other] for name, other in equal.items()}


def _least(symbol: Any, size: int) -> int:
    if symbol.fixed is not None:
        return int(symbol.fixed)
    size = max(size, symbol.least)
    return size + size % 2 if symbol.even else size


def _run(plan: Plan, sizes: dict[str, int], own: Sequence[str]) -> Small:
    target = plan.build(sizes)
    args, options = plan.arguments(sizes)
    _open_mask(plan, options)
    model = target if isinstance(target, nn.Module) else None
    known = {id(each): Source("argument", name) for name, each in named_arguments(plan, args, options).items()}
    if model is not None:
        known |= {id(each): Source("parameter", name) for name, each in model.named_parameters(remove_duplicate=False)}
        known |= {id(each): Source("buffer", name) for name, each in model.named_buffers(remove_duplicate=False)}
    follower = Follower(known)
    with torch.no_grad():
        call = calling(target, args, options)
        done = record(call, model=model, user_files=own, values=True, observe=follower.observe)
    return Small(done, follower, sizes)


def _open_mask(plan: Plan, options: dict[str, Any]) -> None:
    """Give a mask the form that a person would draw: no token looks ahead; of one row of keys, the last is hidden."""
    mask = plan.call.get("_mask")
    if not isinstance(mask, Mapping) or mask["means"] == "lengths":
        return
    made = options.get(str(mask["argument"]))
    if not isinstance(made, Tensor) or made.ndim == 0:
        return
    rows, keys = (made.shape[-2] if made.ndim > 1 else 1), made.shape[-1]
    attend = torch.ones(made.shape, dtype=torch.bool)
    if rows > 1:
        attend = attend.tril(keys - rows)
    elif keys > 1:
        attend[..., -1] = False
    if mask["means"] == "additive":
        options[str(mask["argument"])] = torch.zeros(made.shape, dtype=made.dtype).masked_fill(~attend, float("-inf"))
    else:
        options[str(mask["argument"])] = (attend if mask["means"] == "attend" else ~attend).to(made.dtype)
