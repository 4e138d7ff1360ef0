"""Strips hold every pair that may attend once, and little else."""

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.masks import Mask, as_mask
from headwise.masks.coordinates import Sizes
from headwise.ops.fused_strips import MOST_PAIRS_KEPT
from headwise.ops.strips import Bounds, Strip, strips
from tests.cases import MASKS, SHAPES, Shape, dense_mask

MOST = 16


def counted(found: tuple[Strip, ...], shape: Shape, groups: int) -> tuple[Tensor, Tensor]:
    """How many strips hold each pair, and whether one of them asks the mask about it: (B, Hq, Lq, Lk)."""
    held = torch.zeros(shape.B, shape.Hq, shape.Lq, shape.Lk, dtype=torch.int64)
    asked = torch.zeros_like(held, dtype=torch.bool)
    for strip in found:
        heads = strip.heads(groups)
        for run in strip.columns:
            held[strip.samples, heads, strip.rows, run] += 1
        for run in strip.mixed:
            asked[strip.samples, heads, strip.rows, run] = True
    return held, asked


@pytest.mark.usefixtures("tiny_tiles")
class TestInTinyTiles:
    @pytest.mark.parametrize("mask", MASKS)
    @pytest.mark.parametrize("name", SHAPES)
    def test_each_pair_that_may_attend_is_in_one_strip_and_asked_for_unless_all_are_open(
        self, name: str, mask: str
    ) -> None:
        shape = SHAPES[name]
        groups = shape.Hq // shape.Hk
        given: Mask | None = as_mask(MASKS[mask](shape))
        sizes = Sizes(shape.B, shape.Hq, shape.Lq, shape.Lk)
        found = [strips(given, sizes, groups, Bounds(MOST, spare=spare)) for spare in (0, 40, 1 << 20)]
        for each in found:
            held, asked = counted(each, shape, groups)
            open_pairs = dense_mask(given, shape)
            pairs = torch.ones(held.shape, dtype=torch.bool) if open_pairs is None else open_pairs.expand(held.shape)
            assert int(held.max() if held.numel() else 0) <= 1
            assert bool((held[pairs] == 1).all())
            assert bool((pairs | asked)[held == 1].all())
        totals = [each.total for each in found]
        assert [total.pairs for total in totals] == sorted(total.pairs for total in totals)

    def test_scores_of_a_strip_are_as_few_as_was_asked_or_one_row_of_tiles(self) -> None:
        for strip in strips(None, Sizes(3, 4, 9, 11), 2, Bounds(100)):
            assert torch.Size(strip.shape).numel() <= 100 or strip.shape[:2] == (1, 2 * 2)

    def test_runs_of_columns_leave_out_what_lies_between(self) -> None:
        # the first two keys, and the two most recent ones
        mask = hw.prefix(2) & hw.causal() | hw.window(keys=2)
        last = strips(mask, Sizes(1, 1, 12, 12), 1, Bounds(MOST))[-1]
        assert last.rows == slice(10, 12)
        assert last.columns == (slice(0, 2), slice(8, 12))


def test_the_cost_of_a_window_is_linear_in_the_length() -> None:
    shares = [
        strips(hw.window(keys=128), Sizes(1, 8, L, L), 1, Bounds(1 << 22)).total.pairs / (8 * L * L)
        for L in (2048, 8192)
    ]
    assert shares[0] / shares[1] == pytest.approx(4, rel=0.05)


def test_padding_of_a_sample_is_not_computed_and_that_of_another_not_touched() -> None:
    sizes = Sizes(2, 4, 512, 512)
    found = strips(hw.lengths([128, 512]), sizes, 2, Bounds(1 << 22))
    assert [(s.samples, s.columns) for s in found] == [
        (slice(0, 1), (slice(0, 128),)),
        (slice(1, 2), (slice(0, 512),)),
    ]
    assert found.total.pairs == 4 * 512 * (128 + 512)


def test_samples_whose_tiles_agree_are_computed_together() -> None:
    found = strips(hw.lengths([200, 250]), Sizes(2, 4, 256, 256), 2, Bounds(1 << 22))
    assert [strip.samples for strip in found] == [slice(0, 2)]


def test_a_strip_less_may_take_as_many_pairs_more_as_it_costs() -> None:
    sizes, causal = Sizes(1, 8, 512, 512), hw.causal() & hw.window(keys=512)
    found = {
        spare: strips(causal, sizes, 1, Bounds(1 << 24, rows=2048, spare=spare)) for spare in (0, 1 << 17, 1 << 20)
    }
    assert [strip.rows.stop for strip in found[0]] == [128, 256, 384, 512]
    # two rows of tiles see one tile more: 8 heads of 128 x 128 pairs, which is 1 << 17
    assert [(strip.rows, strip.columns, strip.mixed) for strip in found[1 << 17]] == [
        (slice(0, 256), (slice(0, 256),), (slice(0, 256),)),
        (slice(256, 512), (slice(0, 512),), (slice(256, 512),)),
    ]
    assert [strip.rows for strip in found[1 << 20]] == [slice(0, 512)]
    # what lies between runs of columns is never computed
    apart = hw.prefix(128) & hw.causal() | hw.window(keys=128) & hw.causal()
    runs = [strip.columns for strip in strips(apart, sizes, 1, Bounds(1 << 24, rows=2048, spare=1 << 17))]
    assert runs[-1] == (slice(0, 128), slice(256, 512))


def test_rows_of_other_kinds_stay_apart_where_nothing_is_to_be_spared_and_masks_stay_small_enough_to_be_kept() -> None:
    one_head = Sizes(1, 1, 2048, 2048)
    diagonal = hw.causal() & hw.window(keys=4096)
    for strip in strips(diagonal, one_head, 1, Bounds(1 << 24, rows=2048, spare=1 << 17)):
        (mixed,) = strip.mixed
        assert (strip.rows.stop - strip.rows.start) * (mixed.stop - mixed.start) <= MOST_PAIRS_KEPT
    # the first two rows of tiles see all of the first tile, the others a part of it
    kinds = hw.lengths(torch.arange(512).clamp(max=200)[None] + 56)
    apart = strips(kinds, Sizes(1, 1, 512, 512), 1, Bounds(1 << 24, rows=2048))
    assert [strip.rows.start for strip in apart] == [0, 128, 256]


@pytest.mark.parametrize(
    ("L", "pairs"), [(512, 8 * (256**2 + 256 * 512)), (576, 8 * (288**2 + 288 * 576)), (640, None), (768, None)]
)
def test_a_causal_square_is_cut_in_halves_where_that_spares_an_eighth(L: int, pairs: int | None) -> None:
    found = strips(hw.causal(), Sizes(1, 8, L, L), 2, Bounds(1 << 24), has_squares=True)
    assert [strip.is_causal for strip in found] == ([True] if pairs is None else [True, False])
    assert found.covers_rows(Sizes(1, 8, L, L))
    if pairs is not None:
        # torch's kernel computes all of 256 columns, and of 512
        assert found.total.pairs == pairs


def test_matrix_products_take_many_rows_of_few_heads_and_torch_s_kernel_all_heads() -> None:
    sizes = Sizes(1, 8, 8192, 8192)
    shapes = {strips(None, sizes, 1, Bounds(1 << 22, fewest=fewest))[0].shape for fewest in (None, 128)}
    assert shapes == {(1, 512, 8192), (4, 128, 8192)}
