"""Every side of a call of the grid computes the same, and the figures follow from the times."""

from dataclasses import replace

import pytest
import torch

from benchmarks.regret import BACKENDS, DTYPES, MASKS, Figures, Place, grid, sides, summary, timed_in_turn


def test_the_grid_has_every_kind_of_call_once():
    places = list(grid())
    assert len(places) == len(set(places)) >= 150
    for name, wanted in {
        "dtype": set(DTYPES), "mask": {*MASKS, "tensor"}, "has_backward": {False, True}, "threads": {1, 2},
        "dropout": {0.0, 0.1}, "kv_heads": {2, 8}, "queries": {None, 1},
    }.items():  # fmt: skip
        assert {getattr(place, name) for place in places} == wanted
    assert {place.L for place in places} >= {16, 128, 512, 2048, 8192}


@pytest.mark.parametrize("mask", [*MASKS, "tensor"])
@pytest.mark.parametrize("place", [Place("float32", 23, batch=2), Place("float32", 23, queries=1, kv_heads=2)], ids=str)
def test_all_sides_give_the_same_numbers(mask, place):
    calls, chosen = sides(replace(place, mask=mask))
    assert set(calls) == {"auto", "torch", *BACKENDS}
    assert chosen in BACKENDS
    wanted = calls["reference"]()
    for name, call in calls.items():
        torch.testing.assert_close(call(), wanted, msg=lambda said, name=name: f"{name}: {said}")


def test_a_backend_that_cannot_run_a_call_is_left_out():
    calls, _ = sides(Place("float32", 16, dropout=0.1, has_backward=True))
    assert set(calls) == {"auto", "blockwise", "reference", "torch"}
    assert all(seconds > 0 for seconds in timed_in_turn(calls, 0.0).values())


def test_the_summary_follows_from_the_times():
    seconds = {"auto": 1.2, "sdpa": 1.0, "blockwise": 2.0, "torch": 0.9}
    found = [
        Figures(Place("float32", L, has_backward=has_backward), {**seconds, "auto": auto}, "sdpa")
        for L, has_backward, auto in ((128, False, 1.2), (256, False, 1.0), (16, False, 1.5), (16, True, 1.25))
    ]
    assert [each.is_doubtful for each in found] == [True, True, True, True]
    assert list(summary(found).values()) == pytest.approx([4, 1.225, 0.75, 1.0, 0.75, 0.6, 0.72])
