"""What holds for every test on a GPU: there is one, and a fixed seed. Run alone, by make gpu."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.utils import _pytree as pytree

from benchmarks.device import accept_older_torch
from headwise.testing import plain_attention
from tests import contract

settings.register_profile("headwise", derandomize=True, deadline=None, database=None)
settings.load_profile("headwise")


def pytest_configure(config: pytest.Config) -> None:
    # torch 2.11 reads it itself, where it compiles
    config.addinivalue_line("filterwarnings", "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


def pytest_sessionstart() -> None:
    if not torch.cuda.is_available():
        raise pytest.UsageError("tests/gpu needs a CUDA device, and torch sees none: run it where one is, by make gpu")
    accept_older_torch()


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def plain_attention_of_the_device() -> Iterator[None]:
    """What the budget of a law is measured by: plain PyTorch where the law is tried, whose sums have another order."""

    def plain(*tensors: Tensor, **given: Any) -> Tensor:
        there = pytree.tree_map_only(Tensor, lambda t: t.cuda(), (tensors, given))
        return plain_attention(*there[0], **there[1]).cpu()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "plain_attention", plain)
        yield
