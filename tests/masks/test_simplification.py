"""A narrowed mask allows what the picked one allows, as a simple pattern where rows and columns are runs."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.masks import picked
from headwise.masks.selection import Picked
from headwise.masks.simplification import narrowed, runs
from headwise.ops import costs
from tests.masks.trees import build, dense, scenes


@settings(max_examples=400)
@given(scenes(), st.data())
def test_a_narrowed_mask_allows_what_the_picked_one_allows(scene, data):
    s, tree = scene
    starts = [data.draw(st.integers(0, n - 1)) for n in s]
    stops = [data.draw(st.integers(start + 1, n)) for start, n in zip(starts, s, strict=True)]
    rows, columns = (torch.arange(starts[at], stops[at]) for at in (2, 3))
    here = s._replace(Lq=len(rows), Lk=len(columns))
    found = narrowed(build(tree), rows, columns, sizes=(s.Lq, s.Lk))
    wanted = dense(picked(build(tree), rows, columns, sizes=(s.Lq, s.Lk)), here)
    assert torch.equal(torch.ones(here, dtype=torch.bool) if found is None else dense(found, here), wanted)


@pytest.mark.parametrize(
    ("mask", "rows", "columns", "wanted"),
    [
        (hw.causal(), (5, 9), (0, 9), "causal()"),
        (hw.causal(), (5, 9), (3, 9), "causal()"),
        (hw.causal(), (5, 9), (0, 5), "None"),
        (hw.causal(), (5, 9), (2, 12), "picked"),
        (hw.causal(), (5, 9), (2, 7), "window(before=4, after=2)"),
        (hw.window(keys=3), (5, 9), (3, 9), "window(before=2, after=0)"),
        (hw.window(keys=30), (5, 9), (3, 9), "causal()"),
        (hw.window(before=30, after=30), (5, 9), (3, 9), "None"),
        (hw.causal() & hw.window(keys=3), (5, 9), (3, 9), "causal() & window(before=2, after=0)"),
        (hw.causal() | hw.prefix(3), (5, 9), (0, 9), "causal() | prefix(n=3)"),
        (hw.causal() | hw.prefix(3), (5, 9), (0, 3), "None"),
        (hw.prefix(6), (0, 3), (2, 9), "prefix(n=4)"),
        (~hw.causal(), (5, 9), (0, 9), "~causal()"),
        (hw.causal() & hw.lengths([7, 2]), (5, 9), (4, 9), "causal() & lengths(n=torch.tensor([3, 0]))"),
    ],
)
def test_runs_of_rows_and_columns_have_simple_masks(mask, rows, columns, wanted):
    found = narrowed(mask, torch.arange(*rows), torch.arange(*columns), sizes=(16, 16))
    assert repr(found).startswith(wanted)


def test_a_dense_mask_is_narrowed_to_a_view_of_it():
    t = torch.rand(1, 3, 16, 16) < 0.5
    found = narrowed(hw.allowed(t), torch.arange(5, 9), torch.arange(2, 11), sizes=(16, 16))
    assert torch.equal(found.t, t[:, :, 5:9, 2:11])
    assert found.t.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()


def test_rows_or_columns_apart_stay_picked():
    apart, run = torch.tensor([0, 1, 5, 6]), torch.arange(4)
    assert isinstance(narrowed(hw.causal(), apart, run, sizes=(8, 8)), Picked)
    assert isinstance(narrowed(hw.causal(), run, apart, sizes=(8, 8)), Picked)
    assert isinstance(narrowed(hw.causal(), run[:0], run, sizes=(8, 8)), Picked)
    assert narrowed(None, apart, run, sizes=(8, 8)) is None


@given(st.lists(st.integers(0, 30), unique=True))
def test_runs_cover_an_index_in_its_order(index):
    found = runs(torch.tensor(index, dtype=torch.long))
    assert [at for run in found for at in range(run.start, run.stop)] == index
    assert all(a.stop != b.start for a, b in itertools.pairwise(found))


@pytest.fixture
def same_rates(monkeypatch):
    """The rates of one level, whatever this machine is."""
    monkeypatch.setattr(costs, "nearest", lambda: "x86_64 avx2")
    costs.rates.cache_clear()
    yield
    costs.rates.cache_clear()


@pytest.mark.usefixtures("same_rates")
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_zigzag_run_of_causal_takes_the_backend_of_the_whole_call(ranks):
    length = 2048
    chunk = length // (2 * ranks)
    whole = hw.backends(*(torch.zeros(1, 2, length, 64) for _ in range(3)), mask=hw.causal()).chosen
    for start in (chunk, length - 2 * chunk, length - chunk):
        rows, columns = torch.arange(start, start + chunk), torch.arange(start + chunk)
        mask = narrowed(hw.causal(), rows, columns, sizes=(length, length))
        assert repr(mask) == "causal()"
        q, k = torch.zeros(1, 2, chunk, 64), torch.zeros(1, 2, start + chunk, 64)
        assert hw.backends(q, k, k, mask=mask).chosen == whole
