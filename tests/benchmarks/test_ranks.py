"""What is measured on several ranks is their own work beside the whole, and only where the numbers are right."""

import os

import pytest
import torch

from benchmarks import ranks
from benchmarks.ranks import Case, Share, check, environment, figures


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
