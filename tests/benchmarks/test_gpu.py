"""make gpu measures on a device only, and its cases of the Triton kernels run interpreted."""

import pytest
import torch

from benchmarks import gpu


def test_without_a_device_it_says_so_in_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 1
    assert capsys.readouterr().err == ("benchmarks.gpu needs a CUDA device, and torch sees none: run it where one is\n")


@pytest.mark.needs("triton")
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
def test_every_case_of_the_kernels_runs_interpreted(capsys, monkeypatch):
    monkeypatch.setattr(gpu, "H", 1)
    monkeypatch.setattr(gpu, "D", 2)
    assert gpu.main(["--interpret"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(line.endswith(": runs interpreted at L=9") for line in lines)
