"""The harness times in turn what it has shown to be right, and nothing else."""

import dataclasses
import gc

import pytest
import torch

from benchmarks import harness
from benchmarks.harness import Case, Effort, Measured, Pair, WrongNumbersError, interleave, measure, same_numbers

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
        (harness.OUR_SECONDS, Pair(5.0, 2.0), 5.0),
    ],
    ids=["ratio", "microseconds", "milliseconds", "seconds"],
)
def test_a_quantity_is_computed_in_its_unit(quantity, pair, found):
    assert quantity.of(pair) == pytest.approx(found)


def test_a_ratio_meets_its_target_from_above_and_an_extra_from_below():
    assert [harness.RATIO.meets(found, 1.2) for found in (1.1, 1.2, 1.3)] == [False, True, True]
    assert [harness.EXTRA_MICROSECONDS.meets(found, 60) for found in (59, 60, 61)] == [True, True, False]


def test_the_median_is_that_of_the_ratios_of_pairs():
    # the ratio of the medians would be 1
    measured = Measured(case(None, None, target=2.5), (Pair(1.0, 3.0), Pair(2.0, 1.0), Pair(3.0, 2.0)))
    assert measured.quartiles == pytest.approx((1.75 / 3, 2 / 3, 5.5 / 3))
    assert measured.is_met is False
    assert dataclasses.replace(measured, case=case(None, None)).is_met is None
