"""Device summary: what one pass gives of a map, by the Triton kernels of a GPU in the place of torch's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.errors import BackendError
from headwise.maps.logsum import LogSum
from headwise.maps.statistics import Summary
from headwise.maps.strips import exact
from headwise.ops.call import Call
from headwise.ops.triton_kernels import why_no_statistics

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap


def summarize(call: Call) -> Summary:
    """The summary of a call's weights, as `maps.statistics.summarize` gives it; BackendError where no kernel does."""
    if reason := why_no_statistics(call):
        raise BackendError(f"the Triton kernels cannot compute these statistics: {reason}")
    from headwise.ops.triton_kernels.statistics import received, row_statistics

    with exact(call):
        rows = row_statistics(call)
        sums = LogSum(rows.base, rows.log, rows.lse)
        return Summary(rows.entropy, rows.peak, rows.mass, received(call, rows.base, rows.log), sums)


def keep_summary(m: AttentionMap) -> None:
    """Have a map keep the summary that the kernels give, so that lse, entropy and the like take no pass of torch's.

    No map does so by itself until the kernels have been measured on a device.
    """
    m._ready()
    summary = m._kept["summary"] = summarize(m._call)
    if m._given is None:
        m._kept["sums"] = summary.sums
