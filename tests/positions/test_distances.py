"""Distances between queries and keys: whole numbers, sample by sample."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import ArgumentError, ShapeError
from headwise.positions.distances import distances

Lq, Lk = 3, 5
queries = st.lists(st.integers(-(2**40), 2**40), min_size=Lq, max_size=Lq)
keys = st.lists(st.integers(-(2**40), 2**40), min_size=Lk, max_size=Lk)


@given(queries, keys, queries)
def test_every_pair_has_its_difference_however_the_rows_are_given(i, j, other):
    wanted = [[key - query for key in j] for query in i]
    shared = distances(torch.tensor(i), torch.tensor(j))
    assert shared.tolist() == [[wanted]]
    rows = distances(torch.tensor([i, other]), torch.tensor([j, j]))
    assert torch.equal(rows[:1], shared)
    assert torch.equal(rows, distances(torch.tensor([i, other]), torch.tensor(j)))


def test_small_whole_numbers_do_not_wrap_round():
    i, j = torch.tensor([200, 250], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)
    assert distances(i, j).tolist() == [[[[-197], [-247]]]]


@pytest.mark.parametrize(
    ("i", "j", "error", "sentence"),
    [
        (torch.zeros(2, 3).long(), torch.zeros(4, 3).long(), ShapeError, "came with 2 and 4 samples"),
        (torch.zeros(2, 1, 3).long(), torch.arange(3), ShapeError, r"query_positions must be .* came as \(2, 1, 3\)"),
        (torch.arange(3), torch.tensor(5), ShapeError, r"key_positions must be .* came as \(\)"),
        (
            torch.arange(3),
            torch.ones(3),
            ArgumentError,
            "key_positions must be whole numbers, but came as torch.float32",
        ),
    ],
    ids=["batch", "rank three", "rank zero", "float"],
)
def test_positions_that_do_not_fit_are_refused(i, j, error, sentence):
    with pytest.raises(error, match=sentence):
        distances(i, j)
