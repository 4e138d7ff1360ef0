"""Ranks that disagree, die or do not come: an error that says so, on every rank, and no hang."""

import os
import time

import pytest
import torch
import torch.distributed as dist

import headwise as hw
from headwise.distributed import agreement, spread
from headwise.distributed.attention import attention
from headwise.errors import DistributedError, ShapeError
from tests.distributed.processes import on_processes
from tests.distributed.ranks import on_ranks

LENGTH = 12


def call(
    rank, *, length=LENGTH, layout="zigzag", batch=2, Hk=2, way="gather", dtype=torch.float32, grad=False, **rules
):
    held = spread(length, dist.group.WORLD, layout=layout)
    q, k, v = (torch.ones(batch, H, len(held.tokens), 8, dtype=dtype, requires_grad=grad) for H in (4, Hk, Hk))
    return attention(q, k, v, spread=held, way=way, **rules)


def said(ranks, *others):
    """The sentence of every rank, where the last ranks are given something else."""

    def task(rank):
        own = others[rank - ranks + len(others)] if rank >= ranks - len(others) else {}
        with pytest.raises(DistributedError) as raised:
            call(rank, **own)
        return str(raised.value)

    found = on_ranks(ranks, task)
    assert len(set(found)) == 1
    return found[0]


class TestRanksThatDisagree:
    def test_on_sizes_are_told_both_numbers(self):
        sentence = "ranks must agree on B, but rank 0 has B=2 and rank 2 has B=3: give every rank its part of one batch"
        assert said(3, {"batch": 3}) == sentence
        assert "rank 0 has Hk=2 and rank 1 has Hk=4" in said(2, {"Hk": 4})
        assert "rank 0 has length=12 and rank 1 has length=13" in said(2, {"length": 13})

    @pytest.mark.parametrize(
        ("other", "name"),
        [
            ({"mask": hw.causal()}, "the mask"),
            ({"mask": hw.keys(torch.arange(LENGTH)[None] < 5)}, "the mask"),
            ({"layout": "striped"}, "the layout"),
            ({"dtype": torch.float64}, "the dtype of q, k and v"),
            ({"grad": True}, "which of q, k and v need gradients"),
            ({"scale": 0.5}, "scale"),
            ({"softcap": 0.5}, "softcap"),
            ({"sink": torch.zeros(4)}, "sink"),
            ({"attn_bias": torch.zeros(LENGTH, LENGTH)}, "attn_bias"),
            ({"way": "ring"}, "the way"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_on_anything_else_are_told_what(self, other, name):
        assert said(3, other) == f"ranks must agree on {name}, but rank 2 differs from rank 0: give every rank the same"

    def test_on_the_numbers_of_a_mask(self):
        def task(rank):
            with pytest.raises(DistributedError, match="agree on the mask, but each of the ranks 1, 2 differs"):
                call(rank, mask=hw.documents((torch.arange(LENGTH) // (5 if rank else 3))[None]))

        on_ranks(3, task)

    def test_where_one_refuses_its_own_call(self):
        def task(rank):
            error = (ShapeError, "sink must be") if rank == 1 else (DistributedError, "but rank 1 refused its own")
            with pytest.raises(error[0], match=error[1]):
                call(rank, sink=torch.zeros(5 if rank == 1 else 4))

        on_ranks(3, task)

    def test_are_asked_once_for_a_shape_and_its_rules(self, monkeypatch):
        asked, ask = [], agreement.exchanged

        def counted(*given):
            asked.append(given)
            return ask(*given)

        monkeypatch.setattr(agreement, "exchanged", counted)

        def task(rank):
            held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
            q = torch.ones(1, 2, len(held.tokens), 4)
            for scale in (None, None, 0.5, 0.5, None):
                attention(q, q, q, spread=held, way="gather", mask=hw.causal(), scale=scale)

        on_ranks(2, task)
        # each of two ranks, for each of two scales
        assert len(asked) == 4

    def test_are_told_of_a_rule_that_differs_later(self):
        def task(rank):
            held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
            q = torch.ones(1, 2, len(held.tokens), 4)
            attention(q, q, q, spread=held, way="gather", mask=hw.causal())
            with pytest.raises(DistributedError, match="ranks must agree on scale, but rank 1 differs from rank 0"):
                attention(q, q, q, spread=held, way="gather", mask=hw.causal(), scale=0.5 + rank)

        on_ranks(2, task)

    def test_are_told_of_a_refusal_at_the_first_call_with_other_keys_or_another_way(self):
        def task(rank, way, source):
            held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
            q = torch.ones(1, 2, len(held.tokens), 4)
            attention(q, q, q, spread=held, way="gather")
            over = held.with_keys(spread(8, dist.group.WORLD, layout="contiguous")) if source else held
            k = torch.ones(1, 2, (4 if source else 6) + rank, 4)
            error = ShapeError if rank else DistributedError
            with pytest.raises(error, match="k must hold" if rank else "but rank 1 refused its own"):
                attention(q, k, k, spread=over, way=way)

        on_ranks(2, task, "gather", True)
        on_ranks(2, task, "ring", False)


def mismatched(rank):
    return call(rank, batch=2 + (rank == 1))


def dying(rank):
    call(rank)
    if rank == 1:
        os._exit(1)
    held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
    q = torch.ones(2, 4, len(held.tokens), 8)
    return attention(q, q, q, spread=held, way="gather")


def absent(rank, way):
    held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
    q = torch.ones(2, 4, len(held.tokens), 8)
    attention(q, q, q, spread=held, way=way)
    if rank == 1:
        time.sleep(2.5)
        return None
    return attention(q, q, q, spread=held, way=way)


class TestProcesses:
    def test_a_mismatch_is_one_sentence_on_all_ranks_in_less_than_a_second(self):
        found = on_processes(3, mismatched, ends=True)
        assert {ended.error for ended in found} == {
            "DistributedError: ranks must agree on B, but rank 0 has B=2 and rank 1 has B=3: give every rank its part "
            "of one batch"
        }
        assert max(ended.seconds for ended in found) < 1.0

    def test_a_rank_that_dies_is_an_error_in_less_than_a_second(self):
        found = on_processes(3, dying, ends=True)
        assert found[1].error is None
        for ended in (found[0], found[2]):
            assert ended.error is not None
            assert ended.error.startswith("DistributedError: all ranks must come to ")
            assert "rank 1 did not" in ended.error
            assert ended.seconds < 1.0

    @pytest.mark.parametrize("way", ["gather", "ring"])
    def test_a_rank_that_does_not_come_is_named_at_the_timeout(self, way):
        found = on_processes(3, absent, way, timeout=1.0, ends=True)
        for ended in (found[0], found[2]):
            assert ended.error is not None
            assert f"all ranks must come to {way} of 12 tokens, but rank 1 did not" in ended.error
            assert 0.9 < ended.seconds < 2.5
