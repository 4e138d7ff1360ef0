"""T5's relative bias: buckets, the learned table, and sharing it."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import ArgumentError
from headwise.positions import RelativeBias, relative_buckets

H, Lq, Lk = 6, 5, 7
SPEC = RelativeBias(num_buckets=12, max_distance=40)

buckets = st.integers(2, 40).map(lambda half: 2 * half)
near_or_far = st.integers(-30, 30) | st.integers(-1_000_000, 1_000_000)
places = st.lists(near_or_far, min_size=Lq, max_size=Lq).map(torch.tensor)


@given(buckets, st.integers(1, 500), st.booleans())
def test_near_distances_have_their_own_bucket_and_far_ones_share_the_last(num_buckets, beyond, bidirectional):
    one_side = num_buckets // 2 if bidirectional else num_buckets
    own = one_side // 2
    max_distance = own + beyond
    back = torch.arange(0, 3 * max_distance)
    given = {"num_buckets": num_buckets, "max_distance": max_distance, "bidirectional": bidirectional}
    before, after = relative_buckets(-back, **given), relative_buckets(back, **given)
    assert torch.equal(before[:own], back[:own])
    assert (before[max_distance:] == one_side - 1).all()
    assert (before.diff() >= 0).all()
    assert torch.equal(after[1:], before[1:] + one_side if bidirectional else torch.zeros_like(back[1:]))
    assert before.dtype == after.dtype == torch.int64


@given(
    st.sampled_from(
        [
            SPEC,
            RelativeBias(num_buckets=8, max_distance=3),
            RelativeBias(num_buckets=7, max_distance=9, bidirectional=False),
        ]
    ),
    places,
    places,
)
def test_each_bias_is_the_weight_of_its_bucket(spec, i, j):
    table = spec.build(H)
    bias = table(i, j)
    for query in range(Lq):
        steps = relative_buckets(
            j - i[query],
            num_buckets=spec.num_buckets,
            max_distance=spec.max_distance,
            bidirectional=spec.bidirectional,
        )
        assert torch.equal(bias[0, :, query], table.weight[steps].t())


@given(places, places, places)
def test_a_row_of_positions_for_each_sample_gives_each_its_bias(first, second, j):
    table = SPEC.build(H)
    together = table(torch.stack((first, second)), j)
    assert together.shape == (2, H, Lq, Lq)
    assert torch.equal(together, torch.cat((table(first, j), table(second, j))))


def test_the_gradient_of_a_weight_is_the_sum_over_its_bucket():
    table = SPEC.build(H, dtype=torch.float64)
    i, j = torch.arange(Lk - Lq, Lk), torch.arange(Lk)
    share = torch.randn(1, H, Lq, Lk, dtype=torch.float64)
    (table(i, j) * share).sum().backward()
    steps = relative_buckets(j - i[:, None], num_buckets=12, max_distance=40).flatten()
    wanted = torch.zeros(12, H, dtype=torch.float64).index_add(0, steps, share.flatten(2)[0].t())
    torch.testing.assert_close(table.weight.grad, wanted)


def test_a_new_table_is_small_and_can_be_drawn_again():
    table = RelativeBias(num_buckets=64).build(48)
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)
    before = table.weight.detach().clone()
    table.reset_parameters()
    assert not torch.equal(table.weight, before)


def test_a_shared_table_is_the_same_module_and_makes_the_spec_its_own():
    table = SPEC.build(H)
    shared = RelativeBias(shared=table)
    assert shared.build(H) is table
    assert (shared.num_buckets, shared.max_distance, shared.bidirectional) == (12, 40, True)
    assert RelativeBias(num_buckets=12, shared=table) == shared != RelativeBias(shared=SPEC.build(H))


def test_a_shared_table_that_does_not_fit_is_refused():
    table = SPEC.build(H)
    with pytest.raises(
        ArgumentError, match=r"has 6 heads in torch.float32 on cpu, but 5 heads in torch.float32 on cpu"
    ):
        RelativeBias(shared=table).build(5)
    with pytest.raises(ArgumentError, match=r"has 6 heads in torch.float32 on cpu, but 6 heads in torch.float16"):
        RelativeBias(shared=table).build(H, dtype=torch.float16)
    with pytest.raises(ArgumentError, match=r"on cpu, but 6 heads in torch.float32 on meta"):
        RelativeBias(shared=table).build(H, device="meta")
    with pytest.raises(ArgumentError, match="max_distance=50 must be the shared table's max_distance=40"):
        RelativeBias(max_distance=50, shared=table)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"num_buckets": 7}, "even and at least 4 when bidirectional=True, got num_buckets=7"),
        ({"num_buckets": 2}, "even and at least 4 when bidirectional=True, got num_buckets=2"),
        ({"num_buckets": 1, "bidirectional": False}, "at least 2 when bidirectional=False, got num_buckets=1"),
        ({"max_distance": 8}, "max_distance=8 must be over 8, for 8 of num_buckets=32"),
        ({"max_distance": 16, "bidirectional": False}, "max_distance=16 must be over 16, for 16 of num_buckets=32"),
    ],
    ids=str,
)
def test_buckets_that_cannot_be_meant_are_refused(given, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        RelativeBias(**given)
    with pytest.raises(ArgumentError, match=sentence):
        relative_buckets(torch.arange(3), **given)


def test_no_heads_are_refused():
    with pytest.raises(ArgumentError, match="num_heads=0"):
        RelativeBias().build(0)


def test_a_spec_pastes_back_pickles_and_copies():
    assert eval(repr(SPEC)) == SPEC == pickle.loads(pickle.dumps(SPEC))
    shared = copy.deepcopy(RelativeBias(shared=SPEC.build(H)))
    assert shared.build(H) is shared.shared
