"""Tiles never call empty what holds a True, nor full what holds a False."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.errors import MaskError
from headwise.masks.tiles import EMPTY, FULL, MIXED, ROWS
from tests.masks import oracle
from tests.masks.trees import LEAVES, Shape, build, dense, placed_leaves, scenes


@settings(max_examples=300)
@given(scenes(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_a_tile_called_empty_is_empty_and_one_called_full_is_full(scene, block):
    s, tree = scene
    assert_tiles_are_sure(build(tree), s, block)


def assert_tiles_are_sure(mask: hw.Mask, s: Shape, block: tuple[int, int]) -> None:
    tiles = mask.tiles(s.Lq, s.Lk, block=block, batch=s.B, heads=s.H)
    counts = (-(-s.Lq // block[0]), -(-s.Lk // block[1]))
    assert tiles.shape[2:] == counts
    some, every = exact(dense(mask, s), block, counts)
    tiles = tiles.expand(s.B, s.H, *counts)
    assert not (some & (tiles == EMPTY)).any()
    assert not (~every & (tiles == FULL)).any()
    assert tiles.unique().tolist() == [kind for kind in (EMPTY, MIXED, FULL) if (tiles == kind).any()]


@settings(max_examples=200)
@given(scenes(depth=0), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_the_tiles_of_a_single_pattern_are_exact(scene, block):
    s, tree = scene
    # equal ids may lie anywhere, so documents only compare the range of each tile
    assume(tree[0] != "documents")
    mask = build(tree)
    tiles = mask.tiles(s.Lq, s.Lk, block=block, batch=s.B, heads=s.H)
    some, every = exact(dense(mask, s), block, tuple(tiles.shape[2:]))
    assert torch.equal(tiles.expand(some.shape), some.to(torch.int8) + every.to(torch.int8))


def exact(allowed: torch.Tensor, block: tuple[int, int], counts: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Any and all of each tile, one by one."""
    shape = (*allowed.shape[:2], *counts)
    some, every = torch.empty(shape, dtype=torch.bool), torch.empty(shape, dtype=torch.bool)
    for row in range(counts[0]):
        for column in range(counts[1]):
            rows = slice(row * block[0], (row + 1) * block[0])
            tile = allowed[:, :, rows, column * block[1] : (column + 1) * block[1]].flatten(2)
            some[:, :, row, column], every[:, :, row, column] = tile.any(2), tile.all(2)
    return some, every


def test_documents_in_order_have_exact_tiles():
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert hw.documents(ids).tiles(9, 9, block=(3, 3))[0, 0].tolist() == [[2, 0, 0], [0, 2, 1], [0, 1, 1]]


def test_a_rule_is_asked_for_one_row_of_tiles_at_a_time():
    asked = []

    def watched(_b, _h, i, j):
        asked.append((i.numel(), j.numel()))
        return j <= i

    assert torch.equal(hw.rule(watched).tiles(9, 8, block=(4, 4)), hw.causal().tiles(9, 8, block=(4, 4)))
    assert asked == [(4, 8), (4, 8), (1, 8)]


@pytest.mark.parametrize("kind", LEAVES)
@settings(max_examples=30)
@given(st.data(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_every_pattern_may_sit_at_other_positions_in_another_order(kind, data, block):
    s, tree = data.draw(placed_leaves(kind))
    mask = build(tree)
    assert dense(mask, s).tolist() == oracle.allowed(tree, s)
    assert_tiles_are_sure(mask, s, block)


@pytest.mark.parametrize("block", [(0, 4), (4, -1)])
def test_a_tile_has_at_least_one_query_and_one_key(block):
    with pytest.raises(MaskError, match=rf"both must be 1 or more; got \({block[0]}, {block[1]}\)"):
        hw.causal().tiles(5, 7, block=block)


def test_the_tiles_of_a_rule_are_exact_where_one_is_taller_than_what_is_asked_at_once():
    Lq, Lk, block = 2 * ROWS + 37, 11, (ROWS + 61, 4)
    mask = hw.rule(lambda b, h, i, j: (i * 7 + j * 3) % 41 < 40 - j)
    tiles = mask.tiles(Lq, Lk, block=block)
    some, every = exact(dense(mask, Shape(1, 1, Lq, Lk)), block, (2, 3))
    assert torch.equal(tiles > EMPTY, some)
    assert torch.equal(tiles == FULL, every)
    late = hw.rule(lambda b, h, i, j: i == Lk - 1)  # the last query stands at the last key
    assert late.tiles(Lq, Lk, block=(Lq, 4)).tolist() == [[[[1, 1, 1]]]]
