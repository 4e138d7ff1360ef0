"""Statistics of long maps are timed where their numbers are right, and each time on maps of which nothing was read."""

import pytest
import torch

from benchmarks import statistics
from benchmarks.harness import WrongNumbersError
from benchmarks.kernels import Shape
from headwise.analysis import rollout

SMALL = Shape(L=300, H=3, D=5)


@pytest.mark.parametrize("read", statistics.DENSE)
def test_a_statistic_is_timed_only_where_it_is_right(read):
    statistics.of_one(SMALL, "read", read, target=1.0).check()
    wrong = statistics.of_one(SMALL, "read", lambda m: tuple(2 * t for t in read(m)), target=1.0, dense=read)
    with pytest.raises(WrongNumbersError, match="ours"):
        wrong.check()


def test_a_second_look_gives_the_numbers_of_the_first():
    assert statistics.again(SMALL).check() is None


def test_every_look_at_all_layers_is_the_first():
    found = []

    def read(seen):
        found.append([made._kept for _, made in seen.in_order()])
        return rollout(seen, token=-1)

    case = statistics.of_all(SMALL, "rollout", read, target=1.0)
    assert torch.equal(case.ours(), case.ours())
    assert case.theirs() is None
    assert len(found) == 2
    assert len(found[0]) == statistics.LAYERS
    assert not any(kept is again for kept, again in zip(*found, strict=True))
