"""A call with a mask as it is repeated on a device, run here on the CPU: no number is read, and none is lost."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.masks import as_mask, derived_tensors
from headwise.masks.coordinates import Grid, Sizes
from headwise.ops import sdpa_arguments
from headwise.ops.call import checked
from headwise.ops.device_calls import device_call
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import MASKS, Shape, dense_mask, rules, tensors

SHAPES_TRIED = {
    "fewer queries": Shape(D=8, Dv=8),
    "as many queries": Shape(Lq=16, Lk=16, D=8, Dv=8),
    "more queries": Shape(Lq=11, Lk=7, D=8, Dv=8),
    "one key head": Shape(Hk=1, Lq=16, Lk=16, D=8, Dv=8),
}


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    """A call as it is repeated."""
    call = checked(q, k, v, mask=mask)
    known = device_call(call)
    assert known is not None
    out, is_result = known.run(q, k, v, call.mask)
    assert is_result
    return out


def twice(out: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """Derivatives of first ones, which depend on these too."""
    first = torch.autograd.grad(out.sin().sum(), leaves, create_graph=True)
    return torch.autograd.grad(sum(t.square().sum() for t in first), leaves)


@pytest.mark.parametrize("shape", SHAPES_TRIED)
@pytest.mark.parametrize("mask", [name for name in MASKS if name != "no mask"])
def test_outputs_and_gradients_are_those_of_the_definition(mask: str, shape: str) -> None:
    at = SHAPES_TRIED[shape]
    given = MASKS[mask](at)
    leaves = [t.requires_grad_() for t in tensors(at)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    plain_leaves = [t.detach().clone().requires_grad_() for t in leaves]
    allowed = dense_mask(given, at)
    empty = torch.zeros(()).bool() if allowed is None else ~allowed.any(-1, keepdim=True)
    got, exact = attend(*leaves, given), exact_attention(*wide, mask=given)
    plain = plain_attention(*plain_leaves, allowed=None if allowed is None else allowed | empty).masked_fill(empty, 0.0)
    assert_within_budget(got.detach(), exact.detach(), plain.detach())
    seed = torch.randn(exact.shape)
    for found, wanted, measure in zip(
        torch.autograd.grad(got, leaves, seed, create_graph=True),
        torch.autograd.grad(exact, wide, seed.double()),
        torch.autograd.grad(plain, plain_leaves, seed),
        strict=True,
    ):
        assert_within_budget(found.detach(), wanted, measure)


@pytest.mark.parametrize("mask", ["padding and causal", "the opposite"])
def test_keys_and_values_are_repeated_where_the_kernel_shares_none(mask: str) -> None:
    at = Shape(Hq=6, Hk=2, Lq=16, Lk=16, D=8, Dv=8)
    leaves = [t.requires_grad_() for t in tensors(at, torch.float64)]
    call = checked(*leaves, mask=MASKS[mask](at))
    known = device_call(call)
    assert known is not None
    assert known.is_grouped
    found = replace(known, is_grouped=False).run(*leaves, call.mask)[0]
    wanted = hw.attention(*leaves, mask=call.mask, backend="reference")
    torch.testing.assert_close(found, wanted)
    for one, other in zip(twice(found, leaves), twice(wanted, leaves), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mask", ["padding and causal", "the opposite"])
def test_second_derivatives_are_those_of_the_definition(mask: str) -> None:
    at = SHAPES_TRIED["as many queries"]
    leaves = [t.requires_grad_() for t in tensors(at, torch.float64)]

    given = MASKS[mask](at)
    found = twice(attend(*leaves, given), leaves)
    wanted = twice(hw.attention(*leaves, mask=given, backend="reference"), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_may_hold_anything(poison: float) -> None:
    at = SHAPES_TRIED["as many queries"]
    keep = torch.arange(at.Lk) < torch.tensor([[5], [at.Lk]])
    q, k, v = tensors(at)
    clean = attend(q, k, v, hw.keys(keep))
    for t in (k, v):
        t[0, :, 5:] = poison
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = attend(*leaves, hw.keys(keep))
    assert torch.equal(out, clean)
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "no mask"])
@pytest.mark.parametrize(("Lq", "Lk"), [(1, 1), (5, 5), (4, 9), (9, 4)])
def test_a_mask_that_includes_the_diagonal_does(mask: str, Lq: int, Lk: int) -> None:
    at = Shape(Lq=Lq, Lk=Lk)
    given = as_mask(MASKS[mask](at))
    assert given is not None
    if not given.includes_diagonal():
        return
    dense = given.allows(Grid.whole(Sizes(at.B, at.Hq, Lq, Lk), torch.device("cpu")))
    own = [dense[..., i, i + Lk - Lq] for i in range(Lq) if i + Lk - Lq >= 0]
    assert all(x.all() for x in own)
    assert Lq > Lk or bool(dense.any(-1).all())
    assert Lk > Lq or bool(dense.any(-2).all())


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (hw.causal(), True),
        (hw.causal() & hw.window(keys=1), True),
        (hw.causal() & hw.documents(torch.arange(4) // 2), True),
        (hw.keys(torch.ones(1, 4).bool()) | hw.causal(), True),
        (hw.documents(torch.arange(4), torch.arange(4)), False),
        (hw.keys(torch.ones(1, 4).bool()) & hw.causal(), False),
        (~hw.causal(), False),
        (hw.causal().at(torch.arange(4), torch.arange(4)), False),
    ],
    ids=str,
)
def test_the_diagonal_is_known_by_the_structure_alone(mask: hw.Mask, wanted: bool) -> None:
    assert mask.includes_diagonal() is wanted


@pytest.mark.parametrize("mask", ["padding and causal", "documents", "lengths, one of them 0", "an empty row"])
def test_nothing_is_read(mask: str) -> None:
    at = SHAPES_TRIED["as many queries"]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = pytree.tree_map_only(Tensor, mode.from_tensor, (*tensors(at), MASKS[mask](at)))
    with mode:
        known = device_call(checked(*fake[:3], mask=fake[3]))
        assert known is not None
        out, _ = known.run(*fake[:3], as_mask(fake[3]))
    assert out.shape == (at.B, at.Hq, at.Lq, at.Dv)


def test_what_depends_on_the_layout_of_a_mask_is_kept_as_long_as_that_stays() -> None:
    t = torch.ones(2, 6, dtype=torch.bool)
    table = derived_tensors.LayoutTable((t,), (), (), layouts=((t.shape, t.dtype, t.device),))
    t.logical_not_()
    assert table.is_current()
    t.resize_(2, 5)
    assert not table.is_current()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's CPU kernel is called as one of a GPU is."""
    monkeypatch.setattr(sdpa_arguments, "is_on_device", lambda t: True)


@pytest.mark.parametrize("rule", ["no rule", "bias"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.usefixtures("unread")
def test_a_first_call_gives_torchs_kernel_no_row_without_a_key(
    mask: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SHAPES_TRIED["as many queries"]
    given = rules(mask, rule, at)
    if rule == "bias":
        given["attn_bias"][:, :, 3] = float("-inf")
    met: list[Tensor | None] = []
    attended = F.scaled_dot_product_attention

    def seen(*tensors: Tensor, **options: Any) -> Tensor:
        met.append(options["attn_mask"])
        return attended(*tensors, **options)

    leaves = [t.requires_grad_() for t in tensors(at)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    got = hw.attention(*leaves, backend="sdpa", **given)
    monkeypatch.undo()
    assert len(met) == 1
    if met[0] is not None:
        allowed = met[0] if met[0].dtype is torch.bool else ~met[0].isneginf()
        assert allowed.any(-1).all()
    exact = exact_attention(*wide, **given)
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-5)
    seed = torch.randn(exact.shape)
    for found, wanted in zip(
        torch.autograd.grad(got, leaves, seed), torch.autograd.grad(exact, wide, seed.double()), strict=True
    ):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
