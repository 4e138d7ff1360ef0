"""What holds for every test on a GPU: there is one, and a fixed seed. Run alone, by make gpu."""

import pytest
import torch

from benchmarks.device import accept_older_torch


def pytest_sessionstart() -> None:
    if not torch.cuda.is_available():
        raise pytest.UsageError("tests/gpu needs a CUDA device, and torch sees none: run it where one is, by make gpu")
    accept_older_torch()


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
