"""The registered operations: torch's own check of them, compiled and exported programs, and what they refuse."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.errors import BackendError
from headwise.ops import custom_ops
from tests.cases import Shape, tensors

SMALL = Shape(B=2, Hq=4, Hk=2, Lq=5, Lk=7, D=6, Dv=3)


def arguments(more: dict[str, Any]) -> list[Any]:
    q, k, v = (t.requires_grad_() for t in tensors(SMALL))
    names = ("weight", "attn_bias", "sink", "allowed", "scale", "softcap")
    return [q, k, v, *(more.get(name) for name in names), more.get("dropout", 0.0), more.get("seed")]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"allowed": torch.ones(5, 7, dtype=torch.bool).tril(2), "scale": 0.3},
        {
            "attn_bias": torch.randn(1, 4, 5, 7).requires_grad_(),
            "sink": torch.randn(4).requires_grad_(),
            "softcap": 2.0,
        },
        {"weight": torch.randn(4, 6).requires_grad_()},
        {"dropout": 0.3, "seed": torch.tensor(5)},
    ],
    ids=lambda more: ", ".join(more) or "q, k, v",
)
def test_torch_finds_no_fault_in_the_operation(more: dict[str, Any]) -> None:
    checked = torch.library.opcheck(custom_ops.attention_by_strips, tuple(arguments(more)))
    assert set(checked.values()) == {"SUCCESS"}


class Attend(nn.Module):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.given = given

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return hw.attention(q, k, v, backend="blockwise", **self.given)


def test_a_compiled_call_drops_the_same_in_both_directions() -> None:
    q, k, _ = tensors(SMALL)
    v = torch.eye(7).expand(2, 2, 7, 7).clone().requires_grad_()
    compiled = torch.compile(Attend(dropout=0.4), fullgraph=True, backend="aot_eager")
    out = compiled(q, k, v)
    (gradient,) = torch.autograd.grad(out.sum(), v)
    # of values that are the identity, the outputs are the weights, and each value's gradient their sum
    torch.testing.assert_close(gradient, out.unflatten(1, (2, 2)).sum((2, 3))[..., None].expand_as(v))
    assert bool((out == 0).any())


def test_an_exported_call_by_name_gives_the_same_and_auto_leaves_no_trace_of_headwise() -> None:
    q, k, v = tensors(SMALL)
    program = torch.export.export(Attend(mask=hw.causal()), (q, k, v))
    assert torch.equal(program.module()(q, k, v), Attend(mask=hw.causal())(q, k, v))

    class Auto(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return hw.attention(q, k, v, softcap=20.0)

    long = tensors(Shape(B=1, Hq=8, Hk=8, Lq=1500, Lk=1500))
    assert hw.backends(*long, softcap=20.0).chosen == "blockwise"
    graph = torch.export.export(Auto(), tuple(long)).graph
    assert not any("headwise" in str(node.target) for node in graph.nodes)


def test_a_second_derivative_of_a_compiled_call_is_refused() -> None:
    tensor = arguments({})
    out = custom_ops.attention_by_strips(*tensor)
    (first,) = torch.autograd.grad(out.sum(), tensor[0], create_graph=True)
    with pytest.raises(BackendError, match="has one derivative, and a second one was asked for"):
        torch.autograd.grad(first.sum(), tensor[0])
