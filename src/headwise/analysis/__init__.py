"""Analysis: what the heads of a watched model do, how two runs differ, and what an output owes to its tokens."""

from headwise.analysis.head_names import HeadNames, name_heads
from headwise.analysis.head_table import HeadTable, heat_map
from headwise.analysis.run_comparison import RunComparison, compare
from headwise.analysis.token_flow import relevance, rollout

__all__ = [
    "HeadNames", "HeadTable", "RunComparison", "compare", "heat_map", "name_heads", "relevance", "rollout",
]  # fmt: skip
