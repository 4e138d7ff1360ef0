"""The fit gives back the rates that times were made of, and every call of the grid has a way and work."""

import pytest
import torch

from benchmarks import rates
from benchmarks.rates import Row, calls, fitted, mean, rates_of
from headwise.ops import costs


def rows_of(known, few=1.0):
    """Times of many works that follow these rates exactly."""
    draw = torch.Generator().manual_seed(0)
    works = [(1.0, *(10 ** torch.empty(6).uniform_(1, 7, generator=draw)).tolist()) for _ in range(60)]
    return [Row(work, few * costs.seconds_of(known, work), 1.0) for work in works]


def test_the_fit_gives_back_what_times_were_made_of():
    known = [3e-5, 2e-9, 1e-10, 4e-9, 2e-11, 7e-10, 5e-10]
    rows = rows_of(known)
    for row in rows:
        assert costs.seconds_of(fitted(rows), row.work) == pytest.approx(row.seconds, rel=0.02)


def test_a_call_of_few_queries_costs_what_any_call_does_once():
    known = [3e-5, 0.0, 1e-10, 4e-9, 2e-11, 7e-10, 5e-10]
    found = rates_of({"sdpa forward": rows_of(known), f"sdpa forward {costs.FEW_QUERIES}": rows_of(known, few=2.0)})
    assert found[f"sdpa forward {costs.FEW_QUERIES}"][0] == found["sdpa forward"][0] > 0


def test_short_sequences_have_rates_of_their_own_and_count_for_those_of_any_length():
    known = [3e-5, 0.0, 1e-10, 4e-9, 2e-11, 7e-10, 5e-10]
    found = rates_of({"sdpa forward": rows_of(known), f"sdpa forward {costs.SHORT}": rows_of(known, few=1.5)})
    whole, own = (
        sum(costs.seconds_of(found[way], row.work) / row.seconds for row in rows_of(known)) / 60
        for way in ("sdpa forward", f"sdpa forward {costs.SHORT}")
    )
    assert own == pytest.approx(1.5, rel=0.02)
    assert 1.05 < whole < 1.45


def test_every_way_of_the_table_is_measured(monkeypatch):
    monkeypatch.setattr(rates, "LENGTHS", ((3, 3), (2, 11), (130, 130)))
    found = {costs.way_of(name, call) for call, names in calls(torch.float32) for name in names}
    assert found == set(costs.table()["x86_64 avx512 amx"]["float32"])


def test_rates_of_several_machines_are_their_mean_and_those_of_one_alone_are_kept():
    kept, found = (
        {"sdpa forward": [2.0, 4.0], "of before": [7.0, 8.0]},
        {"sdpa forward": [5.0, 1.0], "of now": [3.0, 9.0]},
    )
    assert mean(kept, found, 2) == {"of before": [7.0, 8.0], "of now": [3.0, 9.0], "sdpa forward": [3.0, 3.0]}
