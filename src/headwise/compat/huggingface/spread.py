"""Models of transformers on a sequence that is spread over ranks: what `with spread:` around them asks of a call."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import ArgumentError, CacheError
from headwise.ops.active_spread import SpreadSequence


def check_spread(
    spread: SpreadSequence, query: Tensor, key: Tensor, position_ids: Tensor | None, *, is_asked: bool
) -> None:
    """Raise where a call, q and k (B, H, L of this rank, D), does not hold this rank's tokens at their positions."""
    mine = spread.positions.shape[0]
    if query.shape[2] != mine or key.shape[2] != mine:
        raise CacheError(
            f"a model in `with spread:` must be given the {mine} tokens of this rank, of {spread.length}, and no "
            f"cache, but Lq={query.shape[2]} and Lk={key.shape[2]} came: give spread.local(ids) and use_cache=False"
        )
    if is_asked:
        raise ArgumentError("output_attentions=True asks for weights of all ranks: use hw.watch on one process")
    if position_ids is None or not bool((position_ids == spread.positions.to(position_ids.device)).all()):
        came = "no position_ids reached attention" if position_ids is None else "others reached attention"
        raise ArgumentError(
            f"a model in `with spread:` must place its tokens where they sit in the whole sequence, but {came}: give "
            "it position_ids=spread.positions[None]"
        )
