"""No key that may be attended to is left out of what a rank needs, and none that simple masks hide is in it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.distributed import needed_keys as needs_file
from headwise.distributed.layouts import contiguous, striped, zigzag
from headwise.distributed.needed_keys import needs
from headwise.errors import MaskError
from tests.masks.trees import OPEN_LEAVES, Shape, build, dense, trees

LAYOUTS = st.sampled_from([contiguous, zigzag, striped])


@st.composite
def squares(draw: st.DrawFn, leaves: tuple[str, ...]) -> tuple[Shape, tuple]:
    length = draw(st.integers(1, 9))
    s = Shape(B=2, H=3, Lq=length, Lk=length)
    return s, draw(trees(s, leaves=leaves, depth=2))


@settings(max_examples=200)
@given(squares((*OPEN_LEAVES, "rule", "flex")), LAYOUTS, st.integers(1, 5))
def test_every_key_that_may_be_attended_to_is_needed(scene, make, ranks):
    s, tree = scene
    layout = make(s.Lq, ranks)
    need = needs(build(tree), layout, batch=s.B, heads=s.H)
    seen = dense(build(tree), s).flatten(0, 1).any(0)
    for rank, held in enumerate(layout.tokens):
        columns = set(seen[held].any(0).nonzero()[:, 0].tolist())
        found = torch.cat([layout.tokens[s][need[rank][s]] for s in range(ranks)])
        assert columns <= set(found.tolist())
        assert torch.equal(need.columns[rank][torch.cat(need.places(rank))], found)
        assert (need.columns[rank].diff() > 0).all()
        assert all((index.diff() > 0).all() for index in need[rank])
        assert need.received[rank].tolist() == [0 if s == rank else len(need[rank][s]) for s in range(ranks)]


@settings(max_examples=100)
@given(
    st.sampled_from(["causal", "window", "keys", "lengths", "prefix", "allowed"]), LAYOUTS, st.integers(1, 4), st.data()
)
def test_what_a_single_pattern_hides_is_not_sent(kind, make, ranks, data):
    length = data.draw(st.integers(1, 9))
    s = Shape(B=2, H=3, Lq=length, Lk=length)
    mask = build(data.draw(trees(s, leaves=(kind,), depth=0)))
    layout = make(length, ranks)
    seen = dense(mask, s).flatten(0, 1).any(0)
    # a tile of rows far apart is judged by the first and the last of them
    is_exact = kind in ("keys", "prefix", "allowed", "causal") or make is contiguous
    for held, columns in zip(layout.tokens, needs(mask, layout).columns, strict=True):
        wanted = seen[held].any(0).nonzero()[:, 0].tolist()
        assert columns.tolist() == wanted if is_exact else set(wanted) <= set(columns.tolist())


@pytest.mark.parametrize("tiles", [2, 3, 2048])
def test_tiles_of_any_size_find_the_same(tiles, monkeypatch):
    monkeypatch.setattr(needs_file, "MOST_TILES", tiles)
    length = 700
    mask = hw.causal() & hw.window(before=90) & hw.documents(torch.arange(length) // 130)
    seen = mask.allowed(length, length)
    layout = zigzag(length, 3)
    for held, columns in zip(layout.tokens, needs(mask, layout).columns, strict=True):
        assert columns.tolist() == seen[held].any(0).nonzero()[:, 0].tolist()


def test_without_a_mask_all_is_needed_by_those_who_have_queries():
    layout = contiguous(2, 3)
    assert [columns.tolist() for columns in needs(None, layout).columns] == [[0, 1], [0, 1], []]
    assert needs(None, layout) is needs(None, layout)


def test_needs_are_found_once_and_anew_after_a_change():
    keep = torch.ones(1, 8, dtype=torch.bool)
    mask, layout = hw.causal() & hw.keys(keep), contiguous(8, 2)
    before = needs(mask, layout)
    assert needs(mask, layout) is before
    keep[0, 1] = False
    assert needs(mask, layout).columns[1].tolist() == [0, 2, 3, 4, 5, 6, 7]


def test_a_function_is_not_asked_and_hides_nothing():
    def later(_b, _h, i, j):
        raise RuntimeError("asked")

    mask = hw.causal() & hw.rule(later)
    assert needs(mask, contiguous(6, 2)).columns[0].tolist() == [0, 1, 2]
    assert needs(mask, contiguous(6, 2)).columns[1].tolist() == list(range(6))


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(MaskError, match=r"keys\(keep\) must be \(B=1, Lk=6\), but came as \(1, 5\)"):
        needs(hw.keys(torch.ones(1, 5, dtype=torch.bool)), contiguous(6, 2))


def test_a_window_sends_a_sixteenth_of_what_a_ring_does():
    length, ranks = 4096, 8
    mask = hw.causal() & hw.window(before=length // 16 - 1)
    received = needs(mask, contiguous(length, ranks)).received.sum(1)
    assert received.tolist() == [0, *[length // 16 - 1] * (ranks - 1)]
