"""A layer whose sequence is spread lives with the rest of torch: DDP, FSDP2, autocast, checkpoints, accumulation."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

import headwise as hw
from headwise.errors import ArgumentError
from tests.distributed.ranks import on_ranks

LENGTH, WIDTH = 16, 12


def _in_context_parallel(_: int) -> list[str]:
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("cp",))
    x, q, weight = torch.randn(1, LENGTH, WIDTH), torch.randn(1, 2, LENGTH, 4), torch.randn(2, 4)
    layer = hw.MultiHeadAttention(WIDTH, 2, position=hw.Rotary(), score=hw.DotProduct(softcap=3.0))
    calls = [lambda: hw.attention(q, q, q), lambda: hw.additive_attention(q, q, q, weight), lambda: layer(x)]
    said = []
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
        for call in calls:
            with pytest.raises(ArgumentError) as raised:
                call()
            said.append(str(raised.value))
    assert layer(x).shape == x.shape
    return said


def test_inside_of_the_context_parallel_of_torch_is_refused_by_name() -> None:
    (said,) = on_ranks(1, _in_context_parallel)
    functions = [
        sentence.split(" inside of torch's context_parallel would take this rank's tokens")[0] for sentence in said
    ]
    assert functions == ["hw.attention", "hw.additive_attention", "hw.attention"]


def test_another_function_in_the_place_of_sdpa_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(1, 2, LENGTH, 4)
    want = hw.attention(q, q, q)
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *args, **more: theirs(*args, **more)
    )
    assert torch.equal(hw.attention(q, q, q), want)
