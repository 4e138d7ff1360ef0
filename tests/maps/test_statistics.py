"""Several statistics come from one pass over a map, and a second look at it takes none."""

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError, StaleMapError
from headwise.maps import attention_map, reductions, result_cache, statistics
from headwise.testing import assert_within_budget
from tests.cases import rules
from tests.maps.oracle import Dense, doubled, inputs, made
from tests.maps.test_map import ONE_SHAPE


@pytest.fixture
def passes(monkeypatch):
    """One entry for every pass over the rows of a map."""
    found = []
    for module in (reductions, statistics):

        def counted(call, visit, *, rows=None, read=module.read_rows):
            found.append(rows)
            read(call, visit, rows=rows)

        monkeypatch.setattr(module, "read_rows", counted)
    return found


def test_one_pass_gives_every_statistic_and_a_second_look_takes_none(passes):
    given = inputs(**rules("padding and causal", "all of them", ONE_SHAPE))
    m, alone = made(given), made(given)
    found = m.statistics(pooled=(3, 4), how="max", topk=2)
    assert len(passes) == 1
    for _ in range(2):
        assert torch.equal(found.entropy, m.entropy())
        assert torch.equal(found.received, m.received())
        assert torch.equal(found.distance, m.distance())
        assert torch.equal(found.max_logit, m.max_logit())
        assert torch.equal(found.pooled, m.pooled(3, 4, how="max"))
        assert all(map(torch.equal, found.topk, m.topk(2)))
        assert torch.equal(m.lse, made(given).detach().lse)
    # the last line reads a new map, twice
    assert len(passes) == 3
    assert torch.equal(found.pooled, alone.pooled(3, 4, how="max"))
    assert torch.equal(found.entropy, alone.entropy())
    assert len(passes) == 4


def test_what_is_kept_is_not_changed_through_what_was_handed_out():
    m = made(inputs())
    before = m.statistics(pooled=(3, 4), topk=2)
    before = [before.pooled.clone(), *(t.clone() for t in before.topk)]
    for handed in (m.pooled(3, 4), *m.topk(2)):
        handed.zero_()
    assert all(map(torch.equal, [m.pooled(3, 4), *m.topk(2)], before))


def test_a_kept_statistic_has_the_gradient_of_the_first_look():
    given = inputs(mask=hw.causal())
    q = given["q"].requires_grad_()
    m = made(given)
    first, second = (torch.autograd.grad(m.pooled(3, 4).square().sum(), q)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert bool(first.any())


def test_a_kept_statistic_of_a_tensor_that_has_been_changed_is_refused():
    given = inputs()
    m = made(given)
    m.statistics(pooled=(3, 4), topk=2)
    given["k"].zero_()
    for ask in (lambda: m.statistics(pooled=(3, 4)), lambda: m.pooled(3, 4), lambda: m.topk(2)):
        with pytest.raises(StaleMapError, match=r"k .*version 1, not 0"):
            ask()


def test_no_more_is_kept_than_queries_and_keys_take(passes, monkeypatch):
    monkeypatch.setattr(result_cache, "LEAST_BYTES", 0)
    q, k = torch.randn(1, 2, 40, 8), torch.randn(1, 2, 50, 8)
    m = attention_map(q, k)
    room = 4 * (q.numel() + k.numel())
    pictures = [(20, 20), (20, 19), (40, 50)]
    for h, w in (*pictures, pictures[1]):
        m.pooled(h, w)
        assert sum(t.nbytes for found in m._answers._answers.values() for t in found) <= room
    # the first had to go for the second, and the third is larger than all that may be kept
    assert [4 * 2 * h * w <= room for h, w in pictures] == [True, True, False]
    assert len(passes) == 3
    m.pooled(20, 20)
    assert len(passes) == 4


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row"])
def test_weighted_rows_are_the_product_of_a_vector_and_the_map(mask):
    given = inputs(**rules(mask, "sink", ONE_SHAPE))
    factors = torch.tensor([[0.0, 1.5, -2.0, 0.25, 0.0], [0.0] * 5])
    exact, plain = (torch.einsum("br,bhrk->bhk", f, Dense(**g).weights)
                    for f, g in ((factors.double(), doubled(given)), (factors, given)))  # fmt: skip
    assert_within_budget(made(given).weighted_rows(factors), exact, plain)


def test_a_statistic_that_cannot_be_is_refused_before_the_pass(passes):
    m = made(inputs())
    with pytest.raises(ArgumentError, match=r"0\.\.Lk=7.*got 8"):
        m.statistics(topk=8)
    with pytest.raises(ArgumentError, match="h=0, w=4, Lq=5, Lk=7"):
        m.statistics(pooled=(0, 4))
    assert passes == []


def test_a_score_of_infinity_makes_its_whole_row_nan():
    q, k = torch.ones(1, 1, 3, 2), torch.ones(1, 1, 4, 2)
    q[0, 0, 1] = float("inf")
    m = attention_map(q, k, mask=hw.lengths(torch.tensor([3])))
    assert m.entropy().isnan().tolist() == [[[False, True, False]]]
    assert m.received().isnan().tolist() == [[[True, True, True, False]]]
    assert m.topk(3)[0].isnan().all(-1).tolist() == [[[False, True, False]]]


def block_mask(Lq, Lk, size, seed):
    """A mask that is all open or all closed in squares of a size, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    squares = torch.rand(-(-Lq // size), -(-Lk // size), generator=generator) > 0.5
    whole = squares.repeat_interleave(size, 0).repeat_interleave(size, 1)[:Lq, :Lk].clone()
    whole[:, 0] = True
    return whole


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [64, 128, 40])
def test_squares_of_a_mask_hide_what_they_hide_whatever_stands_beside_them(size, seed):
    q, k = (torch.randn(2, 3, length, 5, dtype=torch.float64) for length in (330, 270))
    allowed = block_mask(330, 270, size, seed)
    m = attention_map(q, k, mask=hw.allowed(allowed))
    logits = (q @ k.mT * 5**-0.5).masked_fill(~allowed, float("-inf"))
    weights = logits.softmax(-1)
    found = m.statistics(topk=3)
    torch.testing.assert_close(m.lse, logits.logsumexp(-1))
    torch.testing.assert_close(found.received, weights.sum(2))
    torch.testing.assert_close(found.entropy, torch.special.entr(weights).sum(-1))
    torch.testing.assert_close(found.topk[0], weights.topk(3).values)


@pytest.mark.parametrize("looks", ["topk", "pooled", "statistics", "weighted_rows"])
def test_a_map_is_read_in_inference_mode_and_after_it(looks):
    q, k = torch.randn(2, 3, 7, 5, requires_grad=True), torch.randn(2, 3, 11, 5)
    m = attention_map(q, k, mask=hw.window(keys=6))
    look = {
        "topk": lambda: m.topk(2)[0], "pooled": lambda: m.pooled(3, 4),
        "statistics": lambda: m.statistics(topk=2, pooled=(2, 5)).pooled,
        "weighted_rows": lambda: m.weighted_rows(torch.rand(2, 7, generator=torch.Generator().manual_seed(1))),
    }[looks]  # fmt: skip
    with torch.inference_mode():
        inside = look()
    assert torch.equal(look(), inside)
    if looks in ("topk", "pooled"):
        look().sum().backward()
        assert q.grad is not None
