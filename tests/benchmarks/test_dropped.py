"""Dropout is held to its share, to one raise of all that is kept, and to the same draw backward."""

import pytest
import torch

from benchmarks.dropped import check_drops, check_same_drops
from benchmarks.harness import WrongNumbersError

CHANCE = 0.1
L, H, D = 70, 3, 13


def weights_of(q, k):
    return torch.softmax(q @ k.mT * D**-0.5, dim=-1)


def attend(*, share=CHANCE, raised=1 / (1 - CHANCE), spoil=lambda weights: weights):
    """A function of v and a chance that drops this share of the weights, raises the others, and spoils them."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, H, L, D)

    def attended(v, chance):
        weights = weights_of(q, k)
        kept = torch.rand_like(weights) >= share
        return spoil(weights * kept * raised) @ v

    return attended, q, k


def one_row_more(weights):
    weights[..., 3, :] *= 1.5
    return weights


def two_rows_exchanged(weights):
    weights[..., [3, 5], :] = weights[..., [5, 3], :]
    return weights


def test_dropout_of_the_share_asked_for_passes():
    assert check_drops("ours", *attend(), CHANCE) is None


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"share": 0.2}, r"ours drops 0\.\d+ of 2730 weights, but dropout is 0.1"),
        ({"share": 0.0}, "ours drops 0 of 2730 weights, but dropout is 0.1"),
        ({"raised": 1.0}, "ours raises what dropout 0.1 keeps by 1, not 1.11111"),
        ({"share": 0.2, "raised": 1.25}, "ours raises what dropout 0.1 keeps by 1.25, not 1.11111"),
        ({"share": 1.0}, "ours raises what dropout 0.1 keeps by 1, not 1.11111"),
        ({"spoil": one_row_more}, "ours, under dropout, is wrong in tensor 0"),
        ({"spoil": two_rows_exchanged}, "ours, under dropout, is wrong in tensor 0"),
    ],
    ids=["more", "nothing", "not raised", "another chance", "all", "raised unevenly", "rows exchanged"],
)
def test_any_other_dropout_is_refused(broken, sentence):
    with pytest.raises(WrongNumbersError, match=sentence):
        check_drops("ours", *attend(**broken), CHANCE)


def test_fewer_keys_than_features_are_all_shown():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, H, 9, D)
    shown = []

    def attended(v, chance):
        shown.append(v)
        return weights_of(q, k) * (torch.rand(1, H, 9, 9) >= chance) / (1 - chance) @ v

    assert check_drops("ours", attended, q, k, CHANCE) is None
    assert torch.equal(shown[0].sum(-1), torch.ones(1, H, 9))


def test_a_backward_pass_of_another_draw_is_refused():
    torch.manual_seed(0)
    weights = weights_of(*torch.randn(2, 1, H, L, D))
    v, gradient = torch.randn(2, 1, H, L, D)
    first, second = (weights * (torch.rand_like(weights) >= CHANCE) / (1 - CHANCE) for _ in range(2))
    out = first @ v
    assert check_same_drops("theirs", out, gradient, v, first.mT @ gradient) is None
    with pytest.raises(
        WrongNumbersError, match=r"theirs drops other weights backward: -?\d.* forward, -?\d.* backward"
    ):
        check_same_drops("theirs", out, gradient, v, second.mT @ gradient)
