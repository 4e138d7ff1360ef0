"""One set of numbers on any number of ranks, whatever the way, the layout, the mask and the rules."""

import pytest
import torch

from tests.distributed.calls import LAYOUTS, MASKS, RULES, Case, assert_one_set_of_numbers, spread_over

WAYS = ("gather", "heads", "queries", "ring")
RANKS = (1, 2, 3, 4, 7)


def heads(way: str, ranks: int) -> tuple[int, int]:
    """Query heads and key/value heads, of which "heads" needs as many as ranks."""
    return (8, 2) if way == "heads" and ranks == 7 else Case().heads


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("way", WAYS)
class TestOneSetOfNumbers:
    def test_under_every_mask(self, way, ranks):
        for number, mask in enumerate(MASKS):
            layout = LAYOUTS[(number + ranks) % len(LAYOUTS)]
            assert_one_set_of_numbers(ranks, Case(mask, heads=heads(way, ranks)), layout, way)

    def test_with_every_rule(self, way, ranks):
        for number, rule in enumerate(RULES):
            layout, mask = LAYOUTS[(number + ranks) % len(LAYOUTS)], ("causal", "documents", "a rule")[number % 3]
            assert_one_set_of_numbers(ranks, Case(mask, rule, heads=heads(way, ranks)), layout, way)

    def test_in_bfloat16(self, way, ranks):
        for number, (mask, rule) in enumerate(
            (("causal", "no rule"), ("documents", "all of them"), ("two-sided window", "sink"), ("no mask", "bias"))
        ):
            case = Case(mask, rule, heads=heads(way, ranks), dtype=torch.bfloat16)
            assert_one_set_of_numbers(ranks, case, LAYOUTS[number % len(LAYOUTS)], way)

    def test_where_ranks_hold_no_token(self, way, ranks):
        for mask in ("no mask", "causal", "a rule"):
            for rule in ("no rule", "all of them"):
                # of few numbers plain PyTorch may be exact by luck
                case = Case(mask, rule, length=3, heads=heads(way, ranks), batch=16)
                assert_one_set_of_numbers(ranks, case, "zigzag", way)

    def test_two_runs_are_bit_equal(self, way, ranks):
        case = Case("documents", "all of them", heads=heads(way, ranks))
        first, second = (spread_over(ranks, case, "zigzag", way) for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("Hk", [1, 2, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_heads_that_ranks_share_unequally(ranks, Hk):
    for heads in ((4, Hk), (5 * Hk, Hk)):
        assert_one_set_of_numbers(ranks, Case("dense, a head each", "all of them", heads=heads), "zigzag", "heads")
