"""Indexing a map is indexing the dense tensor: the same shapes and numbers, and refusals that name the axis."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.errors import ArgumentError, OutOfRangeError
from headwise.maps import attention_map
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, MASKS, rules
from tests.maps.oracle import Dense, doubled, inputs, made

SHAPE = (DIFFERENT.B, DIFFERENT.Hq, DIFFERENT.Lq, DIFFERENT.Lk)


def entries(size):
    """What may stand for one axis of this size."""
    places = st.integers(-size, size - 1)
    steps = st.builds(slice, *[st.none() | st.integers(-size - 1, size + 1)] * 2, st.none() | st.integers(1, 3))
    lists = st.lists(places, max_size=3)
    return st.one_of(
        places,
        places.map(torch.tensor),
        steps,
        lists,
        lists.map(lambda x: torch.tensor(x, dtype=torch.int64)),
        st.lists(places, min_size=1, max_size=3).map(lambda x: torch.tensor(x, dtype=torch.int32)),
        st.lists(st.lists(places, min_size=2, max_size=2), min_size=1, max_size=2).map(torch.tensor),
        st.lists(st.booleans(), min_size=size, max_size=size).map(torch.tensor),
    )


@st.composite
def indices(draw, shape=SHAPE):
    """Any index that torch takes, but for None: up to four entries, one of which may be `...`."""
    before = draw(st.integers(0, 4))
    after = draw(st.integers(0, 4 - before))
    has_dots = draw(st.booleans())
    items = [draw(entries(size)) for size in shape[:before]]
    if has_dots:
        items += [..., *(draw(entries(size)) for size in shape[4 - after :])]
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def assert_same(m, dense, plain, index, of):
    try:
        want = of(dense)[index]
    except IndexError:
        # tensors that do not broadcast with each other
        with pytest.raises(ArgumentError, match="broadcast"):
            m[index]
        return
    got = m[index]
    assert got.shape == want.shape
    hidden = want.isneginf()
    assert torch.equal(got.isneginf(), hidden)
    assert_within_budget(*(t.masked_fill(hidden, 0.0) for t in (got, want, of(plain)[index])), factor=4.0)


@settings(max_examples=300)
@given(index=indices(), mask=st.sampled_from(sorted(MASKS)), seed=st.integers(0, 9), with_lse=st.booleans())
def test_any_legal_index_gives_what_the_dense_tensor_gives(index, mask, seed, with_lse):
    case = inputs(seed=seed, **rules(mask, "all of them", DIFFERENT))
    exact, plain, m = Dense(**doubled(case)), Dense(**case), made(case, with_lse=with_lse)
    # among a few numbers plain torch may be exact by luck, so the yardstick is the largest error of the whole map
    far = (plain.weights_by_lse - exact.weights_by_lse).abs().max().float()
    plain.weights = (exact.weights + far).float()
    plain.logits = exact.logits.float() + (plain.logits - exact.logits).nan_to_num().abs().max().float()
    assert_same(m, exact, plain, index, lambda d: d.weights)
    assert_same(m.logits, exact, plain, index, lambda d: d.logits)


@settings(max_examples=100)
@given(index=indices((DIFFERENT.B, 1, DIFFERENT.Lq, DIFFERENT.Lk)), mask=st.sampled_from(sorted(MASKS)))
def test_the_mean_of_the_heads_is_indexed_alike(index, mask):
    case = inputs(mask=MASKS[mask](DIFFERENT))
    exact, plain = Dense(**doubled(case)), Dense(**case)
    far = (plain.weights_by_lse - exact.weights_by_lse).abs().max().float()
    plain.weights = (exact.weights + far).float()
    assert_same(made(case).mean_heads(), exact, plain, index, lambda d: d.weights.mean(1, keepdim=True))


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "a rule", "dense, a head each", "an empty row"])
def test_single_pairs_are_computed_one_by_one_where_a_block_would_waste(mask, monkeypatch):
    monkeypatch.setattr("headwise.maps.matrix.SMALL", 0)
    monkeypatch.setattr("headwise.maps.matrix.PAIRS", 3)
    monkeypatch.setattr("headwise.maps.matrix.WASTE", 1)
    case = inputs(**rules(mask, "all of them", DIFFERENT))
    exact, plain, m = Dense(**doubled(case)), Dense(**case), made(case)
    line = torch.arange(5)
    for index in ((..., line, line + 2), (0, [[1], [3]], line, line), (line % 2, line, line, line)):
        assert_within_budget(m[index], exact.weights[index], plain.weights_by_lse[index], factor=4.0)
        shown = [t.masked_fill(exact.logits[index].isneginf(), 0.0) for t in (m.logits[index], exact.logits[index])]
        assert_within_budget(*shown, plain.logits[index].nan_to_num(neginf=0.0))
        mean = m.mean_heads()
    index = (slice(None), [0] * 5, line, line)
    assert_within_budget(
        mean[index],
        exact.weights.mean(1, keepdim=True)[index],
        plain.weights_by_lse.mean(1, keepdim=True)[index],
        factor=4.0,
    )


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ((2,), r"axis B of this map has size 2, so an index lies in -2\.\.1; got 2"),
        ((0, -7), r"axis Hq .* size 6.*got -7"),
        ((0, 0, 5), r"axis Lq .* size 5.*got 5"),
        ((..., 7), r"axis Lk .* size 7.*got 7"),
        ((..., torch.tensor([3, -8])), r"axis Lk .* size 7.*got -8"),
        ((0, [1, 6]), r"axis Hq .* size 6.*got 6"),
        ((..., torch.ones(6, dtype=torch.bool)), "axis Lk must have its size 7, but 6 came"),
    ],
)
def test_an_index_out_of_range_names_the_axis_and_its_size(index, sentence):
    m = made(inputs())
    for lazy in (m, m.logits):
        with pytest.raises(OutOfRangeError, match=sentence):
            lazy[index]
        with pytest.raises(IndexError):
            lazy[index]


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (None, "but None came"),
        ((0, True), "but True came"),
        ((0, "x"), "but str came"),
        (1.0, "but float came"),
        (torch.tensor([1.0]), r"torch.float32 of shape \(1,\)"),
        (torch.tensor([1], dtype=torch.uint8), "torch.uint8"),
        (torch.tensor(True), "torch.bool"),
        ((0, 0, 0, 0, 0), "has 4 axes .* names 5"),
        ((..., 0, ...), r"has 2 \.\.\."),
        (slice(None, None, -1), "axis B needs a step of 1 or more, as in torch, but -1 came"),
        (([0, slice(None)],), "a list in an index holds numbers"),
        (([0, 1], [0, 1, 2]), r"broadcast.*\(2,\), \(3,\)"),
    ],
)
def test_what_torch_would_not_take_or_reads_in_two_ways_is_refused(index, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        made(inputs())[index]


def test_an_index_into_an_empty_axis_says_that_it_is_empty():
    with pytest.raises(OutOfRangeError, match="axis Lk of this map is empty, but index 0 came"):
        attention_map(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 0, 4))[..., 0]


def test_a_loop_over_a_map_gives_each_sample_and_ends():
    m = made(inputs(mask=hw.causal()))
    assert torch.equal(torch.stack(list(m)), m[:])


def test_one_row_reads_no_other_row_and_no_other_head(monkeypatch):
    asked = []
    scores = hw.ops.reference.scores
    monkeypatch.setattr("headwise.ops.reference.scores", lambda call: asked.append(call.sizes) or scores(call))
    m = made(inputs(mask=hw.causal()), with_lse=True)
    m[1, 2, 3], m[1, 2, 3, 4], m[:, 2, 1:4:2, [0, 5]]
    assert asked == [(1, 1, 1, 7), (1, 1, 1, 1), (2, 1, 2, 2)]
