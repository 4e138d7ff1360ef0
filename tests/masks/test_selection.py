"""A picked mask allows what the whole mask allows at its rows, columns and heads."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.errors import MaskError
from headwise.masks import from_flex, picked, to_flex
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.host_tiles import host_tiles
from headwise.masks.tiles import EMPTY, FULL
from tests.masks.test_mask import NAMES
from tests.masks.test_tiles import exact
from tests.masks.trees import LEAVES, OPEN_LEAVES, SHAPES, Shape, build, dense, scenes, trees


@st.composite
def choices(draw: st.DrawFn, s: Shape) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int, int] | None]:
    """Some rows and columns of a map, in any order and also twice or none, and some of its heads."""
    rows, columns = (draw(st.lists(st.integers(0, length - 1), max_size=length + 1)) for length in (s.Lq, s.Lk))
    heads = None
    if draw(st.booleans()):
        first = draw(st.integers(0, s.H - 1))
        heads = (first, draw(st.integers(first + 1, s.H)), s.H)
    return torch.tensor(rows, dtype=torch.long), torch.tensor(columns, dtype=torch.long), heads


def at_choice(whole: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, heads: tuple[int, int, int] | None):
    """The entries of (B, H, Lq, Lk) that were picked."""
    return whole[:, slice(None) if heads is None else slice(*heads[:2])][:, :, rows][..., columns]


def local(s: Shape, rows: torch.Tensor, columns: torch.Tensor, heads: tuple[int, int, int] | None) -> Shape:
    return s._replace(H=s.H if heads is None else heads[1] - heads[0], Lq=len(rows), Lk=len(columns))


@settings(max_examples=150)
@given(scenes(), st.data())
def test_a_picked_mask_allows_what_the_whole_allows_there(scene, data):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s))
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    wanted = at_choice(dense(build(tree), s), rows, columns, heads)
    assert torch.equal(dense(mask, local(s, rows, columns, heads)), wanted)


@settings(max_examples=100)
@given(scenes(), st.data(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_the_tiles_of_a_picked_mask_are_sure(scene, data, block):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s).filter(lambda c: len(c[0]) and len(c[1])))
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    here = local(s, rows, columns, heads)
    tiles = mask.tiles(here.Lq, here.Lk, block=block, batch=here.B, heads=here.H)
    some, every = exact(at_choice(dense(build(tree), s), rows, columns, heads), block, tuple(tiles.shape[2:]))
    tiles = tiles.expand(some.shape)
    assert not (some & (tiles == EMPTY)).any()
    assert not (~every & (tiles == FULL)).any()
    on_host = host_tiles(mask, Sizes(*here), block, torch.device("cpu"))
    assert torch.equal(on_host.expand(some.shape), tiles)


@pytest.mark.parametrize("kind", LEAVES)
@settings(max_examples=30)
@given(st.data(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_the_tiles_of_a_picked_pattern_are_no_worse_than_those_of_its_pairs(kind, data, block):
    s = data.draw(st.sampled_from(SHAPES))
    tree = data.draw(trees(s, leaves=(kind,), depth=0))
    rows, columns, _ = data.draw(choices(s).filter(lambda c: len(c[0]) and len(c[1])))
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk))
    here = local(s, rows, columns, None)
    some, every = exact(dense(mask, here), block, (-(-here.Lq // block[0]), -(-here.Lk // block[1])))
    tiles = mask.tiles(here.Lq, here.Lk, block=block, batch=s.B, heads=s.H)
    # a window and ids that are out of order are judged by their lowest and highest position
    if kind not in ("documents", "window"):
        assert torch.equal(tiles.expand(some.shape), some.to(torch.int8) + every.to(torch.int8))


@given(scenes(), st.data())
def test_picked_masks_are_picked_again_and_joined(scene, data):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s).filter(lambda c: len(c[0]) and len(c[1])))
    here = local(s, rows, columns, heads)
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    wanted = at_choice(dense(build(tree), s), rows, columns, heads)
    assert torch.equal(dense(~mask & hw.causal(), here), ~wanted & dense(hw.causal(), here))
    again = data.draw(choices(here))
    twice = picked(mask, *again[:2], sizes=(here.Lq, here.Lk), heads=again[2])
    assert torch.equal(dense(twice, local(here, *again)), at_choice(wanted, *again))


@given(scenes(), st.data())
def test_a_block_of_a_picked_mask_is_a_block_of_its_pairs(scene, data):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s))
    here = local(s, rows, columns, heads)
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    parts = [slice(start := data.draw(st.integers(0, n)), data.draw(st.integers(start, n))) for n in here]
    grid = Grid.whole(Sizes(*here), torch.device("cpu")).part(*parts[2:], samples=parts[0], heads=parts[1])
    wanted = at_choice(dense(build(tree), s), rows, columns, heads)[tuple(parts)]
    assert torch.equal(mask.allows(grid).expand(wanted.shape), wanted)


@given(scenes(), st.data())
def test_a_picked_mask_at_other_positions_is_the_whole_mask_at_them(scene, data):
    s, tree = scene
    rows, columns = (torch.tensor(data.draw(st.permutations(range(n)))) for n in (s.Lq, s.Lk))
    i, j = (torch.tensor(data.draw(st.lists(st.integers(-3, 9), min_size=n, max_size=n))) for n in (s.Lq, s.Lk))
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk)).at(i[rows], j[columns])
    assert torch.equal(dense(mask, s), dense(build(tree).at(i, j), s)[:, :, rows][..., columns])


@settings(max_examples=10)
@given(scenes(leaves=OPEN_LEAVES, depth=2), st.data())
def test_flex_attention_is_told_the_same(scene, data):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s).filter(lambda c: len(c[0]) and len(c[1])))
    here = local(s, rows, columns, heads)
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    asked = to_flex(mask, here.Lq, here.Lk, batch=here.B, heads=here.H)
    assert torch.equal(create_mask(asked, here.B, here.H, here.Lq, here.Lk, device="cpu"), dense(mask, here))


@given(scenes(leaves=OPEN_LEAVES), st.data())
def test_a_picked_mask_is_a_mask_like_the_others(scene, data):
    s, tree = scene
    rows, columns, heads = data.draw(choices(s))
    mask = picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk), heads=heads)
    here = local(s, rows, columns, heads)
    assert pickle.loads(pickle.dumps(mask)) == copy.deepcopy(mask) == mask
    leaves, spec = pytree.tree_flatten(mask)
    assert pytree.tree_unflatten(leaves, spec) == mask
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
    if "<" not in repr(mask):
        assert eval(repr(mask), {**NAMES, "picked": picked, "torch": torch}) == mask
    assert mask.to("meta").allowed(here.Lq, here.Lk, batch=s.B, heads=here.H, device="meta").is_meta
    index = torch.tensor(data.draw(st.lists(st.integers(0, s.B - 1), min_size=1, max_size=4)))
    assert torch.equal(dense(mask.reorder(index), here._replace(B=len(index))), dense(mask, here)[index])
    assert mask.batch == build(tree).batch
    padding = mask.padding(here.Lk)
    assert padding is None or not dense(mask, here)[~padding[:, None, None].expand(here)].any()


def test_no_mask_stays_no_mask():
    assert picked(None, torch.arange(3), torch.arange(4), sizes=(5, 7)) is None


def test_what_does_not_fit_is_refused_with_its_numbers():
    rows, columns = torch.tensor([0, 4]), torch.tensor([1, 2, 6])
    with pytest.raises(MaskError, match=r"rows must lie in 0\.\.3, but 4 came: the whole map has 4"):
        picked(hw.causal(), rows, columns, sizes=(4, 7))
    with pytest.raises(MaskError, match=r"columns must lie in 0\.\.6, but -1 came"):
        picked(hw.causal(), rows, columns - 2, sizes=(5, 7))
    with pytest.raises(MaskError, match=r"0 <= first <= past <= all; got \(3, 2, 6\)"):
        picked(hw.causal(), rows, columns, sizes=(5, 7), heads=(3, 2, 6))
    with pytest.raises(MaskError, match=r"rows must be one index to each, but came as \(1, 2\)"):
        picked(hw.causal(), rows[None], columns, sizes=(5, 7))
    mask = picked(hw.allowed(torch.ones(1, 6, 5, 7).bool()), rows, columns, sizes=(5, 7), heads=(1, 3, 6))
    with pytest.raises(MaskError, match=r"to each of the call's 4, but 3 came: pick 4 columns"):
        mask.allowed(2, 4)
    with pytest.raises(MaskError, match=r"H=5"):
        mask.allowed(2, 3, heads=5)
    with pytest.raises(MaskError, match=r"keys\(keep\) must be \(B=1, Lk=7\), but came as \(1, 3\)"):
        picked(hw.keys(torch.ones(1, 3, dtype=torch.bool)), rows, columns, sizes=(5, 7)).allowed(2, 3)


@pytest.mark.parametrize("kind", ["allowed", "rule", "flex"])
def test_a_mask_that_differs_by_head_is_asked_for_the_heads_that_were_picked(kind):
    s = Shape(B=2, H=6, Lq=5, Lk=7)
    t = torch.rand(*s, generator=torch.Generator().manual_seed(1)) < 0.5

    def by_head(b, h, i, j):
        return (b + h * h + i + 2 * j) % 5 < 2

    whole = {"allowed": hw.allowed(t), "rule": hw.rule(by_head), "flex": from_flex(by_head)}[kind]
    rows, columns, heads = torch.tensor([4, 1, 2]), torch.tensor([0, 6, 3, 2]), (2, 5, 6)
    mask = picked(whole, rows, columns, sizes=(5, 7), heads=heads)
    here, wanted = local(s, rows, columns, heads), at_choice(dense(whole, s), rows, columns, heads)
    assert torch.equal(dense(mask, here), wanted)
    block = Grid.whole(Sizes(*here), torch.device("cpu")).part(slice(1, 3), slice(0, 2), heads=slice(1, 3))
    assert torch.equal(mask.allows(block), wanted[:, 1:3, 1:3, :2])
    assert torch.equal(mask.tiles(3, 4, block=(1, 1), batch=2, heads=3) == FULL, wanted)
    asked = to_flex(mask, 3, 4, batch=2, heads=3)
    assert torch.equal(create_mask(asked, 2, 3, 3, 4, device="cpu"), wanted)
