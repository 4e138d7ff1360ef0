"""Write once: a file of maps that ranks share, written by the first of them, and known to be there by all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwise.errors import DistributedError
from headwise.maps.weights import WeightMap


def write_once(maps: Iterable[WeightMap], write: Callable[[], object], name: str) -> None:
    """Call `write` on the first of the ranks that share some maps, and wait for it on all; without ranks, here.

    Where it fails, each rank raises: the first its own error, the others DistributedError. name: of what is written.
    """
    shared = max(maps, key=lambda m: len(m.axes.shared), default=None)
    if shared is None or not shared.axes.shared:
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
