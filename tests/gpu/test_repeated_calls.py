"""On a GPU, a call like one before goes to torch's kernel without a check, and gives the same numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import headwise as hw
from headwise.errors import BackendError, ShapeError
from headwise.masks import as_mask
from headwise.ops import call_keys, guarded_calls, repeated_calls
from headwise.ops.device_calls import DeviceCall
from headwise.ops.repeated_calls import RepeatedCall
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import MASKS, Shape, dense_mask, tensors
from tests.ops.kernel_laws import moved

AT = Shape(B=2, Hq=4, Hk=4, Lq=64, Lk=64, D=32, Dv=32)


def known(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout: float = 0.0) -> Any:
    """What is remembered of a call."""
    rules = {"mask": mask, "attn_bias": None, "scale": None, "softcap": None, "sink": None, "dropout": dropout}
    key = call_keys.key_of(q, k, v, {**rules, "generator": None}, "auto")  # type: ignore[typeddict-item]
    kept = repeated_calls.table_of(as_mask(mask))
    return None if key is None or kept is None else kept.results.get(key)


def on_device(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [t.cuda() for t in tensors(AT, dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_outputs_and_gradients_are_those_of_the_definition_and_stay_so(mask: str, dtype: torch.dtype) -> None:
    given = MASKS[mask](AT)
    here = moved({"mask": given}, "cuda")["mask"]
    leaves = [t.cuda().requires_grad_() for t in tensors(AT, dtype)]
    wide = [t.double().requires_grad_() for t in tensors(AT, dtype)]
    plain_leaves = [t.requires_grad_() for t in tensors(AT, dtype)]
    allowed = dense_mask(given, AT)
    empty = torch.zeros(()).bool() if allowed is None else ~allowed.any(-1, keepdim=True)
    exact = exact_attention(*wide, mask=given)
    plain = plain_attention(*plain_leaves, allowed=None if allowed is None else allowed | empty).masked_fill(empty, 0.0)
    seed = torch.randn(exact.shape).to(dtype)
    of_exact = torch.autograd.grad(exact, wide, seed.double())
    of_plain = torch.autograd.grad(plain, plain_leaves, seed)
    for _ in range(3):
        out = hw.attention(*leaves, mask=here)
        assert_within_budget(out.detach().cpu(), exact.detach(), plain.detach())
        for got, wanted, measure in zip(torch.autograd.grad(out, leaves, seed.cuda()), of_exact, of_plain, strict=True):
            assert_within_budget(got.cpu(), wanted, measure, factor=4.0)


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (None, RepeatedCall),
        (hw.causal(), RepeatedCall),
        (hw.causal() & hw.window(keys=9), RepeatedCall),
        (~hw.causal(), DeviceCall),
        (hw.lengths([50, 64]), DeviceCall),
        (torch.ones(64, 64, dtype=torch.bool), DeviceCall),
    ],
    ids=str,
)
def test_a_call_is_remembered(mask: Any, wanted: type) -> None:
    here = moved({"mask": mask}, "cuda")["mask"]
    q, k, v = on_device()
    hw.attention(q, k, v, mask=here)
    assert type(known(q, k, v, here)) is wanted
    # a mask that is a tensor is known to the guards as the mask that it was made into
    assert guarded_calls.recognized(q, k, v, as_mask(here), None, "auto") is not None
    with sdpa_kernel(SDPBackend.MATH):
        assert known(q, k, v, here) is None
    with pytest.raises(ShapeError, match="Hk=5 must divide Hq=4"):
        hw.attention(q, torch.cat([k, k[:, :1]], 1), torch.cat([v, v[:, :1]], 1), mask=here)


@pytest.mark.parametrize("mask", [None, hw.causal(), hw.lengths([50, 64])], ids=str)
def test_grouped_heads_of_float32_go_to_a_fused_kernel(mask: Any) -> None:
    here = moved({"mask": mask}, "cuda")["mask"]
    at = AT._replace(Hk=2)
    leaves = [t.cuda().requires_grad_() for t in tensors(at)]
    assert hw.backends(*leaves, mask=here).chosen == "sdpa"
    wide = [t.double().requires_grad_() for t in tensors(at)]
    exact = exact_attention(*wide, mask=mask)
    seed = torch.randn(exact.shape)
    wanted = torch.autograd.grad(exact, wide, seed.double())
    for _ in range(3):
        out = hw.attention(*leaves, mask=here)
        torch.testing.assert_close(out.cpu(), exact.float())
        for one, other in zip(torch.autograd.grad(out, leaves, seed.cuda()), wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, hw.causal(), hw.lengths([50, 64])], ids=str)
def test_a_call_with_dropout_is_remembered_with_what_is_dropped(mask: Any) -> None:
    here = moved({"mask": mask}, "cuda")["mask"]
    q, k, v = on_device(torch.bfloat16)
    v = torch.ones_like(v)
    for dropout in (0.25, 0.5):
        for _ in range(3):
            torch.manual_seed(0)
            out = hw.attention(q, k, v, mask=here, dropout=dropout)
        assert known(q, k, v, here, dropout) is not None
        torch.manual_seed(0)
        assert torch.equal(hw.attention(q, k, v, mask=here, dropout=dropout, backend="sdpa"), out)
        # a sum of weights of which some are dropped, the others divided by what is kept
        assert not torch.equal(hw.attention(q, k, v, mask=here, dropout=dropout), out)
        assert abs(out.float().mean().item() - 1) < 0.1
        q.requires_grad_()
        again = hw.attention(q, k, v, mask=here, dropout=dropout).sum()
        with pytest.raises(BackendError, match=f"dropout={dropout}"):
            torch.autograd.grad(again, q, create_graph=True)
        q.requires_grad_(False)


def test_ids_that_change_in_place_are_read_anew() -> None:
    q, k, v = on_device()
    ids = torch.zeros(2, 64, dtype=torch.long, device="cuda")
    mask = hw.documents(ids) & hw.causal()
    for step in range(4):
        ids[:, 16 * step :] = step
        exact = exact_attention(*(t.cpu() for t in (q, k, v)), mask=hw.documents(ids.cpu()) & hw.causal())
        torch.testing.assert_close(hw.attention(q, k, v, mask=mask).cpu(), exact.float())


def test_padding_may_hold_nan_in_a_repeated_call() -> None:
    q, k, v = on_device()
    mask = hw.lengths(torch.tensor([20, 64], device="cuda"))
    clean = [hw.attention(q, k, v, mask=mask) for _ in range(2)][-1]
    k[0, :, 20:] = v[0, :, 20:] = float("nan")
    assert torch.equal(hw.attention(q, k, v, mask=mask), clean)


@pytest.mark.parametrize("mask", [None, hw.causal(), hw.causal() & hw.window(keys=9), hw.lengths([20, 64])], ids=str)
def test_a_captured_graph_computes_anew_and_leaves_nothing_behind(mask: Any) -> None:
    here = moved({"mask": mask}, "cuda")["mask"]
    q, k, v = on_device()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        hw.attention(q, k, v)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        out = hw.attention(q, k, v, mask=here)
    # before the graph has run once, nothing of what it was to compute may be met by others
    torch.testing.assert_close(
        hw.attention(q, k, v, mask=here).cpu(), exact_attention(*(t.cpu() for t in (q, k, v)), mask=mask).float()
    )
    q.copy_(torch.randn_like(q))
    graph.replay()
    torch.testing.assert_close(out.cpu(), exact_attention(*(t.cpu() for t in (q, k, v)), mask=mask).float())
