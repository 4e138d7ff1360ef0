"""Device summary: what one pass gives of a map, by the Triton kernels of a GPU in the place of torch's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from headwise.errors import BackendError
from headwise.maps.logsum import LogSum
from headwise.maps.lse import rounding_limits
from headwise.maps.score_tiles import wide_type
from headwise.maps.statistics import Summary
from headwise.maps.strips import exact
from headwise.ops.call import Call
from headwise.ops.triton_kernels import why_no_statistics

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap


def summarize(call: Call, lse: Tensor | None = None) -> Summary:
    """The summary of a call's weights, as `maps.statistics.summarize` gives it; BackendError where no kernel does.

    lse: (B, Hq, Lq), as a kernel gave it for this call; the scores are then computed once. None: not known, twice.
    """
    if reason := why_no_statistics(call):
        raise BackendError(f"the Triton kernels cannot compute these statistics: {reason}")
    from headwise.ops.triton_kernels.lse_statistics import all_statistics
    from headwise.ops.triton_kernels.statistics import received, row_statistics

    with exact(call):
        # a map without keys has no scores to compute
        if lse is None or 0 in call.sizes:
            rows = row_statistics(call)
            of_keys = received(call, rows.base, rows.log)
        else:
            limits = rounding_limits(lse, wide_type(call))
            rows, of_keys = all_statistics(call, lse, resolved=limits.resolved, misfit=limits.misfit)
        return Summary(rows.entropy, rows.peak, rows.mass, of_keys, LogSum(rows.base, rows.log, rows.lse))


def keep_summary(m: AttentionMap) -> None:
    """Have a map keep the summary that the kernels give, so that lse, entropy and the like take no pass of torch's.

    No map does so by itself until the kernels have been measured on a device.
    """
    m._ready()
    summary = m._kept["summary"] = summarize(m._call, m._passed_lse)
    m._kept["sums"] = summary.sums
