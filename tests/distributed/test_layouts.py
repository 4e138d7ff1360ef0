"""Every layout holds each token once, in order, on any number of ranks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.distributed.layouts import Layout, balanced, contiguous, striped, zigzag
from headwise.errors import ArgumentError

LENGTHS, RANKS = st.integers(0, 40), st.integers(1, 9)


def made(name: str, length: int, ranks: int, pieces: int) -> Layout:
    if name == "balanced":
        return balanced(torch.arange(length).remainder(7).double(), ranks, pieces=pieces)
    return {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}[name](length, ranks)


@given(st.sampled_from(["contiguous", "zigzag", "striped", "balanced"]), LENGTHS, RANKS, st.integers(1, 4))
def test_each_token_is_held_once_and_found_again(name, length, ranks, pieces):
    layout = made(name, length, ranks, pieces)
    assert (layout.length, layout.ranks) == (length, ranks)
    joined = torch.cat(layout.tokens)
    assert joined.sort().values.tolist() == list(range(length))
    assert all((held.diff() > 0).all() for held in layout.tokens)
    assert joined[layout.order].tolist() == list(range(length))
    found = [int(layout.tokens[r][s]) for r, s in zip(layout.owner.tolist(), layout.slot.tolist(), strict=True)]
    assert found == list(range(length))


@given(st.sampled_from(["contiguous", "zigzag", "striped", "balanced"]), LENGTHS, RANKS, st.integers(1, 4))
def test_ranks_hold_nearly_as_many_tokens_each(name, length, ranks, pieces):
    counts = [len(held) for held in made(name, length, ranks, pieces).tokens]
    runs = {"zigzag": 2, "balanced": pieces}.get(name, 1)
    assert max(counts) - min(counts) <= runs


def test_zigzag_gives_a_run_of_the_front_and_one_of_the_back():
    assert [held.tolist() for held in zigzag(13, 3).tokens] == [[0, 1, 2, 11, 12], [3, 4, 9, 10], [5, 6, 7, 8]]


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize(
    "work",
    [torch.arange(960), torch.arange(960).clamp(max=480), 1 + torch.arange(960) % 120, torch.ones(960)],
    ids=["causal", "half", "documents", "even"],
)
def test_balanced_shares_work_out_evenly(ranks, work):
    layout = balanced(work.double(), ranks, pieces=4)
    loads = torch.stack([work[held].sum() for held in layout.tokens]).double()
    assert loads.max() <= 1.05 * loads.mean()


def test_one_run_a_rank_of_even_work_is_contiguous():
    layout = balanced(torch.ones(12), 4, pieces=1)
    assert [held.tolist() for held in layout.tokens] == [held.tolist() for held in contiguous(12, 4).tokens]


def test_what_counts_nothing_is_refused():
    with pytest.raises(ArgumentError, match="ranks must be 1 or more; got ranks=0"):
        zigzag(8, 0)
    with pytest.raises(ArgumentError, match=r"length must be an int of 0 or more; got length=2\.5"):
        contiguous(2.5, 2)
    with pytest.raises(ArgumentError, match="pieces must be 1 or more; got pieces=0"):
        balanced(torch.ones(4), 2, pieces=0)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (([0, 2, 1], [3]), r"those of rank 0 came as torch.int64 \(3,\) on cpu, from \[0, 2, 1\]"),
        (([0, 1], [1, 2]), "4 tokens came that are not 0 to 3"),
        (([0, 1], [3]), "3 tokens came that are not 0 to 2"),
    ],
)
def test_a_layout_holds_each_token_once_and_in_order(tokens: tuple[list[int], ...], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Layout("own", tuple(torch.tensor(held) for held in tokens))
