"""What is measured on several ranks is their own work beside the whole, and only where the numbers are right."""

import os

import pytest
import torch

from benchmarks import ranks, shares
from benchmarks.ranks import Case, Share, check, environment, figures
from tests.distributed.ranks import on_ranks


def test_figures_are_of_all_ranks_over_the_mean_of_wholes(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [Share([3.0, 6.0], [4.0, 5.0], 2), Share([1.0, 4.0], [6.0, 5.0], 2)]
    monkeypatch.setattr(ranks, "on_processes", lambda *given: shares)
    case = Case("any", 2, 8, "seconds", 1.0)
    # (3 + 1) / 5 and (6 + 4) / 5
    assert figures(case, 2) == pytest.approx((1.1, 1.4, 1.7, 2))
    # of memory, that of the busiest rank: 3 / 5 and 6 / 5
    assert figures(Case("any", 2, 8, "bytes", 1.0), 2)[1] == pytest.approx(0.9)


def test_a_layer_of_split_heads_is_measured_on_processes_and_sums_twice() -> None:
    low, middle, high, reduced = figures(Case("layer", 2, 16, "heads", 1.0), 1)
    assert 0 < low <= middle <= high
    assert reduced == 2


def test_wrong_outputs_are_not_measured() -> None:
    right = torch.ones(3)
    check(0, right, lambda: right)
    with pytest.raises(ValueError, match=r"2\.0e-02 from those of one process"):
        check(0, right + 0.02, lambda: right)


def test_variables_are_of_the_processes_started_inside_only() -> None:
    with environment({"HEADWISE_SOME_NAME": "7"}):
        assert os.environ["HEADWISE_SOME_NAME"] == "7"
    assert "HEADWISE_SOME_NAME" not in os.environ


def test_what_ranks_share_is_counted_where_it_is_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LENGTH", 1024)
    monkeypatch.setattr(shares, "SENT", (2,))
    monkeypatch.setattr(shares, "COUNTED", (2,))
    monkeypatch.setattr(shares, "SHARED", (2, 3))
    monkeypatch.setattr(shares, "WINDOW_RANKS", 4)
    found = {each.name: each for each in shares.counts(lambda ranks, task, length: on_ranks(ranks, task, length))}
    sent, window, tiles, work = found.values()
    assert (sent.ratio, sent.target) == (1.0, 1.0)
    # 63 keys of a window at three of the borders of four ranks, of 3 x 1,024 in a ring
    assert (window.at, window.ratio) == ("window, 4 ranks", 3 * 63 / 3072)
    assert 1 <= tiles.ratio < 1.2
    assert 1 <= work.ratio < 1.2


def test_a_rank_that_sends_too_much_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LENGTH", 1024)
    much = dict.fromkeys(shares.masks(1024), 10**9)
    sent, window, *_ = shares.counts(lambda ranks, task, length: [much] * ranks)
    assert sent.ratio > sent.target
    assert window.ratio > window.target
