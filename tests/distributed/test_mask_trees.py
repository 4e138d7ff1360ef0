"""One set of numbers on any number of ranks, for masks that nobody has written down."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import headwise as hw
from headwise.testing import assert_within_budget
from tests.distributed.calls import joined, run
from tests.distributed.ranks import on_ranks
from tests.distributed.test_needed_keys import squares
from tests.masks.trees import OPEN_LEAVES, build

D, Dv = 4, 6
# the error of a few numbers is a matter of luck
DRAWS = 8


def of_all_draws(attend: Callable[..., Tensor], shape: Any, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Outputs and gradients (DRAWS·B, H, L, D) of several draws of q, k, v and the gradient of the outputs."""
    found = []
    for seed in range(DRAWS):
        made = torch.Generator().manual_seed(seed)
        sizes = ((shape.H, D), (1, D), (1, Dv), (shape.H, Dv))
        drawn = (torch.randn(shape.B, heads, shape.Lq, width, generator=made) for heads, width in sizes)
        found.append(run(attend, tuple(map(of, drawn)), {}))
    return {name: torch.cat([each[name] for each in found]) for name in found[0]}


def on_rank(_rank: int, shape: Any, tree: Any, layout: str, way: str) -> dict[str, Tensor]:
    mask = build(tree)
    held = hw.distributed.spread(shape.Lq, dist.group.WORLD, mask=mask, layout=layout)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return hw.distributed.attention(q, k, v, spread=held, way=way, mask=mask)

    return {**of_all_draws(attend, shape, lambda t: held.local(t, dim=2)), "tokens": held.tokens}


@settings(max_examples=50, deadline=None)
@given(
    squares((*OPEN_LEAVES, "rule", "flex")),
    st.sampled_from(["auto", "balanced", "contiguous", "zigzag", "striped"]),
    st.sampled_from(["gather", "heads", "queries", "ring"]),
    st.integers(1, 4),
)
def test_any_mask_gives_the_numbers_of_one_process(scene: tuple[Any, Any], layout: str, way: str, ranks: int) -> None:
    shape, tree = scene
    # a rank has one head at least
    assume(way != "heads" or ranks <= shape.H)
    found = joined(on_ranks(ranks, on_rank, shape, tree, layout, way))
    allowed = build(tree).allowed(shape.Lq, shape.Lk, batch=shape.B, heads=shape.H)
    exact, plain = (
        of_all_draws(
            lambda q, k, v: hw.attention(q, k, v, mask=allowed, backend="reference"), shape, lambda t, d=dtype: t.to(d)
        )
        for dtype in (torch.float64, torch.float32)
    )
    for name, got in found.items():
        if exact[name].any():
            assert_within_budget(got, exact[name], plain[name])
        else:
            # of weights that are all 0 or 1, scores have no gradient: partial results leave rounding errors of it
            assert float(got.abs().max()) < 1e-5
