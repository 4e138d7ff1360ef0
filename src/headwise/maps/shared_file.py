"""Shared file: maps that ranks share, written to one file by the first rank; the others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwise.errors import ArgumentError, DistributedError
from headwise.maps.weights import WeightMap


def write_once(maps: Iterable[WeightMap], write: Callable[[], object], name: str) -> None:
    """Call `write` on the first of the ranks that share some maps, and wait for it on all; without ranks, here.

    Where it fails, each rank raises: the first its own error, the others DistributedError. name: of what is written.
    ArgumentError where the maps are shared by different groups of ranks, which have no first rank in common.
    """
    shared = _shared_by_most(list(maps), name)
    if shared is None:
        write()
        return
    # none may find the file there before it has looked whether it may be written
    shared.axes.agree(f"a file of it, {name}")
    failed: Exception | None = None
    if shared.axes.is_first:
        try:
            write()
        except Exception as error:  # noqa: BLE001  # raised below, once the other ranks know
            failed = error
    is_lost = bool(shared.axes.maximum(float(failed is not None), shared.device))
    if failed is not None:
        raise failed
    if is_lost:
        raise DistributedError(f"the first rank must write {name} for all, but could not: see its error")


def _shared_by_most(maps: list[WeightMap], name: str) -> WeightMap | None:
    """The map that the most ranks share, if these are the ranks of all others too; None: none is shared."""
    widest = max(maps, key=lambda m: len(m.axes.shared), default=None)
    if widest is None or not widest.axes.shared:
        return None
    for m in maps:
        if any(all(axis.group is not covered.group for covered in widest.axes.shared) for axis in m.axes.shared):
            axes = [
                " and ".join(f"{axis.length} over {axis.ranks} ranks" for axis in w.axes.shared) for w in (widest, m)
            ]
            raise ArgumentError(
                f"the maps in {name} must be shared by the same ranks, but one shares {axes[0]} and another {axes[1]} "
                "of another group: write each into a file of its own"
            )
    return widest
