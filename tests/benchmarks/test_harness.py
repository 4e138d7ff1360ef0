"""The harness times in turn, or weighs, what it has shown to be right, and nothing else."""

import dataclasses
import gc
import math

import pytest
import torch

from benchmarks import harness, peak
from benchmarks.harness import (
    Case,
    Effort,
    Measured,
    NotMeasuredError,
    Pair,
    WrongNumbersError,
    interleave,
    measure,
    same_numbers,
    weigh,
)

THREE_ROUNDS = Effort(seconds=0.0, rounds=3)


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleeper(self, who, seconds):
        def sleep():
            self.now += seconds
            self.slept.append(who)

        return sleep


def case(ours, theirs, **changes):
    words = dict.fromkeys(("name", "beside", "shape", "dtype"), "sleeping")
    return Case(**words, ours=ours, theirs=theirs, **({"check": lambda: None} | changes))


def test_the_ratio_of_known_sleeps_is_found():
    clock = Clock()
    slept = case(clock.sleeper("ours", 2.0), clock.sleeper("theirs", 6.0))
    measured = measure(slept, THREE_ROUNDS, clock=clock)
    assert (measured.ours, measured.theirs, measured.quartiles) == (2.0, 6.0, (3.0, 3.0, 3.0))


def test_both_sides_take_turns_after_a_warm_up():
    clock = Clock()
    pairs = interleave(clock.sleeper("a", 1.0), clock.sleeper("b", 1.0), THREE_ROUNDS, clock=clock)
    assert len(pairs) == 3
    # one more turn of each tells how many calls make a block
    assert clock.slept == ["a", "b"] * (harness.WARM_UPS + 1 + 3)


def test_short_calls_are_timed_in_blocks_of_as_many_on_both_sides():
    clock = Clock()
    ours, theirs = clock.sleeper("a", harness.BLOCK_SECONDS / 3.5), clock.sleeper("b", 1.0)
    pairs = interleave(ours, theirs, THREE_ROUNDS, clock=clock)
    assert "".join(clock.slept[2 * (harness.WARM_UPS + 1) :]) == "aaaabbbb" * 3
    assert [harness.RATIO.of(pair) for pair in pairs] == pytest.approx([3.5 / harness.BLOCK_SECONDS] * 3)


def test_a_turn_that_takes_long_warms_up_once():
    clock = Clock()
    half = harness.LONG_SECONDS / 2
    interleave(clock.sleeper("a", half), clock.sleeper("b", half), THREE_ROUNDS, clock=clock)
    assert clock.slept == ["a", "b"] * (1 + 3)


def test_a_case_is_timed_until_both_its_seconds_and_its_rounds_are_full():
    clock = Clock()
    sides = clock.sleeper("a", 1.0), clock.sleeper("b", 1.0)
    assert len(interleave(*sides, Effort(seconds=10.0, rounds=2), clock=clock)) == 5
    assert len(interleave(*sides, Effort(seconds=1.0, rounds=7), clock=clock)) == 7


def test_garbage_is_not_collected_while_the_clock_runs_and_is_again_afterwards():
    clock, seen = Clock(), []

    def fails_late():
        clock.now += 1.0
        seen.append(gc.isenabled())
        if len(seen) > harness.WARM_UPS + 1:
            raise ArithmeticError("late")

    with pytest.raises(ArithmeticError, match="late"):
        interleave(fails_late, clock.sleeper("b", 1.0), THREE_ROUNDS, clock=clock)
    assert seen == [True] * (harness.WARM_UPS + 1) + [False]
    assert gc.isenabled()


def numbers(*values):
    return lambda: tuple(torch.tensor(value) for value in values)


def thirds(dtype):
    return (torch.tensor([1.0, 2.0], dtype=dtype) / 3,)


def right():
    return thirds(torch.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        (numbers([0.3333, 0.6667]), right, "ours is wrong in tensor 0: the error is 3.33e-05"),
        (right, numbers([0.3333, 0.6667]), "theirs is wrong in tensor 0: the error is 3.33e-05"),
        (numbers([0.1]), right, r"ours is wrong in tensor 0: shape and dtype must be \(2,\)"),
        (right, numbers([1 / 3, 2 / 3], 0.0), "theirs gives 2 tensors, but its definition 1"),
        (numbers([1 / 3, float("nan")]), right, "ours is wrong in tensor 0: 1 entries are NaN, but 0 should be"),
    ],
    ids=["ours", "theirs", "shape", "count", "nan"],
)
def test_what_is_wrong_is_not_timed(ours, theirs, sentence):
    clock = Clock()
    sides = clock.sleeper("a", 1.0), clock.sleeper("b", 1.0)
    wrong = case(*sides, check=same_numbers(ours, theirs, thirds, torch.float32))
    with pytest.raises(WrongNumbersError, match=sentence):
        measure(wrong, THREE_ROUNDS, clock=clock)
    assert clock.slept == []


def test_what_is_right_passes_the_check():
    assert same_numbers(right, right, thirds, torch.float32)() is None


@pytest.mark.parametrize(
    ("quantity", "pair", "found"),
    [
        (harness.RATIO, Pair(2.0, 3.0), 1.5),
        (harness.EXTRA_MICROSECONDS, Pair(5e-6, 2e-6), 3.0),
        (harness.EXTRA_MILLISECONDS, Pair(5e-3, 2e-3), 3.0),
        (harness.TIMES, Pair(3.0, 2.0), 1.5),
        (harness.OUR_SECONDS, Pair(5.0, 2.0), 5.0),
        (harness.OUR_MILLISECONDS, Pair(5e-3, 2.0), 5.0),
        (harness.OUR_MEGABYTES, Pair(5e6, math.nan), 5.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_quantity_is_computed_in_its_unit(quantity, pair, found):
    assert quantity.of(pair) == pytest.approx(found)


FROM_BELOW = (
    harness.EXTRA_MICROSECONDS, harness.EXTRA_MILLISECONDS, harness.TIMES, harness.OUR_SECONDS,
    harness.OUR_MILLISECONDS, harness.OUR_MEGABYTES,
)  # fmt: skip


@pytest.mark.parametrize("quantity", FROM_BELOW, ids=lambda quantity: f"{quantity.name} {quantity.unit}")
def test_what_we_take_meets_its_target_from_below(quantity):
    assert [quantity.meets(found, 60) for found in (59, 60, 61)] == [True, True, False]


def test_a_ratio_meets_its_target_from_above():
    assert [harness.RATIO.meets(found, 1.2) for found in (1.1, 1.2, 1.3)] == [False, True, True]


def test_the_median_is_that_of_the_ratios_of_pairs():
    # the ratio of the medians would be 1
    measured = Measured(case(None, None, target=2.5), (Pair(1.0, 3.0), Pair(2.0, 1.0), Pair(3.0, 2.0)))
    assert measured.quartiles == pytest.approx((1.75 / 3, 2 / 3, 5.5 / 3))
    assert measured.is_met is False
    assert dataclasses.replace(measured, case=case(None, None)).is_met is None


def test_one_pair_is_its_own_quartiles():
    assert Measured(case(None, None), (Pair(2.0, 3.0),)).quartiles == (1.5, 1.5, 1.5)


def holds(size):
    return lambda: torch.ones(size, dtype=torch.uint8)


@pytest.fixture
def meter(monkeypatch):
    """A meter that works everywhere: of a tensor that a call returns."""
    monkeypatch.setattr(peak, "why_not", lambda: "")
    monkeypatch.setattr(peak, "peak_extra", lambda run: run().numel())


def test_each_side_is_weighed_by_itself_and_one_that_is_not_run_has_no_weight(meter):
    assert weigh(case(holds(7), holds(5))) == Pair(7, 5)
    ours, theirs = weigh(case(holds(7), None))
    assert ours == 7
    assert math.isnan(theirs)


def test_a_case_in_bytes_is_weighed_once_and_not_timed(meter):
    clock = Clock()
    measured = measure(case(holds(7), holds(21), is_in_bytes=True), THREE_ROUNDS, clock=clock)
    assert (measured.pairs, measured.quartiles[1], measured.memory) == ((Pair(7, 21),), 3.0, None)
    assert clock.now == 0.0


def test_a_case_that_is_weighed_is_timed_too(meter):
    clock = Clock()

    def ours():
        clock.now += 2.0
        return torch.ones(7)

    measured = measure(case(ours, ours, is_weighed=True), THREE_ROUNDS, clock=clock)
    assert (measured.memory, measured.ours) == (Pair(7, 7), 2.0)


def test_where_memory_cannot_be_read_it_is_left_out_and_a_case_in_bytes_is_not_even_checked(monkeypatch):
    checked = []
    monkeypatch.setattr(peak, "why_not", lambda: "the meter is broken")
    sides = Clock().sleeper("a", 1.0), Clock().sleeper("b", 1.0)
    assert measure(case(*sides, is_weighed=True), Effort(0.0, 1)).memory is None
    with pytest.raises(NotMeasuredError, match="the meter is broken"):
        measure(case(*sides, is_in_bytes=True, check=lambda: checked.append(1)), THREE_ROUNDS)
    assert checked == []


def test_a_side_of_ours_without_weight_is_not_measured(meter):
    with pytest.raises(NotMeasuredError, match="our side took less memory than the system counts"):
        measure(case(holds(0), holds(5), is_in_bytes=True), THREE_ROUNDS)


def test_a_case_with_nothing_beside_it_cannot_be_timed():
    with pytest.raises(ValueError, match="sleeping has nothing to be timed beside"):
        measure(case(lambda: None, None), THREE_ROUNDS)


def test_the_rate_of_our_products_is_told_as_a_share_of_torchs_in_the_same_dtype(monkeypatch):
    asked = []
    monkeypatch.setattr(harness, "matmul_rate", lambda dtype: asked.append(dtype) or 100.0)
    clock = Clock()
    timed = case(clock.sleeper("a", 2.0), clock.sleeper("b", 1.0), flops=50.0)
    measured = measure(dataclasses.replace(timed, dtype="bfloat16"), THREE_ROUNDS, clock=clock)
    assert (measured.share, asked) == (0.25, [torch.bfloat16])
    assert measure(dataclasses.replace(timed, flops=None), THREE_ROUNDS, clock=clock).share is None
    assert len(asked) == 1
