"""A bool tensor that is given as a mask again is the mask that it was, as long as it is the tensor that it was."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.errors import MaskError
from headwise.masks import as_mask, derived_tensors
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import Shape, tensors

AT = Shape(Lq=6, Lk=9, D=8, Dv=8)


def kept() -> Tensor:
    """A mask in which every query may attend to a key, and every key is attended to."""
    return torch.eye(AT.Lq, AT.Lk).roll(2, 1).bool() | torch.ones(AT.Lq, AT.Lk, dtype=torch.bool).tril(3)


def replaced(t: Tensor) -> None:
    t.data = ~t


def narrowed(t: Tensor) -> None:
    t.data = t.data[:, :1]


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda t: t.logical_not_(),
    "behind torch's back": lambda t: t.data.logical_not_(),
    "of one entry": lambda t: t[0, 1].logical_not_(),
    "by other numbers elsewhere": replaced,
    "by fewer keys": narrowed,
}


def test_the_same_tensor_is_the_same_mask_and_its_results_are_kept() -> None:
    t = kept()
    first = as_mask(t)
    assert as_mask(t) is first
    assert as_mask(t.clone()) is not first
    q, k, v = tensors(AT)
    hw.attention(q, k, v, mask=t)
    assert first is not None
    table = derived_tensors.table(first)
    assert table is not None
    assert table.results


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_differentiated", [False, True], ids=["forward", "forward and backward"])
def test_a_tensor_that_was_changed_is_another_mask(change: str, is_differentiated: bool) -> None:
    q, k, v = (t.requires_grad_(is_differentiated) for t in tensors(AT))
    t = kept()
    for _ in range(3):
        hw.attention(q, k, v, mask=t)
    CHANGES[change](t)
    # another tensor, which nothing is kept of
    exact = exact_attention(*(x.detach() for x in (q, k, v)), mask=t.clone())
    allowed = t | ~t.any(-1, keepdim=True)
    plain = plain_attention(q, k, v, allowed=allowed).masked_fill(~t.any(-1, keepdim=True), 0.0)
    for _ in range(3):
        assert_within_budget(hw.attention(q, k, v, mask=t).detach(), exact, plain.detach())


def test_a_tensor_that_fits_no_more_is_refused() -> None:
    q, k, v = tensors(AT)
    t = kept()
    for _ in range(2):
        hw.attention(q, k, v, mask=t)
    t.resize_(AT.Lq, AT.Lk - 1)
    with pytest.raises(MaskError, match=r"Lk=9.*\(6, 8\)"):
        hw.attention(q, k, v, mask=t)


def test_a_float_tensor_is_refused_each_time() -> None:
    q, k, v = tensors(AT)
    for _ in range(3):
        with pytest.raises(MaskError, match=r"float32"):
            hw.attention(q, k, v, mask=kept().float())  # type: ignore[arg-type]


def test_a_mask_goes_with_its_tensor() -> None:
    q, k, v = (t.requires_grad_() for t in tensors(AT))
    t = kept()
    for _ in range(3):
        hw.attention(q, k, v, mask=t).sum().backward()
    mask, tensor = weakref.ref(as_mask(t)), weakref.ref(t)
    gc.disable()
    try:
        del t
        assert tensor() is None
        assert mask() is None
    finally:
        gc.enable()


def test_under_a_transform_nothing_is_kept() -> None:
    q, k, v = tensors(AT)
    both = torch.stack([kept(), ~kept()])

    def attend(mask: Tensor) -> Tensor:
        return hw.attention(q, k, v, mask=mask)

    found = torch.func.vmap(attend)(both)
    for mask, one in zip(both, found, strict=True):
        torch.testing.assert_close(one, attend(mask))


def test_while_a_graph_is_captured_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = hw.causal() & hw.window(keys=3)
    assert derived_tensors.table(mask) is not None
    t = kept()
    first = as_mask(t)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert derived_tensors.table(mask) is None
    assert as_mask(t) is not first
