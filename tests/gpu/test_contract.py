"""On a GPU, the laws of attention for the automatic choice and for FlexAttention, uncompiled and compiled."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention

import headwise as hw
from headwise.ops import flex
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import MASKS, Shape, dense_mask, rules, tensors
from tests.contract import GradientLaws, TransformLaws
from tests.ops.kernel_laws import moved

# wide enough for compiled kernels, and more than one of their tiles
LONG = Shape(B=2, Hq=4, Hk=2, Lq=200, Lk=264, D=32, Dv=32)


def on_device(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
    """The outputs of hw.attention on the device, brought back to where the inputs are."""
    out = hw.attention(q.cuda(), k.cuda(), v.cuda(), **moved(given, "cuda"))
    assert out.is_cuda
    return out.cpu()


class TestAuto(TransformLaws):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return on_device(q, k, v, **given)


@pytest.fixture(scope="class")
def uncompiled_flex() -> Iterator[None]:
    """FlexAttention as torch computes it without compiling: each structure of a mask would take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "compiled", lambda function, **how: function)
        patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        yield


@pytest.mark.usefixtures("uncompiled_flex")
class TestFlexUncompiled(GradientLaws):
    refused_shapes: ClassVar[frozenset[str]] = frozenset({"no sample", "no query"})
    dtypes: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16, torch.float16)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return on_device(q, k, v, backend="flex", **given)


@pytest.mark.parametrize(("rule", "dtype"), [("no rule", torch.bfloat16), ("all of them", torch.float32)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_compiled_flex_gives_outputs_and_gradients_of_the_definition(mask: str, rule: str, dtype: torch.dtype) -> None:
    given = rules(mask, rule, LONG)
    plain_rules = {name: given[name] for name in ("attn_bias", "scale", "softcap", "sink") if name in given}
    allowed = dense_mask(given["mask"], LONG)
    empty = torch.zeros(()).bool() if allowed is None else ~allowed.any(-1, keepdim=True)
    inputs = tensors(LONG, dtype)
    leaves = [t.requires_grad_() for t in inputs]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    plain_leaves = [t.detach().clone().requires_grad_() for t in inputs]
    got = on_device(*leaves, backend="flex", **given)
    exact = exact_attention(*wide, **given)
    plain = plain_attention(*plain_leaves, allowed=None if allowed is None else allowed | empty, **plain_rules)
    plain = plain.masked_fill(empty, 0.0)
    assert_within_budget(got.detach(), exact.detach(), plain.detach())
    seed = torch.randn(exact.shape).to(dtype)
    for found, wanted, measure in zip(
        torch.autograd.grad(got, leaves, seed),
        torch.autograd.grad(exact, wide, seed.double()),
        torch.autograd.grad(plain, plain_leaves, seed),
        strict=True,
    ):
        assert_within_budget(found, wanted, measure, factor=4.0)


def test_a_call_that_would_hold_much_memory_goes_to_flex_and_no_other() -> None:
    q = torch.randn(1, 1, 20000, 64, device="cuda", dtype=torch.bfloat16)
    mask = hw.causal() & hw.window(before=512)
    assert hw.backends(q, q, q, mask=mask).chosen == "flex"
    assert hw.backends(q, q, q, mask=hw.causal()).chosen == "sdpa"
    short = q[:, :, :1000]
    assert hw.backends(short, short, short, mask=mask).chosen == "sdpa"
    # to compile it takes memory of its own
    hw.attention(q, q, q, mask=mask)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = hw.attention(q, q, q, mask=mask)
    extra = torch.cuda.max_memory_allocated() - before
    # the mask alone, as bool, takes 381 MiB
    assert extra <= 64 << 20, f"{extra / 2**20:.0f} MiB"
    rows = slice(9000, 9300)
    near = slice(9000 - 512, 9300)
    part = hw.attention(q[:, :, rows], q[:, :, near], q[:, :, near], mask=mask)
    torch.testing.assert_close(out[:, :, rows], part, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_bias_wider_than_the_queries_is_not_handed_to_torchs_kernels(dtype: torch.dtype) -> None:
    q, k, v = (t.cuda() for t in tensors(Shape(B=2, Hq=4, Hk=4, Lq=200, Lk=264, D=64, Dv=64), dtype))
    bias = torch.zeros(200, 264, device="cuda")
    wide = hw.backends(q, k, v, attn_bias=bias)
    assert wide.chosen == "reference"
    assert wide.reasons["sdpa"] == f"torch's GPU kernels read attn_bias as {dtype}, as q is, and it is torch.float32"
    assert hw.backends(q, k, v, attn_bias=bias.to(dtype)).chosen == "sdpa"
