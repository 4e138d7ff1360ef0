"""Device summary: what one pass gives of a map, by the Triton kernels of a GPU in the place of torch's operations."""

from __future__ import annotations

from dataclasses import replace

from headwise.errors import BackendError
from headwise.maps.logsum import LogSum
from headwise.maps.statistics import Summary
from headwise.maps.strips import exact
from headwise.ops.call import Call
from headwise.ops.triton_kernels import are_taken, why_no_statistics


def summarize(call: Call) -> Summary:
    """The summary of a call's weights, as `maps.statistics.summarize` gives it; BackendError where no kernel does."""
    if reason := why_no_statistics(call):
        raise BackendError(f"the Triton kernels cannot compute these statistics: {reason}")
    from headwise.ops.triton_kernels.statistics import received, row_statistics

    # what a map keeps is O(L): the table of its mask's tiles may be more
    call = replace(call, prepared={})
    with exact(call):
        rows = row_statistics(call)
        sums = LogSum(rows.base, rows.log, rows.lse)
        return Summary(rows.entropy, rows.peak, rows.mass, received(call, rows), sums)


def is_taken(call: Call) -> bool:
    """Whether a map takes its summary from the kernels by itself."""
    if call.q.device.type != "cuda" or why_no_statistics(call):
        return False
    from headwise.ops.triton_kernels.statistics import block_of

    return are_taken(call, block_of(call))
